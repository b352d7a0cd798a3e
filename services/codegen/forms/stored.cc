#include "services/codegen/forms/stored.h"

#include <vector>

#include "services/codegen/forms/floats.h"

namespace quench::codegen {
namespace {

// How far stored weights are fetched ahead, in bytes: one row by 10 matrices of 45 million 4-bit weights
// takes 20 instead of 29 ms, of 8 bits 35 instead of 47 (Emerald Rapids).
constexpr int64_t kAhead = 8192;
constexpr int64_t kLine = 64;  // bytes of a cache line

class StoredEmitter final : public FloatEmitter {
 public:
  StoredEmitter(VectorBuilder& b, const MicroReduction& reduction, const MicroTile& tile,
                const StoredWeights& stored, Ptr scales, Ptr zeros, bool by_lane)
      : FloatEmitter(b, reduction, tile, by_lane),
        stored_(stored),
        all_scales_(scales),
        all_zeros_(zeros) {}

 private:
  void Start() override {
    scales_ = b_.Variable(all_scales_);
    if (all_zeros_.valid()) zeros_ = b_.Variable(all_zeros_);
  }
  Part PartOf() const override { return stored_.blocked ? Part::kBlock : Part::kWhole; }

  // Sums of products with the integers minus their zero points, which are exact.
  void AddPart() override {
    const auto vectors = static_cast<size_t>(t_.vectors);
    for (size_t v = 0; v < vectors; ++v) {
      const int64_t at = int64_t{4} * r_.lanes * static_cast<int64_t>(v);
      const Vec scale = b_.Load(scales_.Get() + at, r_.lanes);
      for (size_t p = 0; p < pixels_.size(); ++p) {
        const size_t i = p * vectors + v;
        accumulators_[i].Set(b_.Fma(part_sums_[i].Get(), scale, accumulators_[i].Get()));
      }
    }
    if (!stored_.blocked) return;
    const int64_t bytes = int64_t{4} * r_.lanes * t_.vectors;
    scales_.Set(scales_.Get() + bytes);
    if (all_zeros_.valid()) zeros_.Set(zeros_.Get() + bytes);
  }

  // Rows share words and zero points, which are read once if their loads may be joined.
  bool KeepsRowsApart() const override { return false; }
  int64_t WeightBytes(int channels) const override {
    return stored_.Parts(channels) * stored_.bytes_together() * t_.vectors * r_.lanes;
  }
  void Multiply(Ptr input, int channels) override {
    for (int64_t line = 0; line < WeightBytes(channels); line += kLine)
      b_.Prefetch(weights_.Get() + (kAhead + line), 1);
    FloatEmitter::Multiply(input, channels);
  }
  // Without scales.
  std::vector<Vec> Row(int c) override {
    const StoredReader reader(b_, stored_, r_.lanes, t_.vectors, /*scales=*/{},
                              all_zeros_.valid() ? zeros_.Get() : Ptr{});
    const int together = stored_.rows_together();
    return reader.Row(
        weights_.Get() + c / together * stored_.bytes_together() * t_.vectors * r_.lanes,
        c % together);
  }

  const StoredWeights& stored_;
  const Ptr all_scales_, all_zeros_;
  PtrVar scales_, zeros_;  // of the present block
};

}  // namespace

void StoredForm::Emit(VectorBuilder& b, const MicroReduction& reduction, const MicroTile& tile,
                      const StoreSum& store) const {
  StoredEmitter(b, reduction, tile, stored_, scales_, zeros_, by_lane_).Emit(store);
}

}  // namespace quench::codegen
