// Bytes that the CPU picks from a group before they are multiplied (picked_pairs.h).
#pragma once

#include "services/codegen/forms/bytes.h"
#include "services/codegen/forms/picked_pairs.h"

namespace quench::codegen {

// Where the picks of a panel's words and its entries lie.
struct PanelPicks {
  Ptr picks, entries;
  Int entry_count;
  // `pack` is one of PackPickedPairs.
  static PanelPicks Of(VectorBuilder& b, const PickedPanels& panels, Ptr pack, Int panel);
};

class PickedForm final : public TileForm {
 public:
  PickedForm(ByteWork work, const PickedPanels& panels, const PanelPicks& picks)
      : work_(std::move(work)), panels_(panels), picks_(picks) {}
  void Emit(VectorBuilder& b, const MicroReduction& reduction, const MicroTile& tile,
            const StoreSum& store) const override;

 private:
  const ByteWork work_;
  const PickedPanels panels_;
  const PanelPicks picks_;
};

}  // namespace quench::codegen
