#include "common/rpc/http_get.h"

#include <httplib.h>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "common/rpc/address.h"

namespace quench::rpc {
namespace {

struct Url {
  std::string server;     // https://HOST:PORT
  std::string authority;  // HOST:PORT
  std::string path;
};

Url Split(const std::string& url) {
  const size_t begin = url.find("://");
  if (begin == std::string::npos) return {};
  const size_t end = std::min(url.find_first_of("/?#", begin + 3), url.size());
  std::string path = url.substr(end);
  if (!path.starts_with('/')) path.insert(0, "/");
  return {url.substr(0, end), url.substr(begin + 3, end - begin - 3), path};
}

}  // namespace

absl::Status CheckUrl(const std::string& url) {
  const Url parts = Split(url);
  const bool printable =
      std::all_of(url.begin(), url.end(), [](char c) { return c > ' ' && c <= '~'; });
  const bool whole = printable && !parts.authority.empty() && !parts.authority.starts_with(':') &&
                     parts.authority.find('@') == std::string::npos;
  if (whole && parts.server.starts_with("https://")) return absl::OkStatus();
  if (whole && parts.server.starts_with("http://")) {
    const bool port = parts.authority.find_last_of(':') > parts.authority.find_last_of(']') + 1 &&
                      parts.authority.find(':') != std::string::npos;
    if (IsLocal(port ? parts.authority : parts.authority + ":80")) return absl::OkStatus();
  }
  return InvalidArgument("`{}`: must be https://HOST/PATH, or http:// to this machine",
                         Printable(url));
}

absl::StatusOr<std::string> HttpGet(const std::string& url, const HttpGetOptions& options) {
  QUENCH_RETURN_IF_ERROR(CheckUrl(url));
  const Url parts = Split(url);
  const auto end = std::chrono::steady_clock::now() + options.timeout;
  httplib::Client client(parts.server);
  client.set_connection_timeout(options.timeout);
  client.set_read_timeout(options.timeout);
  client.set_write_timeout(options.timeout);
  client.set_follow_location(false);
  client.enable_server_certificate_verification(true);
  if (!options.ca_file.empty()) client.set_ca_cert_path(options.ca_file.string());
  std::string body;
  const httplib::Result result =
      client.Get(parts.path, [&](const char* data, size_t size) {  // false ends the transfer
        if (body.size() + size > options.max_bytes) return false;
        body.append(data, size);
        return std::chrono::steady_clock::now() < end;
      });
  if (!result) {
    return absl::UnavailableError(
        fmt::format("GET {}: {}", url, httplib::to_string(result.error())));
  }
  if (result->status != 200)
    return absl::UnavailableError(fmt::format("GET {}: HTTP status {}", url, result->status));
  return body;
}

}  // namespace quench::rpc
