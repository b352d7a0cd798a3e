// Bytes that the CPU picks from a group before they are multiplied (picked_pairs.h).
#pragma once

#include <string>
#include <vector>

#include "services/codegen/forms/bytes.h"

namespace quench::codegen {

struct PickedForm final : Form {
  static constexpr const char kName[] = "picked";
  explicit PickedForm(int most = 8) : most_vectors(most) {}
  int most_vectors;  // of a panel
  QUENCH_FIELDS(most_vectors)

  int64_t unit() const override { return 4; }
  std::vector<Tile> Tiles(const Target& target, const TileProblem& problem) const override;
  int together() const override { return 2; }
  int64_t VectorBytes(const WeightPanels& panels) const override;
  WeightPack Pack(const WeightPanels& panels) const override;
  TileCode Code(VectorBuilder& b, const WeightPanels& panels,
                const TileOperands& operands) const override;
  std::string ToString() const override { return "by picked pairs"; }
};

}  // namespace quench::codegen
