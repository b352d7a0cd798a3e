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
  std::filesystem::path ca;  // trusted authorities; empty: none (servers), the system's (clients)
  bool require_client_certificate = false;  // servers, with `ca`: mTLS
  std::chrono::seconds refresh{10};         // how soon a change is seen
};

// Both check the files first: INVALID_ARGUMENT says which is missing, malformed, expired or does not
// match the other. A server needs certificate and key, a client `ca` or nothing.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerTls(const TlsFiles& files);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelTls(const TlsFiles& files);

// For a server's own health check: presents the server's certificate to the server itself, and accepts
// the certificate it presents whatever its name, which need not be loopback's. Not for other calls.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> OwnTls(const TlsFiles& files);

// The time at which the first certificate of the file expires.
absl::StatusOr<std::chrono::system_clock::time_point> CertificateExpiry(
    const std::filesystem::path& path);

}  // namespace quench::rpc
