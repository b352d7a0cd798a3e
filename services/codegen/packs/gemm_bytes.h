// The order of the bytes of a product's weights in panels.
#pragma once

#include <cstddef>
#include <type_traits>

#include "services/codegen/forms/register_tile.h"
#include "services/codegen/packs/request.h"

namespace quench::codegen {

inline constexpr int64_t kUnit = 4;  // bytes of a word

// Panels of a product's weights, [k, n] of i8, of `all` vectors where padding has vectors of its own:
// calls place(element, target element) for each; the number of target elements.
template <typename Place>
absl::StatusOr<int64_t> GemmPanelsBytes(const Request& request, const Place& place) {
  const int64_t k = request.dim(0), n = request.dim(1), lanes = request.Param("lanes", 1);
  QUENCH_ASSIGN_OR_RETURN(const int64_t vectors, request.Vectors(n, lanes));
  const PanelSplit panels = SplitIntoPanels(vectors, request.Param("vectors"));
  if constexpr (!std::is_same_v<Place, std::nullptr_t>) {
    size_t at = 0;
    for (int64_t p = 0; p < panels.parts(); ++p) {
      for (int64_t word = 0; word < k; word += kUnit) {
        for (int64_t column = panels.Start(p) * lanes; column < panels.Start(p + 1) * lanes;
             ++column) {
          for (int64_t row = word; row < word + kUnit; ++row, ++at) {
            if (column < n && row < k) place(static_cast<size_t>(row * n + column), at);
          }
        }
      }
    }
  }
  return vectors * lanes * CeilDiv(k, kUnit) * kUnit;
}

}  // namespace quench::codegen
