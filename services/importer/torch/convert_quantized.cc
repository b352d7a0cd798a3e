// Quantized tensors: to the arithmetic they are real numbers, between a QuantizeLinear and a DequantizeLinear that the
// passes for integers find.
#include <algorithm>

#include "common/base/status.h"
#include "services/importer/torch/converters.h"

namespace quench::importer::torch_ops {
namespace {

absl::StatusOr<DataType> IntegerFor(AtenNode& n) {
  // PT2E says a range: one of 7 bits lies in a type of 8.
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, n.Dtype("dtype", DataType::kI8));
  if (dtype != DataType::kI8 && dtype != DataType::kU8 && dtype != DataType::kI16 &&
      dtype != DataType::kU16 && dtype != DataType::kI32)
    return n.c.Unsupported(fmt::format("numbers quantized to {}", DataTypeName(dtype)));
  return dtype;
}

ValueId NumbersOf(AtenNode& n, const char* name, DataType dtype) {
  if (n.In(name) != kNone) return n.Cast(n.In(name), dtype);
  const std::vector<double> numbers = n.Numbers(name);
  if (numbers.size() == 1) return n.c.Scalar(dtype, numbers[0]);
  const std::vector<float> values(numbers.begin(), numbers.end());
  return n.Cast(
      n.c.AddConstant(Tensor::Of(DataType::kF32, {static_cast<int64_t>(values.size())}, values)),
      dtype);
}

}  // namespace

absl::Status DecomposedQuantize(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("input");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "input"));
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, IntegerFor(n));
  const bool channels = n.Has("scales"), backwards = c.node().op.starts_with("dequantize");
  int64_t axis = 0;
  if (channels) {
    QUENCH_ASSIGN_OR_RETURN(axis, n.Axis("axis", n.Rank(x), 0));
  }
  const ValueId scale = NumbersOf(n, channels ? "scales" : "scale", DataType::kF32);
  const bool has_zero = n.Has(channels ? "zero_points" : "zero_point");
  const ValueId zero =
      has_zero ? NumbersOf(n, channels ? "zero_points" : "zero_point", dtype) : kNone;
  if (backwards) {
    return n.Finish(n.Emit("DequantizeLinear", {n.Cast(x, dtype), scale, zero}, {{"axis", axis}}));
  }
  ValueId y =
      n.Emit("QuantizeLinear", {x, scale, zero == kNone ? n.Cast(c.Scalar(dtype, 0), dtype) : zero},
             {{"axis", axis}});
  // A range that is smaller than the type's.
  const int64_t least = n.Int("quant_min"), most = n.Int("quant_max");
  const int bits = DataTypeBits(dtype);
  const int64_t low = IsSigned(dtype) ? -(int64_t{1} << (bits - 1)) : 0;
  const int64_t high = IsSigned(dtype) ? (int64_t{1} << (bits - 1)) - 1 : (int64_t{1} << bits) - 1;
  if (least > low || most < high)
    y = n.Emit("Clip", {y, c.Scalar(dtype, static_cast<double>(least)),
                        c.Scalar(dtype, static_cast<double>(most))});
  return n.Finish(y);
}

// A weight as integers and scales.
absl::Status Dequantized(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  const DataType dtype = n.TypeOf(x);
  return n.Finish(
      n.Emit("DequantizeLinear",
             {x, NumbersOf(n, "scale", DataType::kF32), NumbersOf(n, "zero_point", dtype)},
             {{"axis", n.Int("axis", 0)}}));
}

absl::Status FakeQuantize(Converter& c) {
  AtenNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, IntegerFor(n));
  const ValueId scale = NumbersOf(n, "scale", DataType::kF32),
                zero = NumbersOf(n, "zero_point", dtype);
  const ValueId y = n.Emit("QuantizeLinear", {n.In("self"), scale, zero});
  return n.Finish(n.Emit("DequantizeLinear", {y, scale, zero}));
}

// Inputs are quantized with the range that they have in this run: of 8 bits, or of 7 with `reduce_range`.
absl::Status LinearDynamic(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("input");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "input"));
  const double steps = n.Flag("reduce_range") ? 127 : 255;
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < n.Rank(x); ++i) axes.push_back(i);
  const ValueId zero = n.Scalar(x, 0);
  const ValueId low = n.Emit("Min", {n.Reduce("ReduceMin", x, axes, false), zero});
  const ValueId high = n.Emit("Max", {n.Reduce("ReduceMax", x, axes, false), zero});
  const ValueId width = n.Binary("Div", n.Emit("Sub", {high, low}), steps);
  // A constant input has no width.
  const ValueId scale =
      n.Emit("Where", {n.Emit("Greater", {width, zero}), width, n.Scalar(x, 0.1)});
  const ValueId offset = n.Emit("Round", {n.Emit("Div", {n.Emit("Neg", {low}), scale})});
  const ValueId zero_point = n.Emit("Clip", {offset, zero, n.Scalar(x, steps)});
  const ValueId counted = n.Emit("Add", {n.Emit("Round", {n.Emit("Div", {x, scale})}), zero_point});
  const ValueId kept = n.Emit("Clip", {counted, zero, n.Scalar(x, steps)});
  const ValueId real = n.Emit("Mul", {n.Emit("Sub", {kept, zero_point}), scale});
  ValueId y = LinearOf(n, real, n.In("weight"), n.In("bias"));
  if (n.Flag("relu")) y = n.Emit("Relu", {y});
  return n.Finish(y);
}

}  // namespace quench::importer::torch_ops
