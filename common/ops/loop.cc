#include "common/ops/bodies.h"
#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

// Whether the body's condition output can never end the loop: it hands on its condition input or is
// constant true.
bool NeverStops(const Graph& body) {
  ValueId id = body.outputs[0];
  for (;;) {
    if (id == body.inputs[1]) return true;
    const Value& value = body.value(id);
    if (value.constant != nullptr)
      return value.constant->tensor.size() == 1 && value.constant->tensor.IntAt(0) != 0;
    if (value.producer == quench::kNone) return false;
    const Node& producer = body.node(value.producer);
    if (producer.op != "Identity" && producer.op != "Cast") return false;
    id = producer.inputs[0];
  }
}

// Number of iterations when that is known before a run.
std::optional<Dim> TripCount(const InferContext& ctx, const Graph& body) {
  const auto limit = ctx.elements(0);
  if (!limit || limit->size() != 1 || !NeverStops(body)) return std::nullopt;
  if (ctx.has_input(1)) {
    const auto condition = ctx.ints(1);
    if (!condition || condition->size() != 1) return std::nullopt;
    if (condition->front() == 0) return Dim(0);
  }
  const Dim count = limit->front();
  return ctx.symbols().BoundsOf(count).min >= 0 ? count : ctx.symbols().Max(count, 0);
}

absl::Status InferLoop(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, TypeSet({DataType::kI64})));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, kBoolType));
  const GraphPtr body = ctx.node().Body("body");
  const auto carried = static_cast<size_t>(CarriedCount(ctx.node()));
  const auto count = static_cast<size_t>(ctx.num_outputs());
  if (body->outputs.size() != count + 1 || count < carried) {
    return ctx.Error(
        fmt::format("has {} outputs for {} carried values, its body gives {} (the condition first)",
                    count, carried, body->outputs.size()));
  }
  for (size_t i = 0; i < carried; ++i)
    ctx.SetOutput(static_cast<int>(i), body->value(body->inputs[i + 2]).type);
  if (count == carried) return absl::OkStatus();
  std::optional<Dim> upper;
  if (const auto limit = ctx.elements(0); limit && limit->size() == 1) upper = limit->front();
  const std::optional<Dim> known = TripCount(ctx, *body);
  const Dim trips = known ? *known : ctx.RuntimeDim(0, upper);
  for (size_t i = carried; i < count; ++i) {
    Type type = body->value(body->outputs[i + 1]).type;
    type.dims.insert(type.dims.begin(), trips);
    ctx.SetOutput(static_cast<int>(i), std::move(type));
  }
  return absl::OkStatus();
}

}  // namespace

const OpDef& LoopOp() {
  static const OpDef op = {
      .name = "Loop",
      .summary = "a body repeated up to a count or while a condition holds",
      .kind = OpKind::kControl,
      .min_inputs = 0,
      .max_inputs = -1,
      .max_outputs = -1,
      .attributes = {{"body", AttributeSpec::kGraph, true}, {"q.captures", AttributeSpec::kInt}},
      .infer = InferLoop};
  return op;
}

}  // namespace quench::ops
