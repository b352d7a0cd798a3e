// A product's weights in bytes.
#include "services/codegen/packs/gemm_bytes.h"

namespace quench::codegen {

absl::StatusOr<Packed> PackGemmPanelsBytes(const Request& request) {
  QUENCH_RETURN_IF_ERROR(request.CheckSource(2, 2, DataType::kI8));
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"lanes", "vectors"}));
  QUENCH_ASSIGN_OR_RETURN(const int64_t size, GemmPanelsBytes(request, nullptr));
  return Filled(size, [request, source = request.bytes()](std::byte* out) {
    GemmPanelsBytes(request, [&](size_t from, size_t to) {
      out[to] = static_cast<std::byte>(source[from]);
    }).IgnoreError();
  });
}

}  // namespace quench::codegen
