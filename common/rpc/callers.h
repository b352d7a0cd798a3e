// The permitted callers of a server: their tenants and roles.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/rpc/jwt.h"
#include "common/rpc/tokens.h"

namespace quench::rpc {

// Thread-safe.
class Callers {
 public:
  struct Options {
    std::filesystem::path token_file;  // of a TokenList; empty: there are no tokens
    // Callers by a name (an alternative name, or the common name) in a client's certificate that the
    // authorities have signed.
    std::map<std::string, Caller> certificate_callers;
    bool optional = false;  // a caller without credentials is kDefaultTenant
    std::optional<JwtVerifier::Options> jwt = std::nullopt;
  };
  static absl::StatusOr<std::unique_ptr<Callers>> Open(const Options& options);

  // `authorization`: the header's value, "" without one; `names`: those of the verified certificate.
  // Bearer tokens that look like a JWT are the issuer's, others are of the file. A token takes precedence over a
  // certificate, whose names may be of one tenant only; with several roles there, the
  // lowest counts. UNAUTHENTICATED for callers without known credentials.
  absl::StatusOr<Caller> CallerOf(std::string_view authorization,
                                  const std::vector<std::string>& names) const;

 private:
  explicit Callers(Options options) : options_(std::move(options)) {}

  const Options options_;
  std::unique_ptr<TokenList> tokens_;  // null: there are none
  std::unique_ptr<JwtVerifier> jwt_;   // null: there is no issuer
};

}  // namespace quench::rpc
