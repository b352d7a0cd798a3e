// Signed tokens of an OpenID Connect issuer (RFC 7519), such as CI systems and Kubernetes give to jobs.
#pragma once

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/rpc/issuer_keys.h"
#include "common/rpc/tenants.h"

namespace quench::rpc {

// Thread-safe.
class JwtVerifier {
 public:
  // Tokens whose claim is a text that `value` describes, or a list with one: `*` is any text, `?` any
  // character.
  struct Rule {
    std::string claim, value, tenant;
    std::optional<CallerRole> role;  // nothing: as `role_claim` says
  };
  struct Options {
    std::string issuer, audience;
    IssuerKeys::Options keys;
    std::string tenant_claim;  // "": `tenant`, if there are no rules
    std::vector<Rule> rules;   // the first that matches counts; where none does, `tenant_claim`
    std::string role_claim;    // "": all are users
  };
  static absl::StatusOr<std::unique_ptr<JwtVerifier>> Open(Options options);

  // Whether a bearer token looks like one of these: JSON in base64, and three parts with dots between.
  static bool IsJwt(std::string_view token);

  // UNAUTHENTICATED for a token that is not this issuer's, or not for here and now; UNAVAILABLE with
  // RetryInfo while the issuer's keys are not known.
  absl::StatusOr<Caller> CallerOf(std::string_view token, absl::Time now) const;

 private:
  JwtVerifier(Options options, std::unique_ptr<IssuerKeys> keys)
      : options_(std::move(options)), keys_(std::move(keys)) {}

  const Options options_;
  const std::unique_ptr<IssuerKeys> keys_;
};

// Whether `pattern`, in which `*` is any text and `?` any character, describes the whole text.
bool MatchesGlob(std::string_view pattern, std::string_view text);

}  // namespace quench::rpc
