// Element by element, and reductions of all elements.
#include <algorithm>
#include <cmath>

#include "common/base/status.h"
#include "services/importer/graph/formulas.h"
#include "services/importer/tensorflow/converters.h"

namespace quench::importer::tensorflow_ops {
namespace {

const char* CanonicalOf(const Converter& c) {
  return FindTensorflowRow(c.node().op)->canonical.data();
}

ValueId Like(TfNode& n, ValueId id, double value) { return n.c.Scalar(n.c.type(id).dtype, value); }

// A fake quantization with the range [low, high]: `narrow` leaves the lowest step out.
absl::Status FakeQuantAs(Converter& c, double low, double high) {
  return ConvertAsTflite(c, "FAKE_QUANT", {c.in(0)}, {{"min", low}, {"max", high}});
}

}  // namespace

absl::Status Unary(Converter& c) {
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 1));
  return c.Final(CanonicalOf(c), {c.in(0)});
}

absl::Status Binary(Converter& c) {
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 2));
  return c.Final(CanonicalOf(c), {c.in(0), c.in(1)});
}

absl::Status Pass(Converter& c) {
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 1));
  return c.Final("Identity", {c.in(0)});
}

absl::Status PassAll(Converter& c) { return c.FinalValues(c.inputs()); }

absl::Status IsFinite(Converter& c) {
  TfNode n(c);
  const ValueId odd = n.Emit("Or", {n.Emit("IsNaN", {c.in(0)}), n.Emit("IsInf", {c.in(0)})});
  return Finish(c, n.Emit("Not", {odd}));
}

absl::Status Log1p(Converter& c) {
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 1));
  return Finish(c, Log1pOf(c, c.in(0)));
}

absl::Status Expm1(Converter& c) {
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 1));
  return Finish(c, Expm1Of(c, c.in(0)));
}

absl::Status Erfc(Converter& c) {
  TfNode n(c);
  return Finish(c, n.Emit("Sub", {Like(n, c.in(0), 1), n.Emit("Erf", {c.in(0)})}));
}

absl::Status LeakyRelu(Converter& c) {
  return c.Final("LeakyRelu", {c.in(0)}, {{"alpha", c.node().Float("alpha", 0.2)}});
}

absl::Status ClipByValue(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 3));
  return Finish(c, n.Emit("Max", {n.Emit("Min", {c.in(0), c.in(2)}), c.in(1)}));
}

absl::Status LeftShift(Converter& c) {
  TfNode n(c);
  const DataType dtype = c.type(c.in(0)).dtype;
  if (!IsInteger(dtype)) return c.Error("shifts no integers");
  const DataType bits = DataTypeBits(dtype) == 8    ? DataType::kU8
                        : DataTypeBits(dtype) == 16 ? DataType::kU16
                        : DataTypeBits(dtype) == 32 ? DataType::kU32
                                                    : DataType::kU64;
  const ValueId shifted = n.Emit("BitShift", {n.Cast(c.in(0), bits), n.Cast(c.in(1), bits)},
                                 {{"direction", std::string("LEFT")}});
  return Finish(c, n.Cast(shifted, dtype));
}

// 0 where the second is 0, whatever the first is.
absl::Status DivNoNan(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 2));
  const ValueId y = c.in(1), zero = Like(n, y, 0);
  const ValueId none = n.Emit("Equal", {y, zero});
  const ValueId quotient = n.Emit("Div", {c.in(0), n.Emit("Where", {none, Like(n, y, 1), y})});
  return Finish(c, n.Emit("Where", {none, zero, quotient}));
}

absl::Status MulNoNan(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 2));
  const ValueId y = c.in(1), zero = Like(n, y, 0);
  return Finish(c,
                n.Emit("Where", {n.Emit("Equal", {y, zero}), zero, n.Emit("Mul", {c.in(0), y})}));
}

// x log y, x log(1 + y), x / y: 0 where x is 0.
absl::Status XTimes(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 2));
  const ValueId x = c.in(0), zero = Like(n, x, 0), one = Like(n, x, 1);
  const ValueId none = n.Emit("Equal", {x, zero});
  const bool quotient = c.node().op == "Xdivy";
  const ValueId y = n.Emit("Where", {none, one, c.in(1)});
  const auto log = [&] { return c.node().op == "Xlog1py" ? Log1pOf(c, y) : n.Emit("Log", {y}); };
  const ValueId result = quotient ? n.Emit("Div", {x, y}) : n.Emit("Mul", {x, log()});
  return Finish(c, n.Emit("Where", {none, zero, result}));
}

// Quotients rounded towards 0, and what they leave, which has the sign of the dividend.
absl::Status TruncateDiv(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 2));
  const ValueId quotient = n.Emit("Div", {c.in(0), c.in(1)});
  if (!IsFloat(c.type(c.in(0)).dtype)) return Finish(c, quotient);
  const ValueId size = n.Emit("Floor", {n.Emit("Abs", {quotient})});
  return Finish(c, n.Emit("Mul", {n.Emit("Sign", {quotient}), size}));
}

absl::Status TruncateMod(Converter& c) {
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 2));
  return c.Final("Mod", {c.in(0), c.in(1)}, {{"fmod", int64_t{1}}});
}

absl::Status ApproximateEqual(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 2));
  const ValueId distance = n.Emit("Abs", {n.Emit("Sub", {c.in(0), c.in(1)})});
  return Finish(c, n.Emit("Less", {distance, Like(n, distance, n.Float("tolerance", 1e-5))}));
}

absl::Status L2Loss(Converter& c) {
  TfNode n(c);
  const ValueId sum = n.Emit("ReduceSumSquare", {c.in(0)}, {{"keepdims", int64_t{0}}});
  return Finish(c, n.Emit("Mul", {sum, Like(n, c.in(0), 0.5)}));
}

absl::Status EuclideanNorm(Converter& c) {
  TfNode n(c);
  const ValueId axes = n.Emit("Reshape", {n.Sizes(1), c.Ints({-1})});
  return Finish(c, n.Emit("ReduceL2", {c.in(0), axes},
                          {{"keepdims", int64_t{n.Flag("keep_dims")}},
                           {"noop_with_empty_axes", int64_t{1}}}));
}

absl::Status LocalResponseNormalization(Converter& c) {
  if (c.Rank(c.in(0)) != 4) return c.Error("its input is not a batch of images");
  return ConvertAsTflite(c, "LOCAL_RESPONSE_NORMALIZATION", {c.in(0)},
                         {{"radius", c.node().Int("depth_radius", 5)},
                          {"bias", c.node().Float("bias", 1)},
                          {"alpha", c.node().Float("alpha", 1)},
                          {"beta", c.node().Float("beta", 0.5)}});
}

absl::Status Einsum(Converter& c) {
  std::string equation;
  for (const char each : c.node().String("equation", "")) {
    if (each != ' ') equation.push_back(each);
  }
  return c.Final("Einsum", c.inputs(), {{"equation", equation}});
}

// ---- Quantization that stays in floats ----

absl::Status FakeQuantVars(Converter& c) {
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 3));
  const Tensor* low = c.constant(c.in(1));
  const Tensor* high = c.constant(c.in(2));
  if (low == nullptr || high == nullptr || low->size() != 1 || high->size() != 1)
    return c.Unsupported("its range is known only at run time");
  return FakeQuantAs(c, low->FloatAt(0), high->FloatAt(0));
}

// A range for each entry of the last axis; ranges are constants, so steps are, too.
absl::Status FakeQuantChannels(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 3));
  const Tensor* low = c.constant(c.in(1));
  const Tensor* high = c.constant(c.in(2));
  if (low == nullptr || high == nullptr || low->size() != high->size())
    return c.Unsupported("its ranges are known only at run time");
  const int64_t bits = n.Int("num_bits", 8);
  if (bits < 2 || bits > 16) return c.Unsupported(fmt::format("num_bits is {}", bits));
  const double low_step = n.Flag("narrow_range") ? 1 : 0;
  const double high_step = static_cast<double>((int64_t{1} << bits) - 1);
  std::vector<float> first, last, step;
  for (int64_t i = 0; i < low->size(); ++i) {
    const double from = low->FloatAt(i), to = high->FloatAt(i);
    if (!(from <= 0 && to >= 0 && from < to))
      return c.Error(fmt::format("its range is {} to {}, it must contain 0", from, to));
    const auto scale = static_cast<float>((to - from) / (high_step - low_step));
    const double zero =
        std::clamp(std::round(low_step - from / static_cast<double>(scale)), low_step, high_step);
    first.push_back(static_cast<float>((low_step - zero)) * scale);
    last.push_back(static_cast<float>((high_step - zero)) * scale);
    step.push_back(scale);
  }
  const auto list = [&](const std::vector<float>& values) {
    return c.AddConstant(Tensor::Of(DataType::kF32, {static_cast<int64_t>(values.size())}, values));
  };
  const ValueId begin = list(first), size = list(step);
  const ValueId clipped = n.Emit("Min", {n.Emit("Max", {c.in(0), begin}), list(last)});
  const ValueId steps = n.Emit("Div", {n.Emit("Sub", {clipped, begin}), size});
  const ValueId whole = n.Emit("Floor", {n.Emit("Add", {steps, Like(n, steps, 0.5)})});
  return Finish(c, n.Emit("Add", {n.Emit("Mul", {whole, size}), begin}));
}

// Rounds to the steps of an integer type that a constant range is given, without moving its zero.
absl::Status QuantizeAndDequantize(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 3));
  const Tensor* low = c.constant(c.in(1));
  const Tensor* high = c.constant(c.in(2));
  if (!c.node().Int("range_given", 0) || n.Int("axis", -1) != -1 || low == nullptr ||
      high == nullptr || low->size() != 1 || high->size() != 1)
    return c.Unsupported("its range is none, or not one constant");
  int64_t bits = n.Int("num_bits", 8);
  if (c.node().op != "QuantizeAndDequantizeV2" && c.has(3)) {
    QUENCH_ASSIGN_OR_RETURN(bits, n.RequireInt(3, "the number of bits"));
  }
  if (bits < 2 || bits > 24) return c.Unsupported(fmt::format("num_bits is {}", bits));
  const bool is_signed = n.Int("signed_input", 1) != 0, narrow = n.Flag("narrow_range");
  const double levels = std::ldexp(1.0, static_cast<int>(bits - (is_signed ? 1 : 0)));
  const double last = levels - 1, first = is_signed ? -levels + (narrow ? 1 : 0) : 0;
  const double from = low->FloatAt(0), to = high->FloatAt(0);
  // The end that needs the larger steps decides.
  const double by_low = first * from > 0 ? first / from : HUGE_VAL;
  const double by_high = last * to > 0 ? last / to : HUGE_VAL;
  const double scale = std::min(by_low, by_high);
  if (!std::isfinite(scale)) return c.Error(fmt::format("its range is {} to {}", from, to));
  const ValueId x = c.in(0);
  const ValueId clipped = n.Emit("Clip", {x, Like(n, x, first / scale), Like(n, x, last / scale)});
  ValueId steps = n.Emit("Mul", {clipped, Like(n, x, scale)});
  if (c.node().String("round_mode", "HALF_TO_EVEN") == "HALF_UP")
    steps = n.Emit("Floor", {n.Emit("Add", {steps, Like(n, x, 0.5)})});
  else
    steps = n.Emit("Round", {steps});
  return Finish(c, n.Emit("Mul", {steps, Like(n, x, 1 / scale)}));
}

}  // namespace quench::importer::tensorflow_ops
