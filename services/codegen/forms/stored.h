// Floats by weights that lie in memory as integers (stored_weights.h): the sums of a block are scaled,
// not each weight.
#pragma once

#include "services/codegen/forms/stored_weights.h"
#include "services/codegen/forms/tile.h"

namespace quench::codegen {

class StoredForm final : public TileForm {
 public:
  // Scales and zero points (invalid: all 0) of the tile's vectors, [blocks][vectors][lanes] f32. A block
  // of the reduction has scales of its own where it has `stored.block` channels, else all have the same.
  StoredForm(const StoredWeights& stored, Ptr scales, Ptr zeros, bool by_lane)
      : stored_(stored), scales_(scales), zeros_(zeros), by_lane_(by_lane) {}
  void Emit(VectorBuilder& b, const MicroReduction& reduction, const MicroTile& tile,
            const StoreSum& store) const override;

 private:
  const StoredWeights stored_;
  const Ptr scales_, zeros_;
  const bool by_lane_;  // Target::multiply_by_lane
};

}  // namespace quench::codegen
