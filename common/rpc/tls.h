// TLS from PEM files that are read again when they change: new connections see new certificates.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

namespace grpc {
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace quench::rpc {

struct TlsFiles {
  std::filesystem::path certificate;  // the chain, its own certificate first; with `key`
  std::filesystem::path key;
  std::filesystem::path ca;  // whom to believe; empty: nobody (servers), the system's (clients)
  bool require_client_certificate = false;  // servers, with `ca`: mTLS
  std::chrono::seconds refresh{10};         // how soon a change is seen
};

// Both look at the files first: INVALID_ARGUMENT says which is missing, malformed, expired or does
// not belong to the other. A server needs certificate and key, a client `ca` or nothing.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerTls(const TlsFiles& files);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelTls(const TlsFiles& files);

// For a server's own health check: shows the server's certificate to it, and takes what it shows
// whatever its name, which need not be that of loopback. Not for calls that carry anything.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> OwnTls(const TlsFiles& files);

// When the first certificate of the file expires.
absl::StatusOr<std::chrono::system_clock::time_point> CertificateExpiry(
    const std::filesystem::path& path);

}  // namespace quench::rpc
