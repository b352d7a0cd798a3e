// A convolution's weights, transformed for Winograd's minimal filtering.
#include "services/codegen/kernels/winograd_panels.h"
#include "services/codegen/packs/request.h"

namespace quench::codegen {

absl::StatusOr<Packed> PackWinograd(const Request& request) {
  QUENCH_RETURN_IF_ERROR(request.CheckSource(4, 4));
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"outputs", "lanes", "vectors"}));
  const WinogradPanels panels{
      {static_cast<int>(request.Param("outputs")), static_cast<int>(request.dim(3))},
      request.dim(0),
      request.dim(1),
      request.Param("lanes"),
      request.Param("vectors")};
  if (!panels.size.valid() || request.dim(2) != request.dim(3)) {
    return Internal("pack `{}`: no tiles of {} outputs and {}x{} taps", request.transform(),
                    panels.size.outputs, request.dim(2), request.dim(3));
  }
  return Floats(panels.elements(), [=, weights = request.floats()](std::span<float> out) {
    PackWinogradPanels(panels, weights, out);
  });
}

}  // namespace quench::codegen
