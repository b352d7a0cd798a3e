// Certificates made while the tests run: nothing that expires is committed.
#pragma once

#include <openssl/x509.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

namespace quench::testing {

struct PemPair {
  std::string certificate;
  std::string key;
};

// An authority that signs certificates.
class Authority {
 public:
  explicit Authority(const std::string& name);
  ~Authority();
  const std::string& certificate() const { return pem_; }
  // `name` is the subject; `valid` counts from now, and may be negative. `hosts` in OpenSSL's form.
  PemPair Issue(const std::string& name, std::chrono::seconds valid = std::chrono::hours(1),
                const std::string& hosts = "IP:127.0.0.1,IP:::1,DNS:localhost") const;

 private:
  EVP_PKEY* key_;
  X509* certificate_;
  std::string pem_;
};

// Writes `prefix`.crt and `prefix`.key, each whole.
void WritePair(const std::filesystem::path& prefix, const PemPair& pair);

}  // namespace quench::testing
