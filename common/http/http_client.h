// One HTTP/1.1 request over a connection of its own. Redirects are not followed: whoever may be called has been decided
// before. Proxies of the environment are not used. Bodies are taken as they come, never unpacked.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <stop_token>
#include <string>

#include "common/http/url.h"

namespace quench::http {

using Headers = std::map<std::string, std::string>;

struct RequestOptions {
  std::chrono::milliseconds connect_timeout{5000};
  std::chrono::milliseconds timeout{30'000};  // from connecting to the last byte of the response
  size_t max_body = size_t{64} << 10;         // of the response
  bool cut_body = false;                      // a longer body is cut, instead of an error
  std::filesystem::path ca_file;              // PEM, for https; empty: the system's authorities
  std::stop_token stop;                       // ends the request with CANCELLED
};

struct Response {
  int status = 0;
  Headers headers;  // names in lower case; the first of each
  std::string body;
};

// Whatever status the server answers with is a Response. UNAVAILABLE: no answer, or a certificate that
// is not right; DEADLINE_EXCEEDED: none in time; RESOURCE_EXHAUSTED: a body, a line or a header that
// is too long (AnswerBounds in client_stream.h);
// INVALID_ARGUMENT: a `ca_file` that cannot be read. Blocks for `timeout` at most, and for as long as the
// system looks up the host's name. Thread-safe. The process ignores SIGPIPE.
absl::StatusOr<Response> Get(const Url& url, const Headers& headers, const RequestOptions& options);
absl::StatusOr<Response> Post(const Url& url, const std::string& body,
                              const std::string& content_type, const Headers& headers,
                              const RequestOptions& options);

}  // namespace quench::http
