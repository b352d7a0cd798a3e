#include "common/http/url.h"

#include <absl/strings/ascii.h>
#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "common/base/printable.h"
#include "common/base/status.h"

namespace quench::http {
namespace {

constexpr std::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyz0123456789-_.";
// RFC 3986: unreserved, sub-delims, `:`, `@` and `/`; then what a query may have besides.
constexpr std::string_view kPathCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$&'()*+,;=:@/%";

bool Only(std::string_view text, std::string_view characters) {
  return text.find_first_not_of(characters) == std::string_view::npos;
}

bool IsAddress(const std::string& host) {
  in6_addr bytes{};
  return inet_pton(AF_INET, host.c_str(), &bytes) == 1;
}

// The resolver takes `127.1`, `0x7f.1` and `2130706433` for addresses: a last label that begins
// with a digit must be one of four numbers.
bool IsHost(const std::string& host) {
  if (host.empty() || host.size() > 253 || !Only(host, kNameCharacters)) return false;
  if (host.front() == '.' || host.find("..") != std::string::npos) return false;
  const std::string name = host.back() == '.' ? host.substr(0, host.size() - 1) : host;
  const char last = name[name.rfind('.') == std::string::npos ? 0 : name.rfind('.') + 1];
  return (last >= '0' && last <= '9') ? IsAddress(host) : true;
}

bool IsEscaped(std::string_view text) {
  const auto hex = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  };
  for (size_t at = text.find('%'); at != std::string_view::npos; at = text.find('%', at + 1)) {
    if (at + 2 >= text.size() || !hex(text[at + 1]) || !hex(text[at + 2])) return false;
  }
  return true;
}

// Receivers that resolve these, or take an escaped `/` for one, would see another path than the one
// that was checked.
bool LeavesItsPath(const std::string& path) {
  const std::string lower = absl::AsciiStrToLower(path);
  if (lower.find("%2f") != std::string::npos || lower.find("%5c") != std::string::npos) return true;
  for (size_t begin = 1; begin <= lower.size();) {
    const size_t end = std::min(lower.find('/', begin), lower.size());
    std::string segment = lower.substr(begin, end - begin);
    for (size_t dot = segment.find("%2e"); dot != std::string::npos; dot = segment.find("%2e")) {
      segment.replace(dot, 3, ".");
    }
    if (segment == "." || segment == "..") return true;
    begin = end + 1;
  }
  return false;
}

absl::Status ReadAuthority(std::string_view text, Url* url) {
  if (text.find('@') != std::string_view::npos) {
    return InvalidArgument("has user information, which is not sent");
  }
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    in6_addr bytes{};
    if (end != std::string_view::npos)
      url->host = absl::AsciiStrToLower(std::string(text.substr(1, end - 1)));
    if (inet_pton(AF_INET6, url->host.c_str(), &bytes) != 1) {
      return InvalidArgument("has no IPv6 address between `[` and `]`");
    }
    text.remove_prefix(end + 1);
    if (!text.empty() && text.front() != ':') return InvalidArgument("has something behind `]`");
    if (!text.empty()) port = text.substr(1);
  } else {
    const size_t colon = text.find(':');
    url->host = absl::AsciiStrToLower(std::string(text.substr(0, colon)));
    if (!IsHost(url->host)) {
      return InvalidArgument("has `{}` where a host's name or address must be",
                             Printable(url->host));
    }
    if (colon != std::string_view::npos)
      text.remove_prefix(colon), port = text.substr(1);
    else
      text = {};
  }
  url->port = url->tls ? 443 : 80;
  if (text.empty()) return absl::OkStatus();
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url->port);
  if (error != std::errc() || end != port.data() + port.size() || url->port < 1 ||
      url->port > 65535) {
    return InvalidArgument("has a port that is not one of 1 to 65535");
  }
  return absl::OkStatus();
}

}  // namespace

std::string Url::authority() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == (tls ? 443 : 80) ? name : fmt::format("{}:{}", name, port);
}

std::string Url::origin() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return fmt::format("{}://{}:{}", tls ? "https" : "http", name, port);
}

absl::StatusOr<Url> ParseUrl(const std::string& text) {
  const size_t scheme_end = text.find("://");
  const std::string scheme = absl::AsciiStrToLower(text.substr(0, scheme_end));
  if (scheme_end == std::string::npos || (scheme != "http" && scheme != "https")) {
    return InvalidArgument("does not begin with `http://` or `https://`");
  }
  Url url;
  url.tls = scheme == "https";
  const std::string_view rest = std::string_view(text).substr(scheme_end + 3);
  if (rest.find('#') != std::string_view::npos) return InvalidArgument("has a fragment (`#`)");
  const size_t authority_end = std::min(rest.find_first_of("/?"), rest.size());
  QUENCH_RETURN_IF_ERROR(ReadAuthority(rest.substr(0, authority_end), &url));
  const size_t query = std::min(rest.find('?'), rest.size());
  url.path = rest.substr(authority_end, query - authority_end);
  url.query = rest.substr(query);
  if (url.path.empty()) url.path = "/";
  if (!Only(url.path, kPathCharacters) || !Only(url.query, std::string(kPathCharacters) + "?") ||
      !IsEscaped(url.path) || !IsEscaped(url.query)) {
    return InvalidArgument("has characters that must be escaped with `%`");
  }
  if (LeavesItsPath(url.path))
    return InvalidArgument("has `.`, `..` or an escaped `/` in its path");
  return url;
}

bool BeginsWith(const Url& url, const Url& beginning) {
  if (url.tls != beginning.tls || url.host != beginning.host || url.port != beginning.port) {
    return false;
  }
  if (!url.path.starts_with(beginning.path)) return false;
  return beginning.path.back() == '/' || url.path.size() == beginning.path.size() ||
         url.path[beginning.path.size()] == '/';
}

}  // namespace quench::http
