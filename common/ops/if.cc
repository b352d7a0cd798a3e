#include "common/ops/bodies.h"
#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

// Index of the runtime size of axis `axis` of output `output`: where the two branches differ.
int IfSizeIndex(int output, int axis) { return 64 * output + axis; }

absl::StatusOr<Type> MergeBranches(InferContext& ctx, int output, const Type& then,
                                   const Type& otherwise) {
  if (then == otherwise) return then;
  if (then.kind != otherwise.kind || then.dtype != otherwise.dtype) {
    return ctx.Error(fmt::format("output {} is {} in one branch and {} in the other", output,
                                 DataTypeName(then.dtype), DataTypeName(otherwise.dtype)));
  }
  if (then.kind != ValueKind::kTensor || then.rank() != otherwise.rank()) {
    return ctx.UnsupportedError(
        fmt::format("output {} has rank {} in one branch and {} in the other, and only a run can "
                    "tell which is taken; fix the sizes that the condition depends on",
                    output, then.rank(), otherwise.rank()));
  }
  Type merged = then;
  for (int axis = 0; axis < then.rank(); ++axis) {
    const auto at = static_cast<size_t>(axis);
    if (then.dims[at] == otherwise.dims[at]) continue;
    merged.dims[at] = ctx.RuntimeDim(IfSizeIndex(output, axis),
                                     ctx.symbols().Max(then.dims[at], otherwise.dims[at]));
  }
  return merged;
}

absl::Status InferIf(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kBoolType));
  const GraphPtr then = ctx.node().Body("then_branch");
  const GraphPtr otherwise = ctx.node().Body("else_branch");
  const auto count = static_cast<size_t>(ctx.num_outputs());
  if (then->outputs.size() != count || otherwise->outputs.size() != count) {
    return ctx.Error(fmt::format("has {} outputs, its branches have {} and {}", count,
                                 then->outputs.size(), otherwise->outputs.size()));
  }
  const auto condition = ctx.ints(0);
  for (size_t i = 0; i < count; ++i) {
    const Type& a = then->value(then->outputs[i]).type;
    const Type& c = otherwise->value(otherwise->outputs[i]).type;
    const bool known = condition && condition->size() == 1;
    if (known || !FailureOf(*then).empty() || !FailureOf(*otherwise).empty()) {
      const bool first = known ? condition->front() != 0 : FailureOf(*then).empty();
      ctx.SetOutput(static_cast<int>(i), first ? a : c);
      continue;
    }
    QUENCH_ASSIGN_OR_RETURN(Type merged, MergeBranches(ctx, static_cast<int>(i), a, c));
    ctx.SetOutput(static_cast<int>(i), std::move(merged));
  }
  return absl::OkStatus();
}

}  // namespace

const OpDef& IfOp() {
  static const OpDef op = {.name = "If",
                           .summary = "one of two bodies, by a condition",
                           .kind = OpKind::kControl,
                           .min_inputs = 1,
                           .max_inputs = -1,
                           .max_outputs = -1,
                           .attributes = {{"then_branch", AttributeSpec::kGraph, true},
                                          {"else_branch", AttributeSpec::kGraph, true}},
                           .infer = InferIf};
  return op;
}

}  // namespace quench::ops
