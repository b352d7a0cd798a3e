// The name of a blob whose size is known beforehand, as in REAPI.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace quench {

struct BlobId {
  std::string hash;  // sha256, lower-case hex
  uint64_t size = 0;
  auto operator<=>(const BlobId&) const = default;
};

}  // namespace quench
