// Floats: f32, or f16 and bf16 that are widened as they are read.
#pragma once

#include <vector>

#include "services/codegen/forms/shared_panels.h"
#include "services/codegen/forms/tile_emitter.h"

namespace quench::codegen {

// Weights lie as [blocks][kh][kw][channels][tile vectors][lanes], then [tail][tile vectors][lanes]; in
// shared panels, by their own width instead of the tile's.
class FloatForm final : public TileForm {
 public:
  explicit FloatForm(DataType weights = DataType::kF32, const SharedPanels& shared = {},
                     bool by_lane = false)
      : weights_(weights), shared_(shared), by_lane_(by_lane) {}
  void Emit(VectorBuilder& b, const MicroReduction& reduction, const MicroTile& tile,
            const StoreSum& store) const override;

 private:
  const DataType weights_;
  const SharedPanels shared_;
  const bool by_lane_;  // Target::multiply_by_lane
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
