// The order of a convolution's weights in panels.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "common/ops/byte_weights.h"
#include "services/codegen/forms/register_tile.h"
#include "services/codegen/packs/request.h"

namespace quench::codegen {

// Panels of a convolution's weights: `unit` channels lie side by side innermost, and `block` counts
// units; `all` vectors of a group, where padding has vectors of its own. The units `again` follow in each
// panel once more. Calls place(element, target element) for
// each weight, and again(element, target element) for those; the number of target elements.
template <typename Place, typename Again = std::nullptr_t>
absl::StatusOr<int64_t> ConvPanels(const Request& request, int64_t unit, const Place& place,
                                   std::span<const ops::WeightWord> twice = {},
                                   const Again& again = nullptr) {
  constexpr bool kSizeOnly = std::is_same_v<Place, std::nullptr_t>;
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"groups", "merged", "lanes", "block", "vectors"}));
  const int64_t groups = request.Param("groups"), merged = request.Param("merged");
  const int64_t lanes = request.Param("lanes"), block = request.Param("block");
  const int64_t ic = request.dim(1), oc = request.dim(0) / groups;  // of one original group
  const int64_t taps =
      request.source().rank() == 4 ? request.dim(2) * request.dim(3) : request.dim(2);
  const int64_t blocks = CeilDiv(ic * merged, block * unit);
  QUENCH_ASSIGN_OR_RETURN(const int64_t vectors, request.Vectors(oc * merged, lanes));
  const int64_t all = groups / merged;
  if (groups % merged != 0 || request.dim(0) % groups != 0)
    return Internal("pack `{}`: groups do not divide", request.transform());
  const PanelSplit panels = SplitIntoPanels(vectors, request.Param("vectors"));
  size_t at = 0;
  const auto vector = [&](int64_t g, int64_t p, int64_t word, int64_t tap, const auto& put) {
    for (int64_t o = panels.Start(p) * lanes; o < panels.Start(p + 1) * lanes; ++o) {
      for (int64_t c = word * unit; c < (word + 1) * unit; ++c, ++at) {
        const bool zero = o >= oc * merged || c >= ic * merged || o / oc != c / ic;
        if (!zero) put(static_cast<size_t>(((g * merged * oc + o) * ic + c % ic) * taps + tap), at);
      }
    }
  };
  if constexpr (!kSizeOnly) {
    for (int64_t g = 0; g < all; ++g) {
      for (int64_t p = 0; p < panels.parts(); ++p) {
        for (int64_t b = 0; b < blocks; ++b) {
          for (int64_t tap = 0; tap < taps; ++tap) {
            for (int64_t word = b * block; word < (b + 1) * block; ++word)
              vector(g, p, word, tap, place);
          }
        }
        if constexpr (!std::is_same_v<Again, std::nullptr_t>) {
          for (const ops::WeightWord& word : twice) vector(g, p, word.word, word.tap, again);
        }
      }
    }
  }
  return all * vectors * (blocks * taps * block + static_cast<int64_t>(twice.size())) * lanes *
         unit;
}

}  // namespace quench::codegen
