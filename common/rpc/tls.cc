#include "common/rpc/tls.h"

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <ctime>

#include "common/base/files.h"
#include "common/base/status.h"

#if defined(__SANITIZE_ADDRESS__)
// A thread of gRPC's that ends as the process does has let go of OpenSSL's errors of it, and not freed them yet: seen in
// one of 200 commands over TLS.
extern "C" const char* __lsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __lsan_default_suppressions() { return "leak:CRYPTO_zalloc\n"; }
#endif

namespace quench::rpc {
namespace {

using grpc::experimental::FileWatcherCertificateProvider;

template <auto Free>
struct Freer {
  void operator()(auto* object) const { Free(object); }
};
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Bio = std::unique_ptr<BIO, Freer<BIO_free_all>>;

absl::StatusOr<Bio> Open(const std::filesystem::path& path) {
  QUENCH_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, size_t{1} << 20));
  Bio bio(BIO_new(BIO_s_mem()));
  BIO_write(bio.get(), text.data(), static_cast<int>(text.size()));
  return bio;
}

absl::StatusOr<Certificate> ReadCertificate(const std::filesystem::path& path) {
  QUENCH_ASSIGN_OR_RETURN(const Bio bio, Open(path));
  Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate == nullptr) {
    return InvalidArgument("`{}` holds no certificate in PEM form", path.string());
  }
  return certificate;
}

absl::StatusOr<Key> ReadKey(const std::filesystem::path& path) {
  QUENCH_ASSIGN_OR_RETURN(const Bio bio, Open(path));
  // An encrypted key would ask for its password on the terminal; nobody is there.
  const auto no_password = [](char*, int, int, void*) { return 0; };
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    return InvalidArgument("`{}` holds no private key in PEM form without a password",
                           path.string());
  }
  return key;
}

absl::Status CheckPair(const TlsFiles& files) {
  QUENCH_ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate(files.certificate));
  QUENCH_ASSIGN_OR_RETURN(const Key key, ReadKey(files.key));
  const bool match = X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!match) {
    return InvalidArgument("the key in `{}` is not that of the certificate in `{}`",
                           files.key.string(), files.certificate.string());
  }
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0) {
    return InvalidArgument("the certificate in `{}` has expired", files.certificate.string());
  }
  return absl::OkStatus();
}

std::shared_ptr<FileWatcherCertificateProvider> Watch(const TlsFiles& files) {
  return std::make_shared<FileWatcherCertificateProvider>(
      files.key, files.certificate, files.ca, static_cast<unsigned>(files.refresh.count()));
}

}  // namespace

absl::StatusOr<std::chrono::system_clock::time_point> CertificateExpiry(
    const std::filesystem::path& path) {
  QUENCH_ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate(path));
  tm time{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &time) != 1) {
    return InvalidArgument("the certificate in `{}` has no valid end", path.string());
  }
  return std::chrono::system_clock::from_time_t(timegm(&time));
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerTls(const TlsFiles& files) {
  if (files.certificate.empty() || files.key.empty()) {
    return InvalidArgument("TLS needs a certificate and its key");
  }
  if (files.require_client_certificate && files.ca.empty()) {
    return InvalidArgument("client certificates need a file of authorities to check them by");
  }
  QUENCH_RETURN_IF_ERROR(CheckPair(files));
  if (!files.ca.empty()) QUENCH_RETURN_IF_ERROR(ReadCertificate(files.ca).status());
  // From here on nothing fails: options that no credentials take are never freed by the library.
  grpc::experimental::TlsServerCredentialsOptions options(Watch(files));
  options.watch_identity_key_cert_pairs();
  if (!files.ca.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(files.require_client_certificate
                                      ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                      : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelTls(const TlsFiles& files) {
  if (files.certificate.empty() != files.key.empty()) {
    return InvalidArgument("a client's certificate and its key must be given together");
  }
  if (!files.ca.empty()) QUENCH_RETURN_IF_ERROR(ReadCertificate(files.ca).status());
  if (!files.certificate.empty()) QUENCH_RETURN_IF_ERROR(CheckPair(files));
  grpc::experimental::TlsChannelCredentialsOptions options;
  if (!files.certificate.empty() || !files.ca.empty()) {
    options.set_certificate_provider(Watch(files));
  }
  if (!files.ca.empty()) options.watch_root_certs();
  if (!files.certificate.empty()) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> OwnTls(const TlsFiles& files) {
  QUENCH_RETURN_IF_ERROR(CheckPair(files));
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Watch(files));
  options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace quench::rpc
