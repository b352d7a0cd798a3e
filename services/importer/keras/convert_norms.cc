// Layers that normalize.
#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/status.h"
#include "services/importer/keras/converters.h"

namespace quench::importer::keras_layers {
namespace {

// A weight, or as many times `value` where the layer has none.
ValueId WeightOr(KerasNode& n, const char* role, int64_t size, float value) {
  const ValueId weight = n.Weight(role);
  if (weight != kNone) return weight;
  return n.c.AddConstant(
      Tensor::Of(DataType::kF32, {size}, std::vector<float>(static_cast<size_t>(size), value)));
}

// The order of axes that brings `axis` to 1, and the one that brings it back.
std::vector<int64_t> AxisFirst(int rank, int64_t axis) {
  std::vector<int64_t> perm = {0, axis};
  for (int64_t i = 1; i < rank; ++i) {
    if (i != axis) perm.push_back(i);
  }
  return perm;
}

std::vector<int64_t> Inverse(const std::vector<int64_t>& perm) {
  std::vector<int64_t> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i)
    inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return inverse;
}

// A weight over `axes`, with a size of 1 in each other axis.
ValueId Spread(KerasNode& n, ValueId weight, int rank, const std::vector<int64_t>& axes) {
  if (weight == kNone) return kNone;
  std::vector<int64_t> shape(static_cast<size_t>(rank), 1);
  for (const int64_t axis : axes)
    shape[static_cast<size_t>(axis)] = n.Size(n.in(0), static_cast<int>(axis));
  return n.Reshape(weight, shape);
}

absl::Status RequireSizes(const KerasNode& n, const std::vector<int64_t>& axes) {
  for (const int64_t axis : axes) {
    if (n.Size(n.in(0), static_cast<int>(axis)) <= 0)
      return n.c.Unsupported(fmt::format("the size of axis {} is known only at run time", axis));
  }
  return absl::OkStatus();
}

bool AreLast(const std::vector<int64_t>& axes, int rank) {
  return axes.back() == rank - 1 &&
         axes.back() - axes.front() + 1 == static_cast<int64_t>(axes.size());
}

}  // namespace

absl::Status BatchNorm(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  const ValueId x = n.Float(n.in(0));
  const int rank = c.Rank(x);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.Axes("axis", rank, -1));
  if (axes.size() != 1 || axes[0] == 0)
    return c.Unsupported(fmt::format("its axis is [{}]", fmt::join(axes, ", ")));
  const int64_t channels =
      n.WeightDims("moving_mean").empty() ? -1 : n.WeightDims("moving_mean")[0];
  const int64_t size = n.Size(x, static_cast<int>(axes[0]));
  for (const char* role : {"gamma", "beta", "moving_mean", "moving_variance"}) {
    if (n.Weight(role) != kNone)
      QUENCH_RETURN_IF_ERROR(n.RequireDims(role, {size < 0 ? channels : size}));
  }
  const std::vector<int64_t> perm = AxisFirst(rank, axes[0]);
  const ValueId y = n.Emit(
      "BatchNormalization",
      {n.Transpose(x, perm), WeightOr(n, "gamma", channels, 1), WeightOr(n, "beta", channels, 0),
       n.Weight("moving_mean"), n.Weight("moving_variance")},
      {{"epsilon", n.Number("epsilon", 1e-3)}});
  return n.Finish(n.Transpose(y, Inverse(perm)));
}

absl::Status LayerNorm(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  const ValueId x = n.in(0);
  const int rank = c.Rank(x);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.Axes("axis", rank, -1));
  QUENCH_RETURN_IF_ERROR(RequireSizes(n, axes));
  std::vector<int64_t> dims;
  for (const int64_t axis : axes) dims.push_back(n.Size(x, static_cast<int>(axis)));
  for (const char* role : {"gamma", "beta"}) {
    if (n.Weight(role) != kNone) QUENCH_RETURN_IF_ERROR(n.RequireDims(role, dims));
  }
  const double epsilon = n.Number("epsilon", 1e-3);
  const bool scale_alone = n.Flag("rms_scaling");
  if (AreLast(axes, rank) && !scale_alone && axes.size() == 1) {
    std::vector<ValueId> inputs = {x, WeightOr(n, "gamma", dims[0], 1)};
    if (n.Weight("beta") != kNone) inputs.push_back(n.Weight("beta"));
    return n.Finish(
        n.Emit("LayerNormalization", inputs, {{"axis", axes[0]}, {"epsilon", epsilon}}));
  }
  const ValueId centred = n.Emit("Sub", {x, n.Reduce("ReduceMean", x, axes, true)});
  const ValueId variance = n.Reduce("ReduceMean", n.Emit("Mul", {centred, centred}), axes, true);
  const ValueId deviation = n.Emit("Sqrt", {n.Binary("Add", variance, epsilon)});
  ValueId y = n.Emit("Div", {scale_alone ? x : centred, deviation});
  if (n.Weight("gamma") != kNone) y = n.Emit("Mul", {y, Spread(n, n.Weight("gamma"), rank, axes)});
  if (n.Weight("beta") != kNone) y = n.Emit("Add", {y, Spread(n, n.Weight("beta"), rank, axes)});
  return n.Finish(y);
}

absl::Status GroupNorm(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  const ValueId x = n.in(0);
  const int rank = c.Rank(x);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.Axes("axis", rank, -1));
  if (axes.size() != 1 || axes[0] == 0)
    return c.Unsupported(fmt::format("its axis is [{}]", fmt::join(axes, ", ")));
  QUENCH_RETURN_IF_ERROR(RequireSizes(n, axes));
  const int64_t channels = n.Size(x, static_cast<int>(axes[0]));
  const int64_t groups = n.Int("groups", 32) == -1 ? channels : n.Int("groups", 32);
  if (groups < 1 || channels % groups != 0)
    return c.Error(fmt::format("has {} channels in {} groups", channels, groups));
  const std::vector<int64_t> perm = AxisFirst(rank, axes[0]);
  const ValueId y = n.Emit(
      "GroupNormalization",
      {n.Transpose(x, perm), WeightOr(n, "gamma", channels, 1), WeightOr(n, "beta", channels, 0)},
      {{"num_groups", groups}, {"epsilon", n.Number("epsilon", 1e-3)}});
  return n.Finish(n.Transpose(y, Inverse(perm)));
}

absl::Status RmsNorm(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  const ValueId x = n.in(0);
  const int rank = c.Rank(x);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.Axes("axis", rank, -1));
  QUENCH_RETURN_IF_ERROR(RequireSizes(n, axes));
  const ValueId mean = n.Reduce("ReduceMean", n.Emit("Mul", {x, x}), axes, true);
  const ValueId y =
      n.Emit("Div", {x, n.Emit("Sqrt", {n.Binary("Add", mean, n.Number("epsilon", 1e-6))})});
  return n.Finish(n.Emit("Mul", {y, Spread(n, n.Weight("scale"), rank, axes)}));
}

absl::Status UnitNorm(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  const ValueId x = n.in(0);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.Axes("axis", c.Rank(x), -1));
  const ValueId sum = n.Reduce("ReduceSum", n.Emit("Mul", {x, x}), axes, true);
  return n.Finish(n.Emit("Div", {x, n.Emit("Sqrt", {n.Emit("Max", {sum, n.Scalar(sum, 1e-12)})})}));
}

}  // namespace quench::importer::keras_layers
