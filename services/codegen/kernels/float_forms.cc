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

std::optional<MatrixForm> MatricesOf(const KernelRequest& request, DataType x, DataType w) {
  const MatrixUnit& unit = request.target.matrices;
  if (x != w) return std::nullopt;
  if (x == DataType::kBF16 && !unit.bfloats.empty()) return MatrixForm(MatrixProducts::kBfloats);
  if (x == DataType::kF16 && !unit.halves.empty()) return MatrixForm(MatrixProducts::kHalves);
  return std::nullopt;
}

}  // namespace quench::codegen
