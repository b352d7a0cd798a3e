#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

absl::Status InferBatchNormalization(InferContext& c) {
  if (c.node().Int("training_mode", 0) != 0) {
    return c.UnsupportedError("training_mode is 1, only inference is supported");
  }
  if (c.num_outputs() > 1) return c.UnsupportedError("outputs for training are not supported");
  for (int i = 0; i < 5; ++i) {
    QUENCH_RETURN_IF_ERROR(RequireType(c, i, kFloatTypes));
    QUENCH_RETURN_IF_ERROR(RequireRank(c, i, 1, i == 0 ? -1 : 1));
  }
  const Dim channels = c.input(0).rank() > 1 ? c.input(0).dims[1] : Dim(1);
  for (int i = 1; i < 5; ++i) {
    QUENCH_RETURN_IF_ERROR(RequireEqual(c, c.input(i).dims[0], channels,
                                        fmt::format("size of input {} and channels", i)));
  }
  c.SetOutput(0, c.input(0));
  return absl::OkStatus();
}

// x may be narrower than its statistics: all is computed in the wider of the two.
absl::StatusOr<E> BatchNormalizationElement(const OpContext& c, loops::Builder&,
                                            std::span<const E> x) {
  DataType type = x[0].type();
  for (const E operand : x) {
    if (operand.type() == DataType::kF64) type = DataType::kF64;
  }
  std::vector<E> v;
  for (const E operand : x) v.push_back(operand.type() == type ? operand : Cast(operand, type));
  const E deviation = Unary(UnaryOp::kSqrt, v[4] + c.node().Float("epsilon", 1e-5));
  return (v[0] - v[3]) * (v[1] / deviation) + v[2];
}

// The parameters lie along the channels; a vector has one channel.
std::vector<int> Axes(const OpContext& c, int operand) {
  std::vector<int> axes;
  if (operand > 0) return {c.input(0).rank() > 1 ? 1 : 0};
  for (int i = 0; i < c.input(0).rank(); ++i) axes.push_back(i);
  return axes;
}

}  // namespace

const OpDef& BatchNormalizationOp() {
  static const OpDef op = {
      .name = "BatchNormalization",
      .summary = "scale * (x - mean) / sqrt(var + epsilon) + bias per channel",
      .kind = OpKind::kPointwise,
      .min_inputs = 5,
      .max_inputs = 5,
      .attributes = {{"epsilon", AttributeSpec::kFloat},
                     {"momentum", AttributeSpec::kFloat},
                     {"training_mode", AttributeSpec::kInt}},
      .quant = QuantRole::kCompute,
      .work = WorkKind::kNormalisation,
      .infer = InferBatchNormalization,
      .scalar = BatchNormalizationElement,
      .operand_axes = Axes,
  };
  return op;
}

}  // namespace quench::ops
