// Normalization, softmax, reductions, orders.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/status.h"
#include "services/importer/torch/converters.h"

namespace quench::importer::torch_ops {
namespace {

ValueId Filled1(AtenNode& n, DataType dtype, int64_t size, float value) {
  const std::vector<float> values(static_cast<size_t>(size), value);
  return n.c.AddConstant(Tensor::Floats(dtype, {size}, values));
}

}  // namespace

absl::Status BatchNorm(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("input"), mean = n.In("running_mean"), variance = n.In("running_var");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "input"));
  if (n.Flag("training") || mean == kNone || variance == kNone)
    return c.Unsupported("statistics of the batch: call `eval()` before exporting");
  const int64_t channels = n.SizeAt(mean, 0);
  if (channels < 1) return c.Unsupported("a number of channels that is known only at run time");
  const DataType dtype = n.TypeOf(mean);
  const ValueId weight = n.Has("weight") ? n.In("weight") : Filled1(n, dtype, channels, 1);
  const ValueId bias = n.Has("bias") ? n.In("bias") : Filled1(n, dtype, channels, 0);
  const ValueId y = n.Emit("BatchNormalization", {x, weight, bias, mean, variance},
                           {{"epsilon", n.Number("eps", 1e-5)}});
  return c.FinalValues({y, kNone, kNone});
}

absl::Status LayerNorm(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("input");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "input"));
  const std::optional<std::vector<int64_t>> shape = n.Ints("normalized_shape");
  if (!shape || shape->empty()) return c.Unsupported("normalized_shape is known only at run time");
  const auto axis = -static_cast<int64_t>(shape->size());
  ValueId weight = n.In("weight");
  if (weight == kNone)
    weight = n.c.AddConstant(Tensor::Floats(
        n.TypeOf(x), *shape,
        std::vector<float>(static_cast<size_t>(std::accumulate(shape->begin(), shape->end(),
                                                               int64_t{1}, std::multiplies<>())),
                           1.0f)));
  const ValueId y = n.Emit("LayerNormalization", {x, weight, n.In("bias")},
                           {{"axis", axis}, {"epsilon", n.Number("eps", 1e-5)}});
  return c.FinalValues({y, kNone, kNone});
}

absl::Status RmsNorm(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("input");
  const std::optional<std::vector<int64_t>> shape = n.Ints("normalized_shape");
  if (!shape || shape->size() != 1) return c.Unsupported("normalized_shape of several axes");
  ValueId weight = n.In("weight");
  if (weight == kNone) weight = Filled1(n, n.TypeOf(x), (*shape)[0], 1);
  return n.Finish(n.Emit("RMSNormalization", {x, weight},
                         {{"axis", int64_t{-1}}, {"epsilon", n.Number("eps", 1.1920929e-07)}}));
}

absl::Status GroupNorm(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("input");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "input"));
  const int64_t channels = n.SizeAt(x, 1),
                groups = n.Int(n.Has("group") ? "group" : "num_groups", 1);
  if (channels < 1) return c.Unsupported("a number of channels that is known only at run time");
  const DataType dtype = n.TypeOf(x);
  const ValueId weight = n.Has("weight") ? n.In("weight") : Filled1(n, dtype, channels, 1);
  const ValueId bias = n.Has("bias") ? n.In("bias") : Filled1(n, dtype, channels, 0);
  const ValueId y = n.Emit("GroupNormalization", {x, weight, bias},
                           {{"num_groups", groups}, {"epsilon", n.Number("eps", 1e-5)}});
  return c.FinalValues({y, kNone, kNone});
}

absl::Status InstanceNorm(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("input");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "input"));
  if (!n.Flag("use_input_stats", true)) return BatchNorm(c);
  const int64_t channels = n.SizeAt(x, 1);
  if (channels < 1) return c.Unsupported("a number of channels that is known only at run time");
  const DataType dtype = n.TypeOf(x);
  const ValueId weight = n.Has("weight") ? n.In("weight") : Filled1(n, dtype, channels, 1);
  const ValueId bias = n.Has("bias") ? n.In("bias") : Filled1(n, dtype, channels, 0);
  return n.Finish(
      n.Emit("InstanceNormalization", {x, weight, bias}, {{"epsilon", n.Number("eps", 1e-5)}}));
}

absl::Status Softmax(Converter& c) {
  AtenNode n(c);
  ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, n.Dtype("dtype", n.TypeOf(x)));
  x = n.Float(n.Cast(x, dtype));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), -1));
  const bool log = c.node().op.find("log") != std::string::npos;
  return n.Finish(n.Emit(log ? "LogSoftmax" : "Softmax", {x}, {{"axis", axis}}));
}

// ---- Reductions ----

absl::Status Reduction(Converter& c) {
  AtenNode n(c);
  ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  const std::string op = n.Canonical();
  DataType fallback = n.TypeOf(x);
  const bool adds = op == "ReduceSum" || op == "ReduceProd";
  if (adds && !IsFloat(fallback)) fallback = DataType::kI64;
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, n.Dtype("dtype", fallback));
  x = n.Cast(x, dtype);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.Axes("dim", n.Rank(x)));
  if (axes.empty()) return n.Finish(n.Emit("Identity", {x}));
  return n.Finish(n.Reduce(op.c_str(), x, axes, n.Flag("keepdim")));
}

absl::Status Mean(Converter& c) {
  AtenNode n(c);
  ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, n.Dtype("dtype", n.TypeOf(x)));
  x = n.Float(n.Cast(x, dtype));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.Axes("dim", n.Rank(x)));
  if (axes.empty()) return n.Finish(n.Emit("Identity", {x}));
  return n.Finish(n.Reduce("ReduceMean", x, axes, n.Flag("keepdim")));
}

absl::Status AnyAll(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.Axes("dim", n.Rank(x)));
  const ValueId flags = n.Cast(x, DataType::kBool);
  if (axes.empty()) return n.Finish(n.Emit("Identity", {flags}));
  const ValueId y =
      n.Reduce(n.Canonical().c_str(), n.Cast(flags, DataType::kI32), axes, n.Flag("keepdim"));
  return n.Finish(n.Cast(y, DataType::kBool));
}

absl::Status Variance(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.Axes("dim", n.Rank(x)));
  const double correction = n.Has("correction")        ? n.Number("correction", 1)
                            : n.Flag("unbiased", true) ? 1
                                                       : 0;
  const bool keep = n.Flag("keepdim");
  const ValueId mean = n.Reduce("ReduceMean", x, axes, true);
  const ValueId off = n.Emit("Sub", {x, mean});
  const ValueId sum = n.Reduce("ReduceSum", n.Emit("Mul", {off, off}), axes, keep);
  const ValueId count = n.Emit("Gather", {n.ShapeOf(x), c.Ints(axes)}, {{"axis", int64_t{0}}});
  const ValueId all =
      n.Cast(n.Emit("ReduceProd", {count, c.Ints({0})}, {{"keepdims", int64_t{0}}}), n.TypeOf(x));
  const ValueId divisor = n.Emit("Max", {n.Binary("Sub", all, correction), n.Scalar(x, 0)});
  ValueId y = n.Emit("Div", {sum, divisor});
  if (c.node().op.starts_with("std")) y = n.Emit("Sqrt", {y});
  return c.FinalValues({y, c.num_outputs() > 1 ? (keep ? mean : n.Squeeze(mean, axes)) : kNone});
}

absl::Status VectorNorm(Converter& c) {
  AtenNode n(c);
  ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, n.Dtype("dtype", n.TypeOf(x)));
  x = n.Float(n.Cast(x, dtype));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.Axes("dim", n.Rank(x)));
  const double order = n.Number(n.Has("ord") ? "ord" : "p", 2);
  const bool keep = n.Flag("keepdim");
  if (order == 2) return n.Finish(n.Reduce("ReduceL2", x, axes, keep));
  if (order == 1) return n.Finish(n.Reduce("ReduceL1", x, axes, keep));
  const ValueId size = n.Emit("Abs", {x});
  if (std::isinf(order))
    return n.Finish(n.Reduce(order > 0 ? "ReduceMax" : "ReduceMin", size, axes, keep));
  if (order == 0) return c.Unsupported("a norm of order 0");
  const ValueId sum = n.Reduce("ReduceSum", n.Binary("Pow", size, order), axes, keep);
  return n.Finish(n.Binary("Pow", sum, 1 / order));
}

absl::Status Cumulative(Converter& c) {
  AtenNode n(c);
  ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype,
                          n.Dtype("dtype", IsFloat(n.TypeOf(x)) ? n.TypeOf(x) : DataType::kI64));
  x = n.Cast(x, dtype);
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), 0));
  return n.Finish(
      n.Emit(n.Canonical().c_str(), {x, c.Scalar(DataType::kI64, static_cast<double>(axis))}));
}

absl::Status CountNonZero(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.Axes("dim", n.Rank(x)));
  const ValueId flags = n.Cast(n.Cast(x, DataType::kBool), DataType::kI64);
  return n.Finish(axes.empty() ? flags : n.Reduce("ReduceSum", flags, axes, false));
}

// Sum and mean of what is a number.
absl::Status NanReduction(Converter& c) {
  AtenNode n(c);
  ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, n.Dtype("dtype", n.TypeOf(x)));
  if (!IsFloat(dtype)) return n.Is("nansum") ? Reduction(c) : Mean(c);
  x = n.Cast(x, dtype);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.Axes("dim", n.Rank(x)));
  const ValueId none = n.Emit("IsNaN", {x});
  const bool keep = n.Flag("keepdim");
  const auto sum = [&](ValueId id) {
    return axes.empty() ? id : n.Reduce("ReduceSum", id, axes, keep);
  };
  const ValueId total = sum(n.Emit("Where", {none, n.Scalar(x, 0), x}));
  if (n.Is("nansum")) return n.Finish(n.Emit("Identity", {total}));
  return n.Finish(n.Emit("Div", {total, sum(n.Cast(n.Emit("Not", {none}), dtype))}));
}

absl::Status AminMax(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.Axes("dim", n.Rank(x)));
  if (axes.empty()) return c.FinalValues({n.Emit("Identity", {x}), n.Emit("Identity", {x})});
  const bool keep = n.Flag("keepdim");
  return c.FinalValues(
      {n.Reduce("ReduceMin", x, axes, keep), n.Reduce("ReduceMax", x, axes, keep)});
}

// ---- Orders ----

absl::Status ArgMinMax(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  const std::string op = n.Canonical();
  if (!n.Has("dim")) {
    const ValueId flat = n.Reshape(x, {-1});
    return n.Finish(n.Emit(op.c_str(), {flat}, {{"axis", int64_t{0}}, {"keepdims", int64_t{0}}}));
  }
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), 0));
  return n.Finish(
      n.Emit(op.c_str(), {x}, {{"axis", axis}, {"keepdims", int64_t{n.Flag("keepdim")}}}));
}

absl::Status MinMaxOf(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), 0));
  const bool largest = c.node().op.starts_with("max");
  const bool keep = n.Flag("keepdim");
  return c.FinalValues(
      {n.Reduce(largest ? "ReduceMax" : "ReduceMin", x, {axis}, keep),
       n.Emit(largest ? "ArgMax" : "ArgMin", {x}, {{"axis", axis}, {"keepdims", int64_t{keep}}})});
}

absl::Status TopKOf(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), -1));
  return c.FinalValues(c.EmitMany(
      "TopK", {x, n.Size1("k", 1)}, 2,
      {{"axis", axis}, {"largest", int64_t{n.Flag("largest", true)}}, {"sorted", int64_t{1}}}));
}

static absl::StatusOr<std::vector<ValueId>> Sorted(AtenNode& n) {
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), -1));
  const ValueId size = n.Slice(n.ShapeOf(x), 0, axis, axis + 1);
  return n.c.EmitMany(
      "TopK", {x, size}, 2,
      {{"axis", axis}, {"largest", int64_t{n.Flag("descending")}}, {"sorted", int64_t{1}}});
}

absl::Status Sort(Converter& c) {
  AtenNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<ValueId> sorted, Sorted(n));
  return c.FinalValues(sorted);
}

// How many of the sorted numbers lie before each one; with `right`, not behind it.
static ValueId Insertion(AtenNode& n, const char* sorted, const char* values, ValueId order,
                         bool right) {
  const DataType common = n.Common(values, sorted);
  ValueId bounds = n.Operand(sorted, common);
  if (order != kNone) bounds = n.Emit("GatherElements", {bounds, order}, {{"axis", int64_t{-1}}});
  if (n.Rank(bounds) > 1) bounds = n.Unsqueeze(bounds, {n.Rank(bounds) - 1});
  const ValueId value = n.Operand(values, common);
  const ValueId x = n.Unsqueeze(value, {n.Rank(value)});
  // NaN is not before anything: it comes last.
  const ValueId behind = n.Emit(right ? "Greater" : "GreaterOrEqual", {bounds, x});
  const DataType counted = n.Flag("out_int32") ? DataType::kI32 : DataType::kI64;
  const ValueId before = n.Cast(n.Emit("Not", {behind}), counted);
  return n.Reduce("ReduceSum", before, {-1}, false);
}

absl::Status Bucketize(Converter& c) {
  AtenNode n(c);
  if (n.In("self") != kNone) QUENCH_RETURN_IF_ERROR(n.RequireRank(n.In("self"), "self"));
  return n.Finish(Insertion(n, "boundaries", "self", kNone, n.Flag("right")));
}

absl::Status SearchSorted(Converter& c) {
  AtenNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(n.In("sorted_sequence"), "sorted_sequence"));
  if (n.In("self") != kNone) QUENCH_RETURN_IF_ERROR(n.RequireRank(n.In("self"), "self"));
  const bool right = n.Flag("right") || n.Text("side") == "right";
  return n.Finish(Insertion(n, "sorted_sequence", "self", n.In("sorter"), right));
}

// The k-th of the sorted numbers; of a median the lower one of two in the middle.
absl::Status KthValue(Converter& c) {
  AtenNode n(c);
  ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  const bool whole = !n.Has("dim") && n.Is("median");
  if (whole) x = n.Reshape(x, {-1});
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), -1));
  const int64_t size = n.SizeAt(x, axis);
  const int64_t k = n.Is("median") ? (size + 1) / 2 : n.Int("k", 1);
  if (size < 1 || n.Rank(x) == 0) return c.Unsupported("a size that only a run knows, or none");
  if (k < 1 || k > size) return c.Error(fmt::format("k is {}, its axis has {}", k, size));
  const std::vector<ValueId> sorted =
      c.EmitMany("TopK", {x, c.Ints({k})}, 2,
                 {{"axis", axis}, {"largest", int64_t{0}}, {"sorted", int64_t{1}}});
  const auto last = [&](ValueId id) {
    const ValueId one = n.Slice(id, axis, k - 1, k);
    return n.Flag("keepdim") ? one : n.Squeeze(one, {axis});
  };
  ValueId y = last(sorted[0]);
  if (n.Is("median") && IsFloat(n.TypeOf(x))) {  // NaN is the median of whatever has one
    const ValueId flags = n.Cast(n.Emit("IsNaN", {x}), DataType::kI32);
    const ValueId any = n.Reduce("ReduceMax", flags, {axis}, n.Flag("keepdim"));
    y = n.Emit("Where", {n.Cast(any, DataType::kBool), n.Scalar(x, NAN), y});
  }
  return c.FinalValues({y, c.num_outputs() > 1 ? last(sorted[1]) : kNone});
}

absl::Status Argsort(Converter& c) {
  AtenNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<ValueId> sorted, Sorted(n));
  return n.Finish(sorted[1]);
}

}  // namespace quench::importer::torch_ops
