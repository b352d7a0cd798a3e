// Signatures of JSON Web Tokens (RFC 7515, RFC 7518) by OpenSSL: RS256 and ES256.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

extern "C" struct evp_pkey_st;  // OpenSSL's EVP_PKEY

namespace quench::rpc {

// The bytes of base64url without padding (RFC 7515, 2); nothing for anything else, the empty text included.
std::optional<std::string> DecodeBase64Url(std::string_view text);

// Null: none. Its use is thread-safe.
using PublicKey = std::shared_ptr<evp_pkey_st>;

// Keys from their numbers, in big-endian bytes. Null if these make no key, or one that is not to be trusted: RSA of less
// than 2,048 bits, a point that is not on the curve.
inline constexpr int kLeastRsaBits = 2048;
PublicKey RsaKey(const std::string& modulus, const std::string& exponent);
PublicKey P256Key(const std::string& x, const std::string& y);

// Whether `signature` is that of `text`, by the algorithm of the key: RS256 for RSA, ES256 (two numbers of 32 bytes) for
// P-256.
bool Verifies(const PublicKey& key, std::string_view text, std::string_view signature);

}  // namespace quench::rpc
