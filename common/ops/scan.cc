#include "common/ops/bodies.h"
#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

int64_t EntryOr(const std::vector<int64_t>& list, size_t i, int64_t fallback) {
  return i < list.size() ? list[i] : fallback;
}

// Size of the scanned axes, which all inputs must share.
absl::StatusOr<Dim> Length(const InferContext& ctx, size_t carried, size_t scans) {
  const std::vector<int64_t> axes = ctx.node().Ints("scan_input_axes");
  std::optional<Dim> length;
  for (size_t i = 0; i < scans; ++i) {
    const int input = static_cast<int>(carried + i);
    if (!ctx.has_input(input)) return ctx.Error(fmt::format("input {} is omitted", input));
    QUENCH_ASSIGN_OR_RETURN(const int axis, ctx.Axis(EntryOr(axes, i, 0), ctx.input(input).rank()));
    const Dim size = ctx.input(input).dims[static_cast<size_t>(axis)];
    if (length)
      QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, *length, size, "lengths of the scanned inputs"));
    if (!length || size.is_static()) length = size;
  }
  return *length;
}

absl::Status CheckDirections(const InferContext& ctx, const std::string& attribute) {
  for (const int64_t direction : ctx.node().Ints(attribute)) {
    if (direction != 0 && direction != 1)
      return ctx.Error(fmt::format("{} has {}, directions are 0 and 1", attribute, direction));
  }
  return absl::OkStatus();
}

absl::Status InferScan(InferContext& ctx) {
  const GraphPtr body = ctx.node().Body("body");
  const auto carried = static_cast<size_t>(CarriedCount(ctx.node()));
  const auto scans = static_cast<size_t>(ctx.node().Int("num_scan_inputs", 0));
  const auto count = static_cast<size_t>(ctx.num_outputs());
  QUENCH_RETURN_IF_ERROR(CheckDirections(ctx, "scan_input_directions"));
  QUENCH_RETURN_IF_ERROR(CheckDirections(ctx, "scan_output_directions"));
  if (body->outputs.size() != count || count < carried) {
    return ctx.Error(fmt::format("has {} outputs for {} states, its body gives {}", count, carried,
                                 body->outputs.size()));
  }
  QUENCH_ASSIGN_OR_RETURN(const Dim length, Length(ctx, carried, scans));
  for (size_t i = 0; i < carried; ++i)
    ctx.SetOutput(static_cast<int>(i), body->value(body->inputs[i]).type);
  const std::vector<int64_t> axes = ctx.node().Ints("scan_output_axes");
  for (size_t i = carried; i < count; ++i) {
    Type type = body->value(body->outputs[i]).type;
    QUENCH_ASSIGN_OR_RETURN(const int axis,
                            ctx.Axis(EntryOr(axes, i - carried, 0), type.rank() + 1));
    type.dims.insert(type.dims.begin() + axis, length);
    ctx.SetOutput(static_cast<int>(i), std::move(type));
  }
  return absl::OkStatus();
}

}  // namespace

const OpDef& ScanOp() {
  static const OpDef op = {.name = "Scan",
                           .summary = "a body over the slices of tensors, with states handed on",
                           .kind = OpKind::kControl,
                           .min_inputs = 1,
                           .max_inputs = -1,
                           .max_outputs = -1,
                           .attributes = {{"body", AttributeSpec::kGraph, true},
                                          {"num_scan_inputs", AttributeSpec::kInt, true},
                                          {"scan_input_axes", AttributeSpec::kInts},
                                          {"scan_input_directions", AttributeSpec::kInts},
                                          {"scan_output_axes", AttributeSpec::kInts},
                                          {"scan_output_directions", AttributeSpec::kInts},
                                          {"q.captures", AttributeSpec::kInt}},
                           .infer = InferScan};
  return op;
}

}  // namespace quench::ops
