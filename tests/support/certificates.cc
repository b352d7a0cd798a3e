#include "tests/support/certificates.h"

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "common/base/files.h"
#include "common/base/status.h"

namespace quench::testing {
namespace {

template <typename Write>
std::string Pem(Write write) {
  BIO* bio = BIO_new(BIO_s_mem());
  QUENCH_CHECK(write(bio) == 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

std::string PemOf(X509* certificate) {
  return Pem([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

void AddExtension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value);
  QUENCH_CHECK(extension != nullptr);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// Without extensions and signature.
X509* NewCertificate(EVP_PKEY* key, const std::string& name, std::chrono::seconds valid) {
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  uint64_t serial = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial >> 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -7200);
  X509_gmtime_adj(X509_getm_notAfter(certificate), valid.count());
  X509_set_pubkey(certificate, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

}  // namespace

Authority::Authority(const std::string& name) : key_(EVP_EC_gen("P-256")) {
  certificate_ = NewCertificate(key_, name, std::chrono::hours(1));
  X509_set_issuer_name(certificate_, X509_get_subject_name(certificate_));
  AddExtension(certificate_, certificate_, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(certificate_, certificate_, NID_subject_key_identifier, "hash");
  QUENCH_CHECK(X509_sign(certificate_, key_, EVP_sha256()) > 0);
  pem_ = PemOf(certificate_);
}

Authority::~Authority() {
  X509_free(certificate_);
  EVP_PKEY_free(key_);
}

PemPair Authority::Issue(const std::string& name, std::chrono::seconds valid,
                         const std::string& hosts) const {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = NewCertificate(key, name, valid);
  X509_set_issuer_name(certificate, X509_get_subject_name(certificate_));
  AddExtension(certificate, certificate_, NID_subject_alt_name, hosts.c_str());
  QUENCH_CHECK(X509_sign(certificate, key_, EVP_sha256()) > 0);
  PemPair pair{PemOf(certificate), Pem([&](BIO* bio) {
                 return PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
               })};
  X509_free(certificate);
  EVP_PKEY_free(key);
  return pair;
}

void WritePair(const std::filesystem::path& prefix, const PemPair& pair) {
  QUENCH_CHECK(WriteFileAtomically(prefix.string() + ".key", pair.key).ok());
  QUENCH_CHECK(WriteFileAtomically(prefix.string() + ".crt", pair.certificate).ok());
}

}  // namespace quench::testing
