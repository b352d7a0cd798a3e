// A convolution's weights in floats, and in pairs of f16 or bf16.
#include "services/codegen/packs/conv_panels.h"

namespace quench::codegen {

absl::StatusOr<Packed> PackConvPanels(const Request& request) {
  QUENCH_RETURN_IF_ERROR(request.CheckSource(3, 4, request.FloatType()));
  QUENCH_ASSIGN_OR_RETURN(const int64_t size, ConvPanels(request, 1, nullptr));
  return Moved(request, size, [request](const auto& put) {
    ConvPanels(request, 1, [&](size_t from, size_t to) { put(to, from); }).IgnoreError();
  });
}

absl::StatusOr<Packed> PackConvPanelsPairs(const Request& request) {
  QUENCH_RETURN_IF_ERROR(request.CheckSource(3, 4, request.HalfType()));
  QUENCH_ASSIGN_OR_RETURN(const int64_t size, ConvPanels(request, 2, nullptr));
  return Moved(request, size, [request](const auto& put) {
    ConvPanels(request, 2, [&](size_t from, size_t to) { put(to, from); }).IgnoreError();
  });
}

}  // namespace quench::codegen
