#include "common/rpc/jws.h"

#include <absl/strings/escaping.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>

#include <algorithm>

namespace quench::rpc {
namespace {

constexpr size_t kP256Bytes = 32;
constexpr size_t kMostRsaBytes = 2048;  // 16,384 bits, which OpenSSL verifies at most

template <typename T, void (*Free)(T*)>
struct Freer {
  void operator()(T* it) const { Free(it); }
};
using Number = std::unique_ptr<BIGNUM, Freer<BIGNUM, BN_free>>;
using Builder = std::unique_ptr<OSSL_PARAM_BLD, Freer<OSSL_PARAM_BLD, OSSL_PARAM_BLD_free>>;
using Params = std::unique_ptr<OSSL_PARAM, Freer<OSSL_PARAM, OSSL_PARAM_free>>;
using KeyContext = std::unique_ptr<EVP_PKEY_CTX, Freer<EVP_PKEY_CTX, EVP_PKEY_CTX_free>>;
using DigestContext = std::unique_ptr<EVP_MD_CTX, Freer<EVP_MD_CTX, EVP_MD_CTX_free>>;
using Signature = std::unique_ptr<ECDSA_SIG, Freer<ECDSA_SIG, ECDSA_SIG_free>>;

const unsigned char* BytesOf(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

Number NumberOf(std::string_view bytes) {
  return Number(BN_bin2bn(BytesOf(bytes), static_cast<int>(bytes.size()), nullptr));
}

// Failures here are none of the next user's of OpenSSL on this thread.
struct ErrorsForgotten {
  ~ErrorsForgotten() { ERR_clear_error(); }
};

// A key of this type that passes OpenSSL's check.
PublicKey KeyOf(const char* type, OSSL_PARAM_BLD* builder) {
  const ErrorsForgotten on_return;
  const Params params(OSSL_PARAM_BLD_to_param(builder));
  const KeyContext make(EVP_PKEY_CTX_new_from_name(nullptr, type, nullptr));
  EVP_PKEY* made = nullptr;
  if (params == nullptr || make == nullptr || EVP_PKEY_fromdata_init(make.get()) != 1 ||
      EVP_PKEY_fromdata(make.get(), &made, EVP_PKEY_PUBLIC_KEY, params.get()) != 1)
    return nullptr;
  PublicKey key(made, EVP_PKEY_free);
  const KeyContext check(EVP_PKEY_CTX_new_from_pkey(nullptr, made, nullptr));
  return check != nullptr && EVP_PKEY_public_check(check.get()) == 1 ? key : nullptr;
}

// r and s, as JSON Web Signatures have them, in the DER that OpenSSL takes; "" for anything else.
std::string DerOf(std::string_view signature) {
  if (signature.size() != 2 * kP256Bytes) return "";
  const Signature pair(ECDSA_SIG_new());
  Number first = NumberOf(signature.substr(0, kP256Bytes));
  Number second = NumberOf(signature.substr(kP256Bytes));
  if (pair == nullptr || ECDSA_SIG_set0(pair.get(), first.get(), second.get()) != 1) return "";
  (void)first.release();  // the pair's now
  (void)second.release();
  unsigned char* bytes = nullptr;
  const int size = i2d_ECDSA_SIG(pair.get(), &bytes);
  if (size <= 0) return "";
  std::string der(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  OPENSSL_free(bytes);
  return der;
}

}  // namespace

std::optional<std::string> DecodeBase64Url(std::string_view text) {
  const bool letters = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
  });
  std::string bytes;
  if (text.empty() || !letters || text.size() % 4 == 1 ||
      !absl::WebSafeBase64Unescape({text.data(), text.size()}, &bytes))
    return std::nullopt;
  return bytes;
}

PublicKey RsaKey(const std::string& modulus, const std::string& exponent) {
  if (modulus.size() > kMostRsaBytes || exponent.size() > sizeof(uint64_t)) return nullptr;
  const Builder builder(OSSL_PARAM_BLD_new());
  const Number number = NumberOf(modulus), power = NumberOf(exponent);
  if (builder == nullptr || number == nullptr || power == nullptr ||
      BN_num_bits(number.get()) < kLeastRsaBits ||
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, number.get()) != 1 ||
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, power.get()) != 1)
    return nullptr;
  return KeyOf("RSA", builder.get());
}

PublicKey P256Key(const std::string& x, const std::string& y) {
  if (x.size() != kP256Bytes || y.size() != kP256Bytes) return nullptr;
  const std::string point = "\x04" + x + y;  // uncompressed
  const Builder builder(OSSL_PARAM_BLD_new());
  if (builder == nullptr ||
      OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) !=
          1 ||
      OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(),
                                       point.size()) != 1)
    return nullptr;
  return KeyOf("EC", builder.get());
}

bool Verifies(const PublicKey& key, std::string_view text, std::string_view signature) {
  const ErrorsForgotten on_return;
  const std::string der =
      EVP_PKEY_is_a(key.get(), "EC") == 1 ? DerOf(signature) : std::string(signature);
  const DigestContext context(EVP_MD_CTX_new());
  return context != nullptr && !der.empty() &&
         EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) == 1 &&
         EVP_DigestVerify(context.get(), BytesOf(der), der.size(), BytesOf(text), text.size()) == 1;
}

}  // namespace quench::rpc
