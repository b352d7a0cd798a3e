// SHA-256 digests (OpenSSL).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace quench {

// Lower-case hex, 64 characters.
std::string Sha256Hex(std::span<const std::byte> bytes);
std::string Sha256Hex(std::string_view text);

class Sha256;
// Runs `work` while hashing.
void HashBeside(std::span<const std::byte> bytes, Sha256* sha, const std::function<void()>& work);

// Whether `text` has the form of a digest: 64 lower-case hex characters.
bool IsDigest(std::string_view text);

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view text);
  Sha256 Copy() const;      // a copy that continues independently
  std::string HexDigest();  // ends the computation

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quench
