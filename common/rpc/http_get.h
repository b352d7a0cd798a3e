// One file from a web server.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <filesystem>
#include <stop_token>
#include <string>

namespace quench::rpc {

// INVALID_ARGUMENT unless `url` is https://, or http:// to this machine.
absl::Status CheckUrl(const std::string& url);

struct HttpGetOptions {
  std::filesystem::path ca_file;            // PEM; empty: the system's authorities
  std::chrono::milliseconds timeout{5000};  // for all of it
  size_t max_bytes = size_t{1} << 20;
  std::stop_token stop;  // ends it early
};
// The body of a 200. UNAVAILABLE for every other outcome; redirections are not followed.
absl::StatusOr<std::string> HttpGet(const std::string& url, const HttpGetOptions& options);

}  // namespace quench::rpc
