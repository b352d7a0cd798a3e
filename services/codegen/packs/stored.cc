// Weights that stay integers in memory, with their scales and zero points (forms/stored_weights.h).
#include <algorithm>

#include "services/codegen/forms/register_tile.h"
#include "services/codegen/packs/request.h"

namespace quench::codegen {
namespace {

// Calls visit(column) for the columns of a panel after another, beyond the last one too.
template <typename Visit>
void ForPanelColumns(const PanelSplit& panels, int64_t p, int64_t lanes, const Visit& visit) {
  for (int64_t column = panels.Start(p) * lanes; column < panels.Start(p + 1) * lanes; ++column)
    visit(column);
}

// value(element) for each scale.
absl::StatusOr<Packed> PackScales(const Request& request, std::function<float(int64_t)> value) {
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"lanes", "vectors"}));
  const int64_t blocks = request.dim(0), n = request.dim(1), lanes = request.Param("lanes");
  const int64_t vectors = CeilDiv(n, lanes);
  const PanelSplit panels = SplitIntoPanels(vectors, request.Param("vectors"));
  return Floats(vectors * lanes * blocks, [=, value = std::move(value)](std::span<float> out) {
    size_t at = 0;
    for (int64_t p = 0; p < panels.parts(); ++p) {
      for (int64_t block = 0; block < blocks; ++block) {
        ForPanelColumns(panels, p, lanes, [&](int64_t column) {
          if (column < n) out[at] = value(block * n + column);
          ++at;
        });
      }
    }
  });
}

}  // namespace

absl::StatusOr<Packed> PackGemmPanelsStored(const Request& request) {
  const DataType type = request.source().dtype();
  QUENCH_RETURN_IF_ERROR(request.CheckSource(2, 2, type));
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"lanes", "vectors", "block"}));
  const bool bytes = type == DataType::kI8 || type == DataType::kU8;
  if (!bytes && type != DataType::kI4 && type != DataType::kU4)
    return Internal("pack `gemm_panels_stored`: takes no {}", DataTypeName(type));
  const int64_t k = request.dim(0), n = request.dim(1), lanes = request.Param("lanes");
  const int64_t block = request.Param("block"), together = bytes ? 1 : 8;
  const int64_t moved = type == DataType::kU8 ? -128 : (type == DataType::kI4 ? 8 : 0);
  const int64_t vectors = CeilDiv(n, lanes), width = bytes ? 1 : 4;
  const PanelSplit panels = SplitIntoPanels(vectors, request.Param("vectors"));
  const int64_t parts = k / block * CeilDiv(block, together) + CeilDiv(k % block, together);
  const int64_t size = vectors * lanes * parts * width;
  return Filled(size, [=, &source = request.source()](std::byte* out) {
    for (int64_t p = 0; p < panels.parts(); ++p) {
      for (int64_t first = 0, end = 0; first < k; first = end) {
        end = std::min({k, first + together, (first / block + 1) * block});
        ForPanelColumns(panels, p, lanes, [&](int64_t column) {
          uint64_t word = 0;
          for (int64_t row = first; row < end && column < n; ++row) {
            const auto value = static_cast<uint64_t>(source.IntAt(row * n + column) + moved);
            word |= (value & (bytes ? 255 : 15)) << ((row - first) * 4);
          }
          for (int64_t byte = 0; byte < width; ++byte)
            *out++ = static_cast<std::byte>(word >> (8 * byte));
        });
      }
    }
  });
}

absl::StatusOr<Packed> PackGemmScales(const Request& request) {
  QUENCH_RETURN_IF_ERROR(request.CheckSource(2, 2));
  return PackScales(
      request, [scales = request.floats()](int64_t i) { return scales[static_cast<size_t>(i)]; });
}

absl::StatusOr<Packed> PackGemmZeros(const Request& request) {
  const Tensor* zero = request.second();
  if (request.source().dtype() != DataType::kF32 || request.source().rank() != 2 ||
      (zero != nullptr && zero->dims() != request.source().dims())) {
    return Internal("pack `gemm_zeros`: takes f32 scales of rank 2, and zero points like them");
  }
  const int64_t shift = request.Param("shift");
  return PackScales(request, [=](int64_t i) {
    return static_cast<float>((zero == nullptr ? 0 : zero->IntAt(i)) - shift);
  });
}

}  // namespace quench::codegen
