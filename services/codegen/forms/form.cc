#include "services/codegen/forms/form.h"

namespace quench::codegen {

std::vector<Tile> Form::Tiles(const Target& target, const TileProblem& problem) const {
  return RankTiles(target, problem);
}

int64_t Form::VectorBytes(const WeightPanels& panels) const {
  return panels.words() * weight_bits() / 8 * panels.lanes;
}

}  // namespace quench::codegen
