#include "services/codegen/kernels/operand_pairs.h"

namespace quench::codegen {

std::optional<DataType> PairsOf(const KernelRequest& request, DataType x, DataType w) {
  if (x != w) return std::nullopt;
  const bool bfloats = x == DataType::kBF16 && !request.target.add_products_bf16.empty();
  const bool halves =
      x == DataType::kF16 && request.target.sums_halves && request.options.half_sums;
  return bfloats || halves ? std::optional(x) : std::nullopt;
}

}  // namespace quench::codegen
