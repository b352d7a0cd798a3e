#include "common/ops/scatter_common.h"

namespace quench::ops {

absl::StatusOr<std::optional<BinaryOp>> ScatterReduction(const OpContext& ctx) {
  const std::string name = ctx.node().String("reduction", "none");
  if (name == "none") return std::optional<BinaryOp>();
  const bool boolean = ctx.input(0).dtype == DataType::kBool;
  if (name == "add") return std::optional(boolean ? BinaryOp::kOr : BinaryOp::kAdd);
  if (name == "mul") return std::optional(boolean ? BinaryOp::kAnd : BinaryOp::kMul);
  if (name == "min") return std::optional(boolean ? BinaryOp::kAnd : BinaryOp::kMin);
  if (name == "max") return std::optional(boolean ? BinaryOp::kOr : BinaryOp::kMax);
  return ctx.Error(
      fmt::format("reduction is `{}`, {} has none, add, mul, min and max", name, ctx.node().op));
}

void ScatterStore(Builder& b, B target, std::span<const E> at, std::optional<BinaryOp> reduction,
                  E update) {
  b.Store(target, at, reduction ? Binary(*reduction, target.At(at), update) : update);
}

}  // namespace quench::ops
