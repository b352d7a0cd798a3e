#include "common/blobs/digest.h"

#include <openssl/evp.h>

#include <array>

#include "common/base/beside.h"
#include "common/base/status.h"

namespace quench {

struct Sha256::State {
  // The context and the algorithm are OpenSSL's; failure here means memory ran out.
  State() : context(EVP_MD_CTX_new()) {
    QUENCH_CHECK(context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1);
  }
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  EVP_MD_CTX* context;
};

Sha256::Sha256() : state_(std::make_unique<State>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(std::span<const std::byte> bytes) {
  QUENCH_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

void Sha256::Update(std::string_view text) {
  Update(std::as_bytes(std::span(text.data(), text.size())));
}

Sha256 Sha256::Copy() const {
  Sha256 copy;
  QUENCH_CHECK(EVP_MD_CTX_copy_ex(copy.state_->context, state_->context) == 1);
  return copy;
}

std::string Sha256::HexDigest() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  QUENCH_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), &size) == 1);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex += kDigits[digest[i] >> 4];
    hex += kDigits[digest[i] & 15];
  }
  return hex;
}

std::string Sha256Hex(std::span<const std::byte> bytes) {
  Sha256 sha;
  sha.Update(bytes);
  return sha.HexDigest();
}

std::string Sha256Hex(std::string_view text) {
  return Sha256Hex(std::as_bytes(std::span(text.data(), text.size())));
}

void HashBeside(std::span<const std::byte> bytes, Sha256* sha, const std::function<void()>& work) {
  constexpr size_t kWorthAThread = size_t{128} << 10;
  if (bytes.size() < kWorthAThread) {
    sha->Update(bytes);
    work();
  } else {
    RunBeside([&] { sha->Update(bytes); }, work);
  }
}

bool IsDigest(std::string_view text) {
  if (text.size() != 64) return false;
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace quench
