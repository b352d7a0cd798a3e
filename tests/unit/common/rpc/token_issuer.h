// An issuer of signed tokens: keys and signatures by OpenSSL, its key set over HTTP.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace quench::rpc {

std::string Base64Url(const std::string& bytes);

// A private key of one algorithm.
class SigningKey {
 public:
  static SigningKey Rsa(const std::string& id, int bits = 2048);
  static SigningKey Ec(const std::string& id, const std::string& curve = "P-256");

  // The public key in JSON (RFC 7517); `more` is added to it: `,"use":"enc"`.
  std::string Jwk(const std::string& more = "") const;
  // A token with these claims in JSON. `header`, if it is given, instead of the usual one.
  std::string Sign(const std::string& claims, const std::string& header = "") const;

 private:
  SigningKey(std::string id, std::string algorithm, std::shared_ptr<void> key)
      : id_(std::move(id)), algorithm_(std::move(algorithm)), key_(std::move(key)) {}
  std::string id_, algorithm_;
  std::shared_ptr<void> key_;  // an EVP_PKEY
};

// {"keys": [...]}
std::string KeySet(const std::vector<std::string>& jwks);

// A server of one document on a free port of this machine.
class KeyServer {
 public:
  // With TLS, if there is a certificate: PREFIX.crt and PREFIX.key.
  explicit KeyServer(const std::string& prefix = "");
  ~KeyServer();
  std::string url() const;
  void Serve(const std::string& text);  // from now on
  void Fail(bool fail);                 // answers 500
  int requests() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quench::rpc
