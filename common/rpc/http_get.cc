#include "common/rpc/http_get.h"

#include "common/base/status.h"
#include "common/http/http_client.h"
#include "common/rpc/address.h"

namespace quench::rpc {

absl::Status CheckUrl(const std::string& url) {
  QUENCH_ASSIGN_OR_RETURN(const http::Url parts, http::ParseUrl(url));
  const bool v6 = parts.host.find(':') != std::string::npos;
  const std::string host = v6 ? "[" + parts.host + "]" : parts.host;
  if (parts.tls || IsLocal(fmt::format("{}:{}", host, parts.port))) return absl::OkStatus();
  return InvalidArgument("`{}`: must be https://, or http:// to this machine", url);
}

absl::StatusOr<std::string> HttpGet(const std::string& url, const HttpGetOptions& options) {
  QUENCH_RETURN_IF_ERROR(CheckUrl(url));
  http::RequestOptions request;
  request.connect_timeout = request.timeout = options.timeout;
  request.max_body = options.max_bytes;
  request.ca_file = options.ca_file;
  request.stop = options.stop;
  absl::StatusOr<http::Response> response = http::Get(*http::ParseUrl(url), {}, request);
  if (!response.ok())
    return absl::UnavailableError(fmt::format("GET {}: {}", url, MessageOf(response.status())));
  if (response->status != 200)
    return absl::UnavailableError(fmt::format("GET {}: HTTP status {}", url, response->status));
  return std::move(response->body);
}

}  // namespace quench::rpc
