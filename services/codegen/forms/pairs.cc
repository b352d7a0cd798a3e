#include "services/codegen/forms/pairs.h"

#include <fmt/format.h>

#include <algorithm>

#include "services/codegen/forms/words.h"

namespace quench::codegen {
namespace {

class BfloatEmitter final : public WordEmitter {
 public:
  using WordEmitter::WordEmitter;

 private:
  AddProducts Products(Vec word) override {
    return [this, word](Vec sum, Vec w) { return b_.AddProductsOfBfloats(sum, word, w); };
  }
};

// Part sums hold two of f16 a lane of i32.
class HalfEmitter final : public WordEmitter {
 public:
  using WordEmitter::WordEmitter;

 private:
  AddProducts Products(Vec word) override {
    return [this, word](Vec sum, Vec w) { return b_.AddProductsOfHalves(sum, word, w); };
  }

  Part PartOf() const override {
    // Parts that are far too short would cost more than they add: of long, thin kernels they are longer.
    constexpr int64_t kMost = 2 * kWordsOfHalves, kLeast = kWordsOfHalves / 2;
    const int64_t row = r_.channels * b_.ConstantOr(r_.kw, 1);
    const int64_t block = row * b_.ConstantOr(r_.kh, 1);
    if (2 * block <= kWordsOfHalves) return Part::kBlocks;
    if (block <= (row < kLeast ? 4 * kMost : kMost)) return Part::kBlock;
    return row <= (r_.channels < kLeast ? 4 * kMost : kMost) ? Part::kRow : Part::kTap;
  }
  int64_t ProductsOfPart() const override { return kWordsOfHalves; }
  DataType PartType() const override { return DataType::kI32; }

  void AddPart() override {
    const auto add = [&](size_t i, Vec sum) {
      accumulators_[i].Set(b_.Apply(VecOp::kAdd, accumulators_[i].Get(), sum));
    };
    const size_t count = accumulators_.size();
    for (size_t i = 0; i < count; i += 2) {
      const size_t next = std::min(i + 1, count - 1);
      const auto [first, second] = b_.SumsOfHalves(part_sums_[i].Get(), part_sums_[next].Get());
      add(i, first);
      if (next != i) add(next, second);
    }
  }
};

}  // namespace

TileCode PairForm::Code(VectorBuilder& b, const WeightPanels& /*panels*/,
                        const TileOperands& /*operands*/) const {
  return [&b, halves = type == DataType::kF16](const MicroReduction& reduction,
                                               const MicroTile& tile, const StoreSum& store) {
    halves ? HalfEmitter(b, reduction, tile).Emit(store)
           : BfloatEmitter(b, reduction, tile).Emit(store);
  };
}

std::string PairForm::ToString() const { return fmt::format("{} in pairs", DataTypeName(type)); }

}  // namespace quench::codegen
