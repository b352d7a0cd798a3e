#include "common/rpc/tokens.h"

#include <absl/time/clock.h>
#include <openssl/crypto.h>
#include <spdlog/spdlog.h>

#include <optional>
#include <sstream>
#include <utility>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/rpc/errors.h"

namespace quench::rpc {
namespace {

constexpr std::string_view kScheme = "Bearer ", kRole = "role=";

// The text that can stand in a header, without spaces around.
absl::StatusOr<std::string> TokenIn(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n"), end = text.find_last_not_of(" \t\r\n");
  if (begin == std::string::npos) return InvalidArgument("the file is empty, it must hold a token");
  std::string token = text.substr(begin, end - begin + 1);
  for (const unsigned char c : token) {
    if (c <= ' ' || c > '~') {
      return InvalidArgument("the token has characters other than printable ASCII without spaces");
    }
  }
  return token;
}

bool ParseExpiry(const std::string& text, absl::Time* expiry) {
  return absl::ParseTime("%Y-%m-%d", text, expiry, nullptr) ||
         absl::ParseTime(absl::RFC3339_full, text, expiry, nullptr);
}

}  // namespace

absl::StatusOr<TokenList::Entry> TokenList::ParseLine(const std::string& line, int number) {
  std::istringstream words(line);
  Entry entry;
  std::string word;
  words >> entry.caller.tenant >> entry.sha256;
  bool wrong = !IsTenant(entry.caller.tenant) || !IsDigest(entry.sha256);
  bool expires = false, has_role = false;
  while (!wrong && words >> word) {
    if (word.starts_with(kRole)) {
      const std::optional<CallerRole> role = ParseRole(word.substr(kRole.size()));
      if (!role) {
        return InvalidArgument("line {}: `{}`: must be role=viewer, role=user or role=operator",
                               number, Printable(word));
      }
      entry.caller.role = *role;
      wrong = std::exchange(has_role, true);
    } else {
      if (std::exchange(expires, true)) {
        wrong = true;
      } else if (!ParseExpiry(word, &entry.expiry)) {
        return InvalidArgument(
            "line {}: `{}` is not a time: must be like 2027-01-31 or 2027-01-31T12:00:00Z", number,
            Printable(word));
      }
    }
  }
  if (!wrong) return entry;
  return InvalidArgument(
      "line {}: must be a tenant (lower-case letters, digits, `-`), a space, the sha256 of a "
      "token in lower-case hex, when it expires, if it does, and role=ROLE, if it is not a user's",
      number);
}

absl::StatusOr<std::vector<TokenList::Entry>> TokenList::Parse(const std::string& text) {
  std::vector<Entry> entries;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const size_t begin = line.find_first_not_of(" \t\r\n\v\f");
    if (begin == std::string::npos || line[begin] == '#') continue;
    QUENCH_ASSIGN_OR_RETURN(Entry entry, ParseLine(line, number));
    entries.push_back(std::move(entry));
  }
  if (entries.empty()) return InvalidArgument("the file has no tokens: nobody could call");
  return entries;
}

absl::Status TokenList::Refresh() {
  std::optional<absl::StatusOr<std::string>> text = file_.Changed();
  if (!text) return absl::OkStatus();
  QUENCH_RETURN_IF_ERROR(text->status());
  absl::StatusOr<std::vector<Entry>> entries = Parse(**text);
  if (!entries.ok()) return Annotate(entries.status(), fmt::format("`{}`", file_.path().string()));
  entries_ = *std::move(entries);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TokenList>> TokenList::Open(const std::filesystem::path& path) {
  std::unique_ptr<TokenList> list(new TokenList(path));
  QUENCH_RETURN_IF_ERROR(list->Refresh());
  return list;
}

absl::StatusOr<Caller> TokenList::CallerOf(std::string_view authorization) {
  if (!authorization.starts_with(kScheme)) {
    return Error(Reason::kTokenMissing, "the call brings no bearer token");
  }
  // Hashes are compared, all of them and all of each: time says nothing about tokens.
  const std::string hash = Sha256Hex(authorization.substr(kScheme.size()));
  const std::lock_guard lock(mutex_);
  if (const absl::Status status = Refresh(); !status.ok()) {
    spdlog::error("tokens stay as they were: {}", MessageOf(status));
  }
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    if (CRYPTO_memcmp(entry.sha256.data(), hash.data(), hash.size()) == 0) found = &entry;
  }
  if (found == nullptr) return Error(Reason::kTokenInvalid, "the bearer token is not known here");
  if (found->expiry <= absl::Now()) {
    return Error(
        Reason::kTokenExpired,
        fmt::format("the bearer token of tenant `{}` expired at {}", found->caller.tenant,
                    absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", found->expiry, absl::UTCTimeZone())));
  }
  return found->caller;
}

absl::Status TokenSource::Refresh() {
  std::optional<absl::StatusOr<std::string>> text = file_.Changed();
  if (!text) return absl::OkStatus();
  QUENCH_RETURN_IF_ERROR(text->status());
  absl::StatusOr<std::string> token = TokenIn(**text);
  if (!token.ok()) return Annotate(token.status(), fmt::format("`{}`", file_.path().string()));
  token_ = *std::move(token);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TokenSource>> TokenSource::Open(const std::filesystem::path& path) {
  std::unique_ptr<TokenSource> source(new TokenSource(path));
  QUENCH_RETURN_IF_ERROR(source->Refresh());
  return source;
}

std::string TokenSource::Get() {
  const std::lock_guard lock(mutex_);
  if (const absl::Status status = Refresh(); !status.ok()) {
    spdlog::error("the token stays as it was: {}", MessageOf(status));
  }
  return token_;
}

}  // namespace quench::rpc
