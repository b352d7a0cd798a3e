// Bearer tokens: the server's list of tokens and their tenants, and the token that a client sends.
#pragma once

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "common/rpc/tenants.h"
#include "common/rpc/watched_file.h"

namespace quench::rpc {

// A file with a line `TENANT SHA256 [EXPIRY] [role=ROLE]` for each token: the hash in lower-case hex, the expiry an RFC
// 3339 time, or a date (which ends at 00:00 UTC), the role `viewer`, `user` (as without one) or `operator`, in any order
// after the hash; a tenant may have several. Empty lines and lines that begin with # are skipped.
// Read again when it changes; a change that cannot be read leaves the tokens as they were and is logged. Thread-safe.
class TokenList {
 public:
  // INVALID_ARGUMENT names the line; a file without tokens is an error too.
  static absl::StatusOr<std::unique_ptr<TokenList>> Open(const std::filesystem::path& path);

  // The tenant and role of the token in an `authorization` header's value, which is empty when the call has
  // none. UNAUTHENTICATED otherwise. Takes as long for a wrong token as for a right one.
  absl::StatusOr<Caller> CallerOf(std::string_view authorization);

 private:
  struct Entry {
    Caller caller;
    std::string sha256;
    absl::Time expiry = absl::InfiniteFuture();
  };
  explicit TokenList(const std::filesystem::path& path) : file_(path) {}
  absl::Status Refresh();
  static absl::StatusOr<Entry> ParseLine(const std::string& line, int number);
  static absl::StatusOr<std::vector<Entry>> Parse(const std::string& text);

  std::mutex mutex_;
  WatchedFile file_;
  std::vector<Entry> entries_;
};

// A file that holds one token. Read again when it changes. Thread-safe.
class TokenSource {
 public:
  static absl::StatusOr<std::unique_ptr<TokenSource>> Open(const std::filesystem::path& path);
  std::string Get();

 private:
  explicit TokenSource(const std::filesystem::path& path) : file_(path) {}
  absl::Status Refresh();

  std::mutex mutex_;
  WatchedFile file_;
  std::string token_;
};

}  // namespace quench::rpc
