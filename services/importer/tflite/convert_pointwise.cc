// Element by element: arithmetic, comparisons, functions.
#include <algorithm>

#include "common/base/status.h"
#include "services/importer/tflite/converters.h"

namespace quench::importer::tflite_ops {
namespace {

// The operator of the catalogue that does what the row's operator does.
const char* CanonicalOf(const Converter& c) {
  for (const TfliteOp& row : AllTfliteOps()) {
    if (row.domain == c.node().domain && row.name == c.node().op) return row.canonical.data();
  }
  return "";
}

bool IsFloatValue(const TfliteNode& n, ValueId id) { return IsFloat(n.c.type(id).dtype); }

}  // namespace

absl::Status Unary(Converter& c) {
  TfliteNode n(c);
  return n.Finish(n.Emit(CanonicalOf(c), {n.Real(0)}));
}

absl::Status Arithmetic(Converter& c) {
  TfliteNode n(c);
  return n.Finish(n.Activate(n.Emit(CanonicalOf(c), {n.Real(0), n.Real(1)})));
}

absl::Status AddN(Converter& c) {
  TfliteNode n(c);
  ValueId sum = n.Real(0);
  for (int i = 1; i < static_cast<int>(c.inputs().size()); ++i)
    sum = n.Emit("Add", {sum, n.Real(i)});
  return n.Finish(sum);
}

absl::Status RawBinary(Converter& c) {
  TfliteNode n(c);
  return n.FinishRaw(n.Emit(CanonicalOf(c), {n.Raw(0), n.Raw(1)}));
}

// Arithmetic shift, which keeps the sign: of a negative number the bits' complement is shifted.
absl::Status RightShift(Converter& c) {
  TfliteNode n(c);
  const ValueId x = n.Raw(0);
  const DataType dtype = c.type(x).dtype;
  if (!IsInteger(dtype)) return c.Error("shifts no integers");
  const ValueId zero = c.Scalar(dtype, 0);
  const ValueId most = c.Scalar(dtype, DataTypeBits(dtype) - 1);
  const DataType bits = DataTypeBits(dtype) == 8    ? DataType::kU8
                        : DataTypeBits(dtype) == 16 ? DataType::kU16
                        : DataTypeBits(dtype) == 32 ? DataType::kU32
                                                    : DataType::kU64;
  const ValueId count = n.Cast(n.Emit("Clip", {n.Raw(1), zero, most}), bits);
  const auto shifted = [&](ValueId value) {
    return n.Cast(
        n.Emit("BitShift", {n.Cast(value, bits), count}, {{"direction", std::string("RIGHT")}}),
        dtype);
  };
  if (bits == dtype) return n.FinishRaw(shifted(x));
  const ValueId negative = n.Emit("Less", {x, zero});
  const ValueId natural = n.Emit("Where", {negative, n.Emit("BitwiseNot", {x}), x});
  const ValueId moved = shifted(natural);
  return n.FinishRaw(n.Emit("Where", {negative, n.Emit("BitwiseNot", {moved}), moved}));
}

absl::Status Comparison(Converter& c) {
  TfliteNode n(c);
  const ValueId result = n.Emit(CanonicalOf(c), {n.Real(0), n.Real(1)});
  return n.FinishRaw(c.node().op == "NOT_EQUAL" ? n.Emit("Not", {result}) : result);
}

absl::Status Square(Converter& c) {
  TfliteNode n(c);
  const ValueId x = n.Real(0);
  return n.Finish(n.Emit("Mul", {x, x}));
}

absl::Status SquaredDifference(Converter& c) {
  TfliteNode n(c);
  const ValueId difference = n.Emit("Sub", {n.Real(0), n.Real(1)});
  return n.Finish(n.Emit("Mul", {difference, difference}));
}

absl::Status Rsqrt(Converter& c) {
  TfliteNode n(c);
  return n.Finish(n.Emit("Reciprocal", {n.Emit("Sqrt", {n.Real(0)})}));
}

absl::Status ClipTo(Converter& c) {
  TfliteNode n(c);
  const ValueId x = n.Real(0);
  const DataType dtype = c.type(x).dtype;
  const double low = c.node().op == "RELU_N1_TO_1" ? -1 : 0;
  const double high = c.node().op == "RELU6" ? 6 : 1;
  return n.Finish(n.Emit("Clip", {x, c.Scalar(dtype, low), c.Scalar(dtype, high)}));
}

absl::Status LeakyRelu(Converter& c) {
  TfliteNode n(c);
  return n.Finish(n.Emit("LeakyRelu", {n.Real(0)}, {{"alpha", n.Float("alpha")}}));
}

absl::Status Prelu(Converter& c) {
  TfliteNode n(c);
  return n.Finish(n.Emit("PRelu", {n.Real(0), n.Real(1)}));
}

absl::Status Gelu(Converter& c) {
  TfliteNode n(c);
  return n.Finish(n.Emit("Gelu", {n.Real(0)},
                         {{"approximate", std::string(n.Flag("approximate") ? "tanh" : "none")}}));
}

// Division that rounds towards minus infinity.
absl::Status FloorDiv(Converter& c) {
  TfliteNode n(c);
  const ValueId x = n.Real(0), y = n.Real(1);
  if (IsFloatValue(n, x)) return n.Finish(n.Emit("Floor", {n.Emit("Div", {x, y})}));
  const ValueId rest = n.Emit("Mod", {x, y});
  return n.Finish(n.Emit("Div", {n.Emit("Sub", {x, rest}), y}));
}

// The rest of FloorDiv: it has the sign of the divisor.
absl::Status FloorMod(Converter& c) {
  TfliteNode n(c);
  const ValueId x = n.Real(0), y = n.Real(1);
  if (!IsFloatValue(n, x)) return n.Finish(n.Emit("Mod", {x, y}));
  const ValueId rest = n.Emit("Mod", {x, y}, {{"fmod", int64_t{1}}});
  const ValueId zero = c.Scalar(c.type(x).dtype, 0);
  const ValueId signs_differ =
      n.Emit("Xor", {n.Emit("Less", {rest, zero}), n.Emit("Less", {y, zero})});
  const ValueId has_rest = n.Emit("Not", {n.Emit("Equal", {rest, zero})});
  const ValueId moves = n.Emit("And", {signs_differ, has_rest});
  return n.Finish(n.Emit("Where", {moves, n.Emit("Add", {rest, y}), rest}));
}

// atan2(y, x) by the quadrant of (x, y).
absl::Status Atan2(Converter& c) {
  TfliteNode n(c);
  const ValueId y = n.Real(0), x = n.Real(1);
  const DataType dtype = c.type(x).dtype;
  constexpr double kPi = 3.14159265358979323846;
  const auto number = [&](double value) { return c.Scalar(dtype, value); };
  const ValueId zero = number(0);
  const ValueId x_zero = n.Emit("Equal", {x, zero});
  const ValueId angle =
      n.Emit("Atan", {n.Emit("Div", {y, n.Emit("Where", {x_zero, number(1), x})})});
  const ValueId y_negative = n.Emit("Less", {y, zero});
  const ValueId turn = n.Emit("Where", {y_negative, number(-kPi), number(kPi)});
  const ValueId left =
      n.Emit("Where", {n.Emit("Less", {x, zero}), n.Emit("Add", {angle, turn}), angle});
  const ValueId y_zero = n.Emit("Equal", {y, zero});
  const ValueId upright = n.Emit(
      "Where", {y_zero, zero, n.Emit("Where", {y_negative, number(-kPi / 2), number(kPi / 2)})});
  return n.Finish(n.Emit("Where", {x_zero, upright, left}));
}

absl::Status Softmax(Converter& c) {
  TfliteNode n(c);
  ValueId x = n.Real(0);
  const double beta = n.Float("beta", 0);
  if (c.node().op == "SOFTMAX" && beta != 1 && beta != 0)
    x = n.Emit("Mul", {x, c.Scalar(c.type(x).dtype, beta)});
  return n.Finish(n.Emit(CanonicalOf(c), {x}, {{"axis", int64_t{-1}}}));
}

absl::Status L2Normalization(Converter& c) {
  TfliteNode n(c);
  const ValueId x = n.Real(0);
  const ValueId length = n.Emit("ReduceL2", {x, c.Ints({-1})}, {{"keepdims", int64_t{1}}});
  // Lengths below 1e-6 count as that.
  const ValueId bounded = n.Emit("Max", {length, c.Scalar(c.type(x).dtype, 1e-6)});
  return n.Finish(n.Activate(n.Emit("Div", {x, bounded})));
}

absl::Status LocalResponseNormalization(Converter& c) {
  TfliteNode n(c);
  const int64_t size = 2 * n.Int("radius") + 1;
  const ValueId result = n.Emit("LRN", {n.Real(0, ToChannelsFirst(2))},
                                {{"size", size},
                                 {"alpha", n.Float("alpha") * static_cast<double>(size)},
                                 {"beta", n.Float("beta")},
                                 {"bias", n.Float("bias")}});
  return n.Finish(result, ToChannelsLast(2));
}

absl::Status Cast(Converter& c) {
  TfliteNode n(c);
  DataType to = c.declared(0).dtype;
  if (n.Int("out_data_type", -1) >= 0) {
    const absl::StatusOr<DataType> asked =
        DataTypeOf(static_cast<tflite::TensorType>(n.Int("out_data_type")));
    if (asked.ok() && to == DataType::kUndefined) to = *asked;
  }
  if (to == DataType::kUndefined) return c.Error("does not say what it casts to");
  return n.FinishRaw(n.Emit("Cast", {n.Raw(0)}, {{"to", static_cast<int64_t>(to)}}));
}

// QUANTIZE, DEQUANTIZE, DENSIFY: what the types of input and output say.
absl::Status Pass(Converter& c) {
  TfliteNode n(c);
  return n.Finish(n.Real(0));
}

// Rounds to the steps of an integer type and back, with the zero point moved onto a step.
absl::Status FakeQuant(Converter& c) {
  TfliteNode n(c);
  const int64_t bits = n.Int("num_bits", 8);
  if (bits < 2 || bits > 16) return c.Unsupported(fmt::format("num_bits is {}", bits));
  const double low_step = n.Flag("narrow_range") ? 1 : 0;
  const double high_step = static_cast<double>((int64_t{1} << bits) - 1);
  const double low = n.Float("min"), high = n.Float("max");
  if (!(low <= 0 && high >= 0 && low < high))
    return c.Error(fmt::format("its range is {} to {}, it must contain 0", low, high));
  const auto scale = static_cast<float>((static_cast<float>(high) - static_cast<float>(low)) /
                                        (high_step - low_step));
  const double zero =
      std::clamp(std::round(low_step - low / static_cast<double>(scale)), low_step, high_step);
  const ValueId x = n.Real(0);
  const DataType dtype = c.type(x).dtype;
  const ValueId first = c.Scalar(dtype, (low_step - zero) * static_cast<double>(scale));
  const ValueId last = c.Scalar(dtype, (high_step - zero) * static_cast<double>(scale));
  const ValueId clipped = n.Emit("Clip", {x, first, last});
  const ValueId from_first = n.Emit("Sub", {clipped, first});
  const ValueId half = c.Scalar(dtype, 0.5), step = c.Scalar(dtype, static_cast<double>(scale));
  const ValueId steps = n.Emit("Floor", {n.Emit("Add", {n.Emit("Div", {from_first, step}), half})});
  return n.Finish(n.Emit("Add", {n.Emit("Mul", {steps, step}), first}));
}

absl::Status Select(Converter& c) {
  TfliteNode n(c);
  ValueId condition = n.Raw(0);
  // The old SELECT takes a condition for each entry of the first axis.
  if (c.node().op == "SELECT" && c.Rank(condition) == 1 && c.Rank(n.Raw(1)) > 1) {
    std::vector<int64_t> axes;
    for (int64_t i = 1; i < c.Rank(n.Raw(1)); ++i) axes.push_back(i);
    condition = n.Emit("Unsqueeze", {condition, c.Ints(axes)});
  }
  if (n.HasSameScale(1) && n.HasSameScale(2))
    return n.FinishRaw(n.Emit("Where", {condition, n.Raw(1), n.Raw(2)}));
  return n.Finish(n.Emit("Where", {condition, n.Real(1), n.Real(2)}));
}

absl::Status Bucketize(Converter& c) {
  TfliteNode n(c);
  const std::vector<double> given = c.node().Floats("boundaries");
  const std::vector<float> boundaries(given.begin(), given.end());
  const ValueId limits = c.AddConstant(
      Tensor::Of(DataType::kF32, {static_cast<int64_t>(boundaries.size())}, boundaries));
  const ValueId x = n.Emit("Unsqueeze", {n.Cast(n.Real(0), DataType::kF32), c.Ints({-1})});
  const ValueId reached = n.Cast(n.Emit("GreaterOrEqual", {x, limits}), DataType::kI32);
  return n.FinishRaw(n.Emit("ReduceSum", {reached, c.Ints({-1})}, {{"keepdims", int64_t{0}}}));
}

}  // namespace quench::importer::tflite_ops
