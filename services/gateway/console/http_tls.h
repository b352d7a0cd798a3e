// TLS of the console's server, from files that are read for each connection.
#pragma once

#include <absl/status/statusor.h>
#include <openssl/ssl.h>

#include <memory>

#include "common/rpc/tls.h"

namespace quench::gateway {

class HttpTls {
 public:
  // INVALID_ARGUMENT says what is wrong with the files, as rpc::ServerTls does.
  static absl::StatusOr<std::unique_ptr<HttpTls>> Make(const rpc::TlsFiles& files);
  // For connections, which refuse a client while a pair of files is being replaced.
  SSL_CTX* context() const { return context_.get(); }

 private:
  explicit HttpTls(const rpc::TlsFiles& files);
  static int UseFiles(SSL* ssl, void* self);

  const rpc::TlsFiles files_;
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
};

}  // namespace quench::gateway
