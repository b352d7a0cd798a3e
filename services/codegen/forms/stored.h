// Floats by weights that lie in memory as integers (stored_weights.h): the sums of a block are scaled,
// not each weight.
#pragma once

#include <string>
#include <vector>

#include "common/base/fields.h"
#include "services/codegen/forms/form.h"
#include "services/codegen/forms/stored_weights.h"

namespace quench::codegen {

// Packs 1 and 2 hold scales and, if any, zero points: [panel][blocks][vectors][lanes] f32.
struct StoredForm final : Form {
  static constexpr const char kName[] = "stored";
  StoredForm() = default;
  StoredForm(const StoredWeights& stored, bool lanewise, bool unpacked)
      : weights(stored), by_lane(lanewise), unpack(unpacked) {}
  StoredWeights weights;
  bool by_lane = false;  // Target::multiply_by_lane
  bool unpack = false;   // a panel becomes floats in scratch first, for many rows
  QUENCH_FIELDS(weights, by_lane, unpack)

  int64_t weight_bits() const override { return weights.bits; }
  bool reads_floats() const override { return true; }
  std::vector<Tile> Tiles(const Target& target, const TileProblem& problem) const override;
  int Unroll(const Target& /*target*/) const override { return 8; }
  int64_t block() const override { return weights.blocked && !unpack ? weights.block : 0; }
  int64_t VectorBytes(const WeightPanels& panels) const override;
  WeightPack Pack(const WeightPanels& panels) const override;
  bool unpacks() const override { return unpack; }
  void Unpack(VectorBuilder& b, const WeightPanels& panels, const TileOperands& operands, Ptr panel,
              int vectors, Ptr scratch) const override;
  TileCode Code(VectorBuilder& b, const WeightPanels& panels,
                const TileOperands& operands) const override;
  std::string ToString() const override;
  std::string Slow() const override;
};

}  // namespace quench::codegen
