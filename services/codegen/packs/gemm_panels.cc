// A product's weights in floats, and in pairs of f16 or bf16.
#include "services/codegen/forms/register_tile.h"
#include "services/codegen/packs/request.h"

namespace quench::codegen {
namespace {

// The panels of a product: of `unit` rows side by side, a word.
absl::StatusOr<Packed> GemmPanels(const Request& request, int64_t unit) {
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"lanes", "vectors"}));
  const bool transposed = request.Param("transposed") != 0;
  const int rank = request.source().rank();
  const int64_t k = request.dim(rank - (transposed ? 1 : 2)),
                n = request.dim(rank - (transposed ? 2 : 1));
  const int64_t lanes = request.Param("lanes");
  const int64_t batch = k * n == 0 ? 0 : request.source().size() / (k * n);
  QUENCH_ASSIGN_OR_RETURN(const int64_t vectors, request.Vectors(n, lanes));
  const int64_t words = CeilDiv(k, unit);
  const PanelSplit panels = SplitIntoPanels(vectors, request.Param("vectors"));
  const auto each = [=](const auto& visit) {  // visit(target, source) for every weight
    size_t at = 0;
    for (int64_t matrix = 0; matrix < batch; ++matrix) {
      for (int64_t p = 0; p < panels.parts(); ++p) {
        for (int64_t word = 0; word < words; ++word) {
          for (int64_t column = panels.Start(p) * lanes; column < panels.Start(p + 1) * lanes;
               ++column) {
            for (int64_t row = word * unit; row < (word + 1) * unit; ++row, ++at) {
              if (column >= n || row >= k) continue;
              const int64_t from = transposed ? column * k + row : row * n + column;
              visit(at, static_cast<size_t>(matrix * k * n + from));
            }
          }
        }
      }
    }
  };
  const int64_t count = batch * vectors * lanes * words * unit;
  const float scale = request.Scale();
  if (scale == 1) return Moved(request, count, each);
  return Floats(count, [=, &source = request.source()](std::span<float> out) {
    each([&](size_t to, size_t from) {
      out[to] = static_cast<float>(source.FloatAt(static_cast<int64_t>(from))) * scale;
    });
  });
}

}  // namespace

absl::StatusOr<Packed> PackGemmPanels(const Request& request) {
  QUENCH_RETURN_IF_ERROR(request.CheckSource(2, 64, request.FloatType()));
  return GemmPanels(request, 1);
}

absl::StatusOr<Packed> PackGemmPanelsPairs(const Request& request) {
  QUENCH_RETURN_IF_ERROR(request.CheckSource(2, 64, request.HalfType()));
  return GemmPanels(request, 2);
}

}  // namespace quench::codegen
