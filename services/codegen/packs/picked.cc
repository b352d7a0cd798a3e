// Weights of products and convolutions whose bytes are picked (forms/picked_pairs.h).
#include <vector>

#include "services/codegen/forms/picked_pairs.h"
#include "services/codegen/packs/conv_panels.h"
#include "services/codegen/packs/gemm_bytes.h"

namespace quench::codegen {
namespace {

Packed Picked(const PickedPanels& panels, std::span<const int16_t> weights) {
  std::vector<std::byte> bytes = PackPickedPairs(panels, weights);
  const auto size = static_cast<int64_t>(bytes.size());
  return {size, [bytes = std::move(bytes)](std::byte* out) {
            std::memcpy(out, bytes.data(), bytes.size());
          }};
}

}  // namespace

absl::StatusOr<Packed> PackGemmPanelsPicked(const Request& request) {
  QUENCH_RETURN_IF_ERROR(request.CheckSource(2, 2, DataType::kI8));
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"lanes", "vectors", "run", "most"}));
  QUENCH_ASSIGN_OR_RETURN(const int64_t size, GemmPanelsBytes(request, nullptr));
  std::vector<int16_t> weights(static_cast<size_t>(size));
  GemmPanelsBytes(request, [&](size_t from, size_t to) {
    weights[to] = static_cast<int16_t>(request.source().IntAt(static_cast<int64_t>(from)));
  }).IgnoreError();
  PickedPanels panels;
  panels.lanes = request.Param("lanes");
  panels.split = SplitIntoPanels(CeilDiv(request.dim(1), panels.lanes), request.Param("vectors"));
  panels.run = request.Param("run");
  panels.most = request.Param("most");
  panels.rest = request.dim(0) % kUnit;
  return Picked(panels, weights);
}

absl::StatusOr<Packed> PackConvPanelsPicked(const Request& request) {
  const DataType type = request.source().dtype();
  QUENCH_RETURN_IF_ERROR(
      request.CheckSource(3, 4, type == DataType::kU8 ? DataType::kU8 : DataType::kI8));
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"run", "most"}));
  QUENCH_ASSIGN_OR_RETURN(const int64_t size, ConvPanels(request, kUnit, nullptr));
  std::vector<int16_t> weights(static_cast<size_t>(size));
  const auto centre = [&,
                       zero = request.Param("zero")]<typename Byte>(std::span<const Byte> source) {
    ConvPanels(request, kUnit, [&](size_t from, size_t to) {
      weights[to] = static_cast<int16_t>(source[from] - zero);
    }).IgnoreError();
  };
  type == DataType::kU8 ? centre(request.source().as<uint8_t>()) : centre(request.bytes());
  PickedPanels panels;
  panels.groups = request.Param("groups") / request.Param("merged");
  panels.lanes = request.Param("lanes");
  const int64_t channels = request.dim(0) / panels.groups;
  panels.split = SplitIntoPanels(CeilDiv(channels, panels.lanes), request.Param("vectors"));
  const int64_t words =
      size / (CeilDiv(channels, panels.lanes) * panels.groups * panels.lanes * kUnit);
  panels.run = request.Param("run");
  panels.rows = words / panels.run;
  panels.most = request.Param("most");
  return Picked(panels, weights);
}

}  // namespace quench::codegen
