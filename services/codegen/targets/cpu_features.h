// Sets of CPU features.
#pragma once

#include <array>
#include <cstdint>

#include "common/runtime/abi.h"

namespace quench::codegen {

// Features of all families that common/runtime/abi.h knows, 64 bits for each.
class CpuFeatures {
 public:
  constexpr CpuFeatures() = default;
  constexpr CpuFeatures(uint32_t family, uint64_t bits) { bits_[family] = bits; }

  constexpr uint64_t of(uint32_t family) const { return bits_[family]; }
  constexpr bool empty() const { return *this == CpuFeatures(); }
  constexpr bool Has(const CpuFeatures& others) const { return others.Without(*this).empty(); }
  constexpr CpuFeatures Without(const CpuFeatures& others) const {
    CpuFeatures rest;
    for (uint32_t i = 0; i < QUENCH_CPU_FAMILIES; ++i) rest.bits_[i] = bits_[i] & ~others.bits_[i];
    return rest;
  }
  constexpr CpuFeatures& operator|=(const CpuFeatures& others) {
    for (uint32_t i = 0; i < QUENCH_CPU_FAMILIES; ++i) bits_[i] |= others.bits_[i];
    return *this;
  }
  friend constexpr bool operator==(const CpuFeatures&, const CpuFeatures&) = default;

 private:
  std::array<uint64_t, QUENCH_CPU_FAMILIES> bits_{};
};

// One feature: this bit of this family.
constexpr CpuFeatures CpuFeature(uint32_t family, int bit) { return {family, uint64_t{1} << bit}; }

}  // namespace quench::codegen
