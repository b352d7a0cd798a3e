#include "services/codegen/forms/floats.h"

namespace quench::codegen {
namespace {

// How far shared panels are fetched ahead: hardware follows one stream well, not several (3 to 10 % of a
// layer whose weights are cold, on Zen 4).
constexpr int64_t kRowsAhead = 16;

// Sums of more f32 products than the first number are added up in parts of the second: one register would
// round as often as there are products.
constexpr int64_t kManyProducts = int64_t{1} << 16;
constexpr int64_t kProductsOfPart = int64_t{1} << 10;

class RowEmitter final : public FloatEmitter {
 public:
  RowEmitter(VectorBuilder& b, const MicroReduction& reduction, const MicroTile& tile,
             DataType weights, const SharedPanels& shared, bool by_lane)
      : FloatEmitter(b, reduction, tile, by_lane), type_(weights), shared_(shared) {}

 private:
  Part PartOf() const override {
    const int64_t blocks = b_.ConstantOr(r_.blocks, 0), each = ProductsOfBlock();
    const bool many = each <= kProductsOfPart && blocks > kManyProducts / each;
    return many ? Part::kBlocks : Part::kNone;
  }
  int64_t ProductsOfPart() const override { return kProductsOfPart; }

  // Whether the weights of a block's taps do not follow each other.
  bool apart() const { return shared_.used() && shared_.block > r_.channels; }
  void BeginBlock(Int block) override {
    if (!apart()) return;
    const int64_t parts = shared_.block / r_.channels;
    const Int taps = r_.kh * r_.kw;
    weights_.Set(t_.weights + (block / parts * taps * (shared_.block * RowBytes()) +
                               block % parts * (r_.channels * RowBytes())));
  }
  void EndTap() override {
    if (apart()) weights_.Set(weights_.Get() + (shared_.block - r_.channels) * RowBytes());
  }

  int64_t Element() const { return DataTypeBits(type_) / 8; }
  // Bytes from a channel to the next.
  int64_t RowBytes() const {
    const int64_t row = shared_.used() ? shared_.lanes : int64_t{t_.vectors} * r_.lanes;
    return row * Element();
  }
  int64_t WeightBytes(int channels) const override { return channels * RowBytes(); }

  std::vector<Vec> Row(int c) override {
    std::vector<Vec> weights;
    for (int v = 0; v < t_.vectors; ++v) {
      const int64_t vector = shared_.used() ? shared_.Offset(v) : int64_t{v} * r_.lanes;
      const int64_t at = c * RowBytes() + vector * Element();
      if (shared_.used() && vector % shared_.lanes == 0)
        b_.Prefetch(weights_.Get() + (at + kRowsAhead * RowBytes()), 1);
      weights.push_back(b_.Load(weights_.Get() + at, r_.lanes, type_));
    }
    return weights;
  }

  const DataType type_;
  const SharedPanels& shared_;
};

}  // namespace

void FloatEmitter::Multiply(Ptr input, int channels) {
  const bool by_lane = by_lane_ && channels % 4 == 0 && b_.ConstantOr(r_.channel_stride, 0) == 4;
  std::vector<Vec> quads(pixels_.size());
  for (int c = 0; c < channels; ++c) {
    BeginRow(c);
    const std::vector<Vec> weights = Row(c);
    for (size_t p = 0; p < pixels_.size(); ++p) {
      const Ptr address = input + r_.channel_stride * c + pixels_[p];
      if (by_lane && c % 4 == 0) quads[p] = b_.Load(address, 4);
      const Vec x = by_lane ? b_.SplatLane(quads[p], c % 4, r_.lanes)
                            : b_.Splat(b_.Load(address, 1), r_.lanes);
      for (int v = 0; v < t_.vectors; ++v) {
        const VecVar& sum = Sum(p, v);
        sum.Set(b_.Fma(x, weights[static_cast<size_t>(v)], sum.Get()));
      }
    }
  }
  weights_.Set(weights_.Get() + WeightBytes(channels));
}

TileCode FloatForm::Code(VectorBuilder& b, const WeightPanels& panels,
                         const TileOperands& /*operands*/) const {
  return [&b, type = weights, shared = panels.shared, lanewise = by_lane](
             const MicroReduction& reduction, const MicroTile& tile, const StoreSum& store) {
    RowEmitter(b, reduction, tile, type, shared, lanewise).Emit(store);
  };
}

}  // namespace quench::codegen
