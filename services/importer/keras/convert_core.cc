// Products, activations and what passes its input on.
#include <algorithm>

#include "common/base/status.h"
#include "services/importer/keras/converters.h"

namespace quench::importer::keras_layers {

// Converts layers that do something only while training.
absl::Status Pass(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  return n.Finish(n.in(0));
}

absl::Status ActivationLayer(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  QUENCH_ASSIGN_OR_RETURN(const ValueId y, n.Activate(n.in(0)));
  return n.Finish(y);
}

absl::Status EluLayer(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  return n.Finish(n.Emit("Elu", {n.in(0)}, {{"alpha", n.Number("alpha", 1)}}));
}

absl::Status LeakyRelu(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  const double alpha = n.Number("negative_slope", n.Number("alpha", 0.3));
  return n.Finish(n.Emit("LeakyRelu", {n.in(0)}, {{"alpha", alpha}}));
}

absl::Status ThresholdedRelu(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  return n.Finish(n.Emit("ThresholdedRelu", {n.in(0)}, {{"alpha", n.Number("theta", 1)}}));
}

absl::Status PRelu(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  return n.Finish(n.Emit("PRelu", {n.in(0), n.Weight("alpha")}));
}

absl::Status ReluLayer(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  const double slope = n.Number("negative_slope", 0), threshold = n.Number("threshold", 0);
  const ValueId x = n.in(0);
  const bool bounded = n.Has("max_value");
  const double most = n.Number("max_value", 0);
  ValueId y = kNone;
  if (threshold == 0 && slope == 0) {
    y = bounded ? n.Emit("Clip", {x, n.Scalar(x, 0), n.Scalar(x, most)}) : n.Emit("Relu", {x});
    return n.Finish(y);
  }
  // x where it reaches the threshold, slope * (x - threshold) below; then no more than the maximum.
  const ValueId below = n.Binary("Mul", n.Binary("Sub", x, threshold), slope);
  y = n.Emit("Where", {n.Binary("GreaterOrEqual", x, threshold), x, below});
  if (bounded) y = n.Emit("Min", {y, n.Scalar(y, most)});
  return n.Finish(y);
}

absl::Status SoftmaxLayer(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.Axes("axis", c.Rank(n.in(0)), -1));
  if (axes.size() == 1) return n.Finish(n.Emit("Softmax", {n.in(0)}, {{"axis", axes[0]}}));
  // Over several axes: exp(x - logsumexp(x)).
  const ValueId sum = n.Reduce("ReduceLogSumExp", n.in(0), axes, true);
  return n.Finish(n.Emit("Exp", {n.Emit("Sub", {n.in(0), sum})}));
}

absl::Status Dense(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  const int rank = c.Rank(n.in(0));
  if (rank < 1) return c.Error("its input has no axis");
  const int64_t width = n.Size(n.in(0), rank - 1);
  QUENCH_RETURN_IF_ERROR(n.RequireDims("kernel", {width, n.Int("units", -1)}));
  const ValueId kernel = n.Weight("kernel"), bias = n.Weight("bias");
  if (bias != kNone) QUENCH_RETURN_IF_ERROR(n.RequireDims("bias", {n.Int("units", -1)}));
  const ValueId x = n.Float(n.in(0));
  ValueId y = kNone;
  if (rank == 2) {
    std::vector<ValueId> inputs = {x, kernel};
    if (bias != kNone) inputs.push_back(bias);
    y = n.Emit("Gemm", inputs);
  } else {
    y = n.Emit("MatMul", {x, kernel});
    if (bias != kNone) y = n.Emit("Add", {y, bias});
  }
  QUENCH_ASSIGN_OR_RETURN(y, n.Activate(y));
  return n.Finish(y);
}

absl::Status EinsumDense(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  std::string equation = n.Text("equation");
  std::erase(equation, ' ');
  ValueId y = n.Emit("Einsum", {n.Float(n.in(0)), n.Weight("kernel")}, {{"equation", equation}});
  if (n.Weight("bias") != kNone) y = n.Emit("Add", {y, n.Weight("bias")});
  QUENCH_ASSIGN_OR_RETURN(y, n.Activate(y));
  return n.Finish(y);
}

// With `mask_zero` a second output: where the index is not 0.
absl::Status Embedding(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  ValueId index = n.in(0);
  if (!IsInteger(c.type(index).dtype)) index = n.Cast(index, DataType::kI32);
  const ValueId y = n.Emit("Gather", {n.Weight("embeddings"), index}, {{"axis", int64_t{0}}});
  if (c.num_outputs() < 2) return n.Finish(y);
  const ValueId mask = c.IsUsed(1) ? n.Emit("Not", {n.Binary("Equal", n.in(0), 0)}) : kNone;
  return c.FinalValues({y, mask});
}

// Steps whose numbers all are the mask's become zeros; the second output: which do not.
absl::Status Masking(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  const ValueId x = n.in(0);
  const int64_t last = c.Rank(x) - 1;
  const ValueId differs = n.Emit("Not", {n.Binary("Equal", x, n.Number("mask_value", 0))});
  const ValueId any = n.Reduce("ReduceMax", n.Cast(differs, DataType::kI32), {last}, false);
  const ValueId mask = n.Binary("Greater", any, 0);
  const ValueId y = n.Emit("Mul", {x, n.Unsqueeze(n.Cast(mask, c.type(x).dtype), {last})});
  return c.FinalValues({y, mask});
}

}  // namespace quench::importer::keras_layers
