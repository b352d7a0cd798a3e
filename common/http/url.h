// URLs of http:// and https://, taken apart as strictly as checks of who may be called need it: what this accepts has one
// reading.
#pragma once

#include <absl/status/statusor.h>

#include <string>

namespace quench::http {

struct Url {
  bool tls = false;   // https
  std::string host;   // lower case; IPv6 addresses without their brackets
  int port = 0;       // given, or 80 and 443
  std::string path;   // begins with `/`
  std::string query;  // with its `?`, or empty

  std::string target() const { return path + query; }
  // `https://host:port`, with the port always.
  std::string origin() const;
  // As a Host header has it: without the scheme's own port.
  std::string authority() const;
};

// INVALID_ARGUMENT says what is wrong: another scheme, user information, a fragment, characters that
// must be escaped, `.` and `..` in the path (escaped too), a host that is neither a name nor an
// address, a port out of range.
absl::StatusOr<Url> ParseUrl(const std::string& text);

// Whether `url` begins with `beginning`: the same scheme, host and port, and a path that is the
// beginning's or below it: `/quench` allows `/quench` and `/quench/a`, not `/quenched`.
bool BeginsWith(const Url& url, const Url& beginning);

}  // namespace quench::http
