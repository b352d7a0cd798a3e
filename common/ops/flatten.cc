#include "common/base/status.h"
#include "common/ops/catalogue.h"
#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::Status InferFlatten(InferContext& ctx) {
  const Type& x = ctx.input(0);
  const int64_t raw = ctx.node().Int("axis", 1);
  if (raw < -x.rank() || raw > x.rank()) {  // one past the end is allowed here
    return ctx.Error(fmt::format("axis {} is out of range, the rank is {}", raw, x.rank()));
  }
  const auto axis = static_cast<size_t>(raw < 0 ? raw + x.rank() : raw);
  const std::span<const Dim> dims(x.dims);
  ctx.SetOutput(
      0, x.dtype,
      {ctx.symbols().Product(dims.first(axis)), ctx.symbols().Product(dims.subspan(axis))});
  return absl::OkStatus();
}

}  // namespace

const OpDef& FlattenOp() {
  static const OpDef op = {.name = "Flatten",
                           .summary = "folds the axes before and after one axis into two",
                           .kind = OpKind::kView,
                           .attributes = {{"axis", AttributeSpec::kInt}},
                           .quant = QuantRole::kPassThrough,
                           .infer = InferFlatten};
  return op;
}

}  // namespace quench::ops
