// Pairs of bf16 or f16, multiplied as they are. Sums are f32; those of f16 begin in f16, for a number of
// words at a time.
#pragma once

#include <cstdint>

#include "services/codegen/forms/tile.h"

namespace quench::codegen {

// Number of words whose products are added in f16 before the sum is widened. At 64 the error is
// about 1.1e-3 of the sums' standard deviation; rounding the result alone costs 2e-4, adding
// thousands of products in f16 1e-2. (32 words take 8 % more time on Emerald Rapids, 128 words 5 %
// less.)
constexpr int64_t kWordsOfHalves = 64;

class PairForm final : public TileForm {
 public:
  // `type` is f16 or bf16.
  explicit PairForm(DataType type) : type_(type) {}
  void Emit(VectorBuilder& b, const MicroReduction& reduction, const MicroTile& tile,
            const StoreSum& store) const override;

 private:
  const DataType type_;
};

}  // namespace quench::codegen
