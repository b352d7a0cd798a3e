// Panels of weights that the variants of one library share.
#pragma once

#include <cstdint>

#include "common/base/fields.h"
#include "services/codegen/forms/vector_builder.h"
#include "services/codegen/targets/target.h"

namespace quench::codegen {

// Each is one vector of columns of the widest variant: [rows][lanes]. A narrower vector is a part of
// each row, and a tile of several vectors reads several panels.
struct SharedPanels {
  int64_t lanes = 0;  // 0: not shared
  int64_t rows = 0;   // all blocks and taps of a convolution
  int64_t block = 0;  // rows of a tap that lie side by side, of a convolution with several taps
  int64_t own = 0;    // lanes of the kernel that reads them

  // None where the target's variant is alone in its library.
  static SharedPanels Of(const Target& target) {
    SharedPanels panels;
    panels.lanes = target.panel_lanes;
    panels.own = target.f32_lanes();
    return panels;
  }
  friend bool operator==(const SharedPanels&, const SharedPanels&) = default;
  QUENCH_FIELDS(lanes, rows, block, own)
  bool used() const { return lanes > 0; }
  // Largest number of vectors of a tile: tiles of two, and a single one at the end
  // (SplitIntoPanels), never lie in a panel and in part of the next, for which Offset has no
  // constant.
  int64_t MostVectors() const { return used() && own < lanes ? 2 : 8; }
  int64_t parts() const { return lanes / own; }  // vectors of a panel
  int64_t elements() const { return rows * lanes; }
  // From the panel of a tile's first vector to its vector `v`, in elements.
  int64_t Offset(int64_t v) const { return v / parts() * elements() + v % parts() * own; }
  // The place of vector `vector`, counted from the first panel on.
  Ptr At(Ptr first, Int vector, int64_t element_bytes) const {
    return first + (vector / parts() * (elements() * element_bytes) +
                    vector % parts() * (own * element_bytes));
  }
};

}  // namespace quench::codegen
