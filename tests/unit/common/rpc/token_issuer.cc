#include "tests/unit/common/rpc/token_issuer.h"

#include <httplib.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "common/base/status.h"

namespace quench::rpc {
namespace {

EVP_PKEY* KeyOf(const std::shared_ptr<void>& key) { return static_cast<EVP_PKEY*>(key.get()); }

std::shared_ptr<void> Owned(EVP_PKEY* key) {
  QUENCH_CHECK(key != nullptr);
  return {key, [](void* it) { EVP_PKEY_free(static_cast<EVP_PKEY*>(it)); }};
}

std::string BytesOf(const BIGNUM* number, int size) {
  std::string bytes(size, '\0');
  BN_bn2binpad(number, reinterpret_cast<unsigned char*>(bytes.data()), size);
  return bytes;
}

std::string Number(const std::shared_ptr<void>& key, const char* name, int size = 0) {
  BIGNUM* number = nullptr;
  QUENCH_CHECK(EVP_PKEY_get_bn_param(KeyOf(key), name, &number) == 1);
  const std::string bytes = BytesOf(number, size > 0 ? size : BN_num_bytes(number));
  BN_free(number);
  return Base64Url(bytes);
}

}  // namespace

std::string Base64Url(const std::string& bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  text.resize(size);
  while (!text.empty() && text.back() == '=') text.pop_back();
  for (char& c : text) c = c == '+' ? '-' : c == '/' ? '_' : c;
  return text;
}

SigningKey SigningKey::Rsa(const std::string& id, int bits) {
  return {id, "RS256", Owned(EVP_RSA_gen(static_cast<unsigned>(bits)))};
}

SigningKey SigningKey::Ec(const std::string& id, const std::string& curve) {
  return {id, "ES256", Owned(EVP_EC_gen(curve.c_str()))};
}

std::string SigningKey::Jwk(const std::string& more) const {
  if (algorithm_ == "RS256") {
    return fmt::format(R"({{"kty":"RSA","kid":"{}","n":"{}","e":"{}"{}}})", id_,
                       Number(key_, OSSL_PKEY_PARAM_RSA_N), Number(key_, OSSL_PKEY_PARAM_RSA_E),
                       more);
  }
  const int bits = EVP_PKEY_get_bits(KeyOf(key_)), size = (bits + 7) / 8;
  return fmt::format(R"({{"kty":"EC","kid":"{}","crv":"P-{}","x":"{}","y":"{}"{}}})", id_, bits,
                     Number(key_, OSSL_PKEY_PARAM_EC_PUB_X, size),
                     Number(key_, OSSL_PKEY_PARAM_EC_PUB_Y, size), more);
}

std::string SigningKey::Sign(const std::string& claims, const std::string& header) const {
  const std::string usual =
      fmt::format(R"({{"alg":"{}","kid":"{}","typ":"JWT"}})", algorithm_, id_);
  const std::string text = Base64Url(header.empty() ? usual : header) + "." + Base64Url(claims);
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  size_t size = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  QUENCH_CHECK(EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, KeyOf(key_)) == 1);
  QUENCH_CHECK(EVP_DigestSign(context.get(), nullptr, &size, bytes, text.size()) == 1);
  std::string signature(size, '\0');
  auto* out = reinterpret_cast<unsigned char*>(signature.data());
  QUENCH_CHECK(EVP_DigestSign(context.get(), out, &size, bytes, text.size()) == 1);
  signature.resize(size);
  if (algorithm_ == "ES256") {  // from ASN.1 to both numbers, one behind the other
    const auto* der = reinterpret_cast<const unsigned char*>(signature.data());
    ECDSA_SIG* pair = d2i_ECDSA_SIG(nullptr, &der, static_cast<long>(size));
    const int half = (EVP_PKEY_get_bits(KeyOf(key_)) + 7) / 8;
    signature = BytesOf(ECDSA_SIG_get0_r(pair), half) + BytesOf(ECDSA_SIG_get0_s(pair), half);
    ECDSA_SIG_free(pair);
  }
  return text + "." + Base64Url(signature);
}

std::string KeySet(const std::vector<std::string>& jwks) {
  return fmt::format(R"({{"keys":[{}]}})", fmt::join(jwks, ","));
}

struct KeyServer::State {
  std::unique_ptr<httplib::Server> server;
  std::string scheme;
  std::mutex mutex;
  std::string text;
  std::atomic<bool> fail = false;
  std::atomic<int> requests = 0;
  int port = 0;
  std::thread thread;
};

KeyServer::KeyServer(const std::string& prefix) : state_(std::make_unique<State>()) {
  state_->scheme = prefix.empty() ? "http" : "https";
  if (prefix.empty()) {
    state_->server = std::make_unique<httplib::Server>();
  } else {
    state_->server =
        std::make_unique<httplib::SSLServer>((prefix + ".crt").c_str(), (prefix + ".key").c_str());
  }
  state_->server->Get("/keys",
                      [it = state_.get()](const httplib::Request&, httplib::Response& response) {
                        ++it->requests;
                        const std::lock_guard lock(it->mutex);
                        if (it->fail) {
                          response.status = 500;
                        } else {
                          response.set_content(it->text, "application/json");
                        }
                      });
  state_->port = state_->server->bind_to_any_port("127.0.0.1");
  state_->thread = std::thread([it = state_.get()] { it->server->listen_after_bind(); });
}

KeyServer::~KeyServer() {
  while (!state_->server->is_running()) std::this_thread::yield();
  state_->server->stop();
  state_->thread.join();
}

std::string KeyServer::url() const {
  return fmt::format("{}://127.0.0.1:{}/keys", state_->scheme, state_->port);
}

void KeyServer::Serve(const std::string& text) {
  const std::lock_guard lock(state_->mutex);
  state_->text = text;
}

void KeyServer::Fail(bool fail) { state_->fail = fail; }

int KeyServer::requests() const { return state_->requests; }

}  // namespace quench::rpc
