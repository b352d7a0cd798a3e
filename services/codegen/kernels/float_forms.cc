#include "services/codegen/kernels/float_forms.h"

namespace quench::codegen {

FloatForm FloatsOf(const KernelRequest& request, DataType w) {
  return FloatForm(w, request.target.multiply_by_lane);
}

AnyForm PairsOrFloats(const KernelRequest& request, DataType x, DataType w) {
  const bool bfloats = x == DataType::kBF16 && !request.target.add_products_bf16.empty();
  const bool halves =
      x == DataType::kF16 && request.target.sums_halves && request.options.half_sums;
  if (x == w && (bfloats || halves)) return PairForm(x);
  return FloatsOf(request, w);
}

}  // namespace quench::codegen
