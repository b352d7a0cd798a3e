// Loops of kernels over pixels in tiles and over output channels in panels.
#pragma once

#include <functional>

#include "services/codegen/forms/register_tile.h"
#include "services/codegen/forms/vector_builder.h"

namespace quench::codegen {

// Prefetching of weights, which are not in the cache when a layer starts: while the tiles of a
// panel are computed, each fetches its share of the next panel.
struct PanelPrefetch {
  int lines = 0;  // per body; 0: none
  int64_t slices = 1;
  int64_t slice_bytes = 0;
  // `panel_bytes` of weights, `bodies` per tile, `tiles` per panel.
  static PanelPrefetch Plan(int64_t panel_bytes, int64_t bodies, int64_t tiles);
};

// Pixels of an axis in tiles of at most `most`: evenly when the axis is static, else full tiles and
// a remainder in tiles of powers of two.
struct TileAxis {
  Dim total = 1;
  int most = 1;
  friend bool operator==(const TileAxis&, const TileAxis&) = default;
  QUENCH_FIELDS(total, most)
  Dim Parts(SymbolTable& symbols) const;
  // body(first pixel, pixels) for the tiles [first, last).
  void For(VectorBuilder& b, Int first, Int last, const std::function<void(Int, int)>& body) const;
  // body(first pixel, number of its first pixels that the tile before it has) for the tiles [first, last), all of the
  // size of the first one (WholeTile).
  void ForWhole(VectorBuilder& b, Int first, Int last,
                const std::function<void(Int, Int)>& body) const;
  Int WholeTile(VectorBuilder& b) const;  // pixels
  Int Parts(VectorBuilder& b) const;
  Int Start(VectorBuilder& b, Int part) const;  // first pixel of a tile
  void ForAll(VectorBuilder& b, const std::function<void(Int, int)>& body) const;
};

// First vector of panel p of a split.
Int FirstOfPanel(const PanelSplit& panels, Int p);

// Panels of output vectors: `fn(vectors, first vector, is the last panel)` for panel p of a split.
// When `peel_last`, the last panel has code of its own and only there the third argument is true.
void ForPanel(VectorBuilder& b, const PanelSplit& panels, Int p, bool peel_last,
              const std::function<void(int vectors, Int first, bool last)>& fn);

}  // namespace quench::codegen
