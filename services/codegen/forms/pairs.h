// Pairs of bf16 or f16, multiplied as they are. Sums are f32; those of f16 begin in f16, for a number of
// words at a time.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/fields.h"
#include "services/codegen/forms/form.h"

namespace quench::codegen {

// Number of words whose products are added in f16 before the sum is widened. At 64 the error is
// about 1.1e-3 of the sums' standard deviation; rounding the result alone costs 2e-4, adding
// thousands of products in f16 1e-2. (32 words take 8 % more time on Emerald Rapids, 128 words 5 %
// less.)
constexpr int64_t kWordsOfHalves = 64;

struct PairForm final : Form {
  static constexpr const char kName[] = "pairs";
  // f16 or bf16.
  explicit PairForm(DataType pair_type = DataType::kBF16) : type(pair_type) {}
  DataType type;
  QUENCH_FIELDS(type)

  int64_t unit() const override { return 2; }
  int64_t block() const override { return type == DataType::kF16 ? kWordsOfHalves : 0; }
  WeightPack Pack(const WeightPanels& /*panels*/) const override { return {"_pairs", {}}; }
  TileCode Code(VectorBuilder& b, const WeightPanels& panels,
                const TileOperands& operands) const override;
  std::string ToString() const override;  // "bf16 in pairs"
};

}  // namespace quench::codegen
