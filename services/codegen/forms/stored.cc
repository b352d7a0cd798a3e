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

// Bytes of the scales of one vector.
int64_t ScaleBytes(const StoredWeights& stored, const WeightPanels& panels) {
  return stored.Blocks(panels.words()) * panels.lanes * 4;
}

// Scales and zero points of the tile's first block.
struct Scales {
  Ptr scales, zeros;  // zeros: invalid where all are 0
};
Scales ScalesOf(const StoredWeights& stored, const WeightPanels& panels,
                const TileOperands& operands) {
  const int64_t bytes = ScaleBytes(stored, panels);
  Scales found;
  found.scales = operands.pack(1) + operands.vector * bytes;
  if (stored.zeros) found.zeros = operands.pack(2) + operands.vector * bytes;
  return found;
}

}  // namespace

std::vector<Tile> StoredForm::Tiles(const Target& target, const TileProblem& problem) const {
  TileProblem own = problem;
  if (!unpack) own.spare = 2;  // words of four bits, and a row of them
  return RankTiles(target, own);
}

int64_t StoredForm::VectorBytes(const WeightPanels& panels) const {
  return weights.Bytes(panels.words()) * panels.lanes;
}

WeightPack StoredForm::Pack(const WeightPanels& /*panels*/) const {
  return {"_stored", {{"block", weights.block}}};
}

void StoredForm::Unpack(VectorBuilder& b, const WeightPanels& panels, const TileOperands& operands,
                        Ptr panel, int vectors, Ptr scratch) const {
  const int64_t k = panels.words(), block = weights.block;
  const int lanes = static_cast<int>(panels.lanes);
  const int64_t row = int64_t{vectors} * lanes;
  const PtrVar to = b.Variable(scratch), from = b.Variable(panel);
  const Scales first = ScalesOf(weights, panels, operands);
  const PtrVar scales = b.Variable(first.scales);
  const PtrVar zeros = weights.zeros ? b.Variable(first.zeros) : PtrVar{};
  const auto part = [&](const StoredReader& reader, int rows) {
    for (int r = 0; r < rows; ++r) {
      const std::vector<Vec> values = reader.Row(from.Get(), r);
      for (int v = 0; v < vectors; ++v)
        b.Store(to.Get() + int64_t{4} * lanes * v, values[static_cast<size_t>(v)]);
      to.Set(to.Get() + 4 * row);
    }
    from.Set(from.Get() + row * weights.bytes_together());
  };
  const auto rows_of_block = [&](int64_t rows) {
    const StoredReader reader(b, weights, lanes, vectors, scales.Get(),
                              weights.zeros ? zeros.Get() : Ptr{});
    const int together = weights.rows_together();
    b.For(b.I(0), b.I(rows / together), 1, [&](Int) { part(reader, together); });
    if (rows % together != 0) part(reader, static_cast<int>(rows % together));
    scales.Set(scales.Get() + 4 * row);
    if (weights.zeros) zeros.Set(zeros.Get() + 4 * row);
  };
  b.For(b.I(0), b.I(k / block), 1, [&](Int) { rows_of_block(block); });
  if (k % block != 0) rows_of_block(k % block);
}

TileCode StoredForm::Code(VectorBuilder& b, const WeightPanels& panels,
                          const TileOperands& operands) const {
  if (unpack) return FloatForm(DataType::kF32, by_lane).Code(b, panels, operands);
  const Scales first = ScalesOf(weights, panels, operands);
  return [&b, first, stored = weights, lanewise = by_lane](
             const MicroReduction& reduction, const MicroTile& tile, const StoreSum& store) {
    StoredEmitter(b, reduction, tile, stored, first.scales, first.zeros, lanewise).Emit(store);
  };
}

std::string StoredForm::ToString() const {
  return weights.ToString() + (unpack ? ", scaled a panel at a time" : "");
}

std::string StoredForm::Slow() const {
  if (!unpack) return "";
  return "weights are scaled a panel at a time: with this many rows floats would be as fast";
}

}  // namespace quench::codegen
