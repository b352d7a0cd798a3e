// Floats: f32, or f16 and bf16 that are widened as they are read.
#pragma once

#include <vector>

#include "common/base/fields.h"
#include "services/codegen/forms/form.h"
#include "services/codegen/forms/tile_emitter.h"

namespace quench::codegen {

// Weights lie as [blocks][kh][kw][channels][tile vectors][lanes], then [tail][tile vectors][lanes]; in
// shared panels, by their own width instead of the tile's.
struct FloatForm final : Form {
  static constexpr const char kName[] = "floats";
  explicit FloatForm(DataType weights_type = DataType::kF32, bool lanewise = false)
      : weights(weights_type), by_lane(lanewise) {}
  DataType weights;
  bool by_lane;  // multiply-adds take one lane of a vector: Target::multiply_by_lane
  QUENCH_FIELDS(weights, by_lane)

  int64_t weight_bits() const override { return DataTypeBits(weights); }
  bool reads_floats() const override { return true; }
  bool shares_panels() const override { return true; }
  TileCode Code(VectorBuilder& b, const WeightPanels& panels,
                const TileOperands& operands) const override;
};

// Multiply-adds of one float of a pixel and the vectors of a channel.
class FloatEmitter : public TileEmitter {
 public:
  FloatEmitter(VectorBuilder& b, const MicroReduction& reduction, const MicroTile& tile,
               bool by_lane)
      : TileEmitter(b, reduction, tile), by_lane_(by_lane) {}

 protected:
  void Multiply(Ptr input, int channels) override;
  // The weights of channel c of the body, as f32.
  virtual std::vector<Vec> Row(int c) = 0;
  // Bytes of the weights of so many channels.
  virtual int64_t WeightBytes(int channels) const = 0;

 private:
  const bool by_lane_;
};

}  // namespace quench::codegen
