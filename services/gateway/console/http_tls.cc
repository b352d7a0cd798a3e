#include "services/gateway/console/http_tls.h"

#include <openssl/err.h>

#include "common/base/status.h"

namespace quench::gateway {
namespace {

// Has the client's certificate verified by the authorities of this file alone.
bool UseAuthorities(SSL* ssl, const std::filesystem::path& file) {
  const std::unique_ptr<X509_STORE, decltype(&X509_STORE_free)> store(X509_STORE_new(),
                                                                      X509_STORE_free);
  if (store == nullptr || X509_STORE_load_file(store.get(), file.c_str()) != 1) return false;
  STACK_OF(X509_NAME)* const names = SSL_load_client_CA_file(file.c_str());
  if (names == nullptr) return false;
  SSL_set_client_CA_list(ssl, names);  // owns them
  return SSL_set1_verify_cert_store(ssl, store.get()) == 1;
}

}  // namespace

// Called by OpenSSL in each handshake.
int HttpTls::UseFiles(SSL* ssl, void* self) {
  const rpc::TlsFiles& files = static_cast<const HttpTls*>(self)->files_;
  bool fits = SSL_use_certificate_chain_file(ssl, files.certificate.c_str()) == 1 &&
              SSL_use_PrivateKey_file(ssl, files.key.c_str(), SSL_FILETYPE_PEM) == 1;
  if (fits && files.require_client_certificate) fits = UseAuthorities(ssl, files.ca);
  ERR_clear_error();
  return fits ? 1 : 0;
}

HttpTls::HttpTls(const rpc::TlsFiles& files)
    : files_(files), context_(SSL_CTX_new(TLS_server_method()), SSL_CTX_free) {
  if (context_ == nullptr) return;
  SSL_CTX* const context = context_.get();
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_cert_cb(context, UseFiles, this);
  // A session that is resumed would skip the look at the client's certificate and at the files.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_num_tickets(context, 0);
  if (!files_.require_client_certificate) return;
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
}

absl::StatusOr<std::unique_ptr<HttpTls>> HttpTls::Make(const rpc::TlsFiles& files) {
  QUENCH_RETURN_IF_ERROR(rpc::ServerTls(files).status());
  std::unique_ptr<HttpTls> tls(new HttpTls(files));
  if (tls->context() == nullptr) return Internal("the console's TLS cannot be set up");
  return tls;
}

}  // namespace quench::gateway
