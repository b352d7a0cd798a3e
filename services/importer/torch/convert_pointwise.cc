// One number in, one number out: arithmetic, comparisons, functions of real numbers.
#include <cmath>
#include <numbers>

#include "common/base/status.h"
#include "services/importer/graph/formulas.h"
#include "services/importer/torch/converters.h"

namespace quench::importer::torch_ops {
namespace {

// The type that `self` is computed in: true division and functions of real numbers make floats of
// integers.
DataType FloatOf(DataType dtype) { return IsFloat(dtype) ? dtype : DataType::kF32; }

}  // namespace

absl::Status Unary(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  const std::string op = n.Canonical();
  const bool rounds = op == "Floor" || op == "Ceil" || op == "Round";
  if (rounds && !IsFloat(n.TypeOf(x))) return n.Finish(n.Emit("Identity", {x}));
  return n.Finish(n.Emit(op.c_str(), {x}));
}

absl::Status Sign(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self"), sign = n.Emit("Sign", {x});
  if (!IsFloat(n.TypeOf(x))) return n.Finish(sign);
  // PyTorch's sign of NaN is 0.
  const ValueId zero = c.AddConstant(Tensor::Zeros(n.TypeOf(x), {}));
  return n.Finish(n.Emit("Where", {n.Emit("IsNaN", {x}), zero, sign}));
}

absl::Status UnaryFloat(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Emit(n.Canonical().c_str(), {n.Float(n.In("self"))}));
}

absl::Status Pass(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Emit("Identity", {n.In("self")}));
}

absl::Status Dropout(Converter& c) {
  AtenNode n(c);
  return c.FinalValues({n.Emit("Identity", {n.In("input")}), kNone});
}

absl::Status Arithmetic(Converter& c) {
  AtenNode n(c);
  DataType dtype = n.Common("self", "other");
  std::string op = n.Canonical();
  if (dtype == DataType::kBool && op != "Sub") op = op == "Mul" ? "And" : "Or";
  ValueId a = n.Operand("self", dtype), b = n.Operand("other", dtype);
  if (n.Is("rsub")) std::swap(a, b);
  if (n.Has("alpha") && dtype != DataType::kBool) {
    if (n.In("alpha") != kNone) {
      b = n.Emit("Mul", {b, n.Operand("alpha", dtype)});
    } else {
      b = n.Times(b, n.Number("alpha", 1));
    }
  }
  return n.Finish(n.Emit(op.c_str(), {a, b}));
}

ValueId FloorQuotient(AtenNode& n, ValueId a, ValueId b, DataType dtype) {
  if (IsFloat(dtype)) return n.Emit("Floor", {n.Emit("Div", {a, b})});
  const ValueId rest = n.Emit("Mod", {a, b}, {{"fmod", int64_t{0}}});
  return n.Emit("Div", {n.Emit("Sub", {a, rest}), b});
}

static ValueId Truncated(AtenNode& n, ValueId x) {
  const ValueId up = n.Emit("Ceil", {x}), down = n.Emit("Floor", {x});
  return n.Emit("Where", {n.Emit("Less", {x, n.Scalar(x, 0)}), up, down});
}

absl::Status Divide(Converter& c) {
  AtenNode n(c);
  const std::string mode = n.Text("rounding_mode");
  DataType dtype = n.Common("self", "other");
  if (mode.empty()) dtype = FloatOf(dtype);
  const ValueId a = n.Operand("self", dtype), b = n.Operand("other", dtype);
  if (mode == "floor") return n.Finish(FloorQuotient(n, a, b, dtype));
  const ValueId y = n.Emit("Div", {a, b});  // of integers towards zero
  return n.Finish(mode == "trunc" && IsFloat(dtype) ? Truncated(n, y) : y);
}

absl::Status FloorDivide(Converter& c) {
  AtenNode n(c);
  const DataType dtype = n.Common("self", "other");
  return n.Finish(FloorQuotient(n, n.Operand("self", dtype), n.Operand("other", dtype), dtype));
}

absl::Status Remainder(Converter& c) {
  AtenNode n(c);
  const DataType dtype = n.Common("self", "other");
  const ValueId a = n.Operand("self", dtype), b = n.Operand("other", dtype);
  if (n.Is("fmod")) return n.Finish(n.Emit("Mod", {a, b}, {{"fmod", int64_t{1}}}));
  if (!IsFloat(dtype)) return n.Finish(n.Emit("Mod", {a, b}, {{"fmod", int64_t{0}}}));
  return n.Finish(n.Emit("Sub", {a, n.Emit("Mul", {FloorQuotient(n, a, b, dtype), b})}));
}

absl::Status Power(Converter& c) {
  AtenNode n(c);
  const DataType dtype = n.Common("self", "exponent");
  const ValueId x = n.Operand("self", dtype);
  const bool constant = n.In("exponent") == kNone;
  const double exponent = n.Number("exponent");
  if (constant && exponent == 2) return n.Finish(n.Emit("Mul", {x, x}));
  if (constant && exponent == 1) return n.Finish(n.Emit("Identity", {x}));
  if (constant && exponent == 0.5) return n.Finish(n.Emit("Sqrt", {x}));
  if (constant && exponent == -0.5) return n.Finish(n.Emit("Reciprocal", {n.Emit("Sqrt", {x})}));
  if (constant && exponent == -1 && IsFloat(dtype)) return n.Finish(n.Emit("Reciprocal", {x}));
  return n.Finish(n.Emit("Pow", {x, n.Operand("exponent", dtype)}));
}

absl::Status Compare(Converter& c) {
  AtenNode n(c);
  DataType dtype = n.Common("self", "other");
  const std::string op = n.Canonical();
  const bool differs = n.Is("ne") || n.Is("not_equal");
  if (dtype == DataType::kBool && op != "Equal") dtype = DataType::kI32;
  const ValueId y = n.Emit(op.c_str(), {n.Operand("self", dtype), n.Operand("other", dtype)});
  return n.Finish(differs ? n.Emit("Not", {y}) : y);
}

absl::Status Logical(Converter& c) {
  AtenNode n(c);
  const DataType dtype = n.Common("self", "other");
  std::string op = n.Canonical();
  const bool bits = op.starts_with("Bitwise");
  if (dtype == DataType::kBool && bits) op = op.substr(7);
  if (dtype != DataType::kBool && !bits) op = "Bitwise" + op;
  return n.Finish(n.Emit(op.c_str(), {n.Operand("self", dtype), n.Operand("other", dtype)}));
}

absl::Status LogicalBool(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Emit(n.Canonical().c_str(), {n.Operand("self", DataType::kBool),
                                                 n.Operand("other", DataType::kBool)}));
}

absl::Status Not(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  return n.Finish(n.Emit(n.TypeOf(x) == DataType::kBool ? "Not" : "BitwiseNot", {x}));
}

absl::Status LogicalNot(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Emit("Not", {n.Cast(n.In("self"), DataType::kBool)}));
}

absl::Status MinMax(Converter& c) {
  AtenNode n(c);
  const DataType dtype = n.Common("self", "other");
  return n.Finish(
      n.Emit(n.Canonical().c_str(), {n.Operand("self", dtype), n.Operand("other", dtype)}));
}

absl::Status AddProduct(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  ValueId product = n.Emit(n.Canonical().c_str(), {n.In("tensor1"), n.In("tensor2")});
  product = n.Times(product, n.Number("value", 1));
  return n.Finish(n.Emit("Add", {x, product}));
}

ValueId AngleOf(AtenNode& n, ValueId y, ValueId x) {
  const ValueId zero = n.Scalar(y, 0);
  // A quotient of 0 / 0 would be no number: both are 0, or x is not.
  const ValueId x_is_zero = n.Emit("Equal", {x, zero});
  const ValueId safe = n.Emit("Where", {x_is_zero, n.Scalar(y, 1), x});
  const ValueId angle = n.Emit("Atan", {n.Emit("Div", {y, safe})});
  const ValueId up = n.Emit("Less", {y, zero});
  const ValueId turn =
      n.Emit("Where", {up, n.Scalar(y, -std::numbers::pi), n.Scalar(y, std::numbers::pi)});
  const ValueId left =
      n.Emit("Where", {n.Emit("Less", {x, zero}), n.Emit("Add", {angle, turn}), angle});
  const ValueId axis = n.Emit("Mul", {n.Emit("Sign", {y}), n.Scalar(y, std::numbers::pi / 2)});
  return n.Emit("Where", {x_is_zero, axis, left});
}

absl::Status Atan2(Converter& c) {
  AtenNode n(c);
  const DataType dtype = FloatOf(n.Common("self", "other"));
  return n.Finish(AngleOf(n, n.Operand("self", dtype), n.Operand("other", dtype)));
}

absl::Status Clamp(Converter& c) {
  AtenNode n(c);
  ValueId x = n.In("self");
  // A float bound makes floats of integers.
  DataType dtype = n.TypeOf(x);
  for (const char* bound : {"min", "max"}) {
    if (!n.Has(bound)) continue;
    const DataType both = n.Common("self", bound);
    if (IsFloat(both)) dtype = FloatOf(dtype);
  }
  x = n.Cast(x, dtype);
  const auto scalar = [&](const char* name) {
    return n.In(name) == kNone || n.Rank(n.In(name)) == 0;
  };
  if (scalar("min") && scalar("max")) {
    return n.Finish(n.Emit("Clip", {x, n.Has("min") ? n.Operand("min", dtype) : kNone,
                                    n.Has("max") ? n.Operand("max", dtype) : kNone}));
  }
  if (n.Has("min")) x = n.Emit("Max", {x, n.Operand("min", dtype)});
  if (n.Has("max")) x = n.Emit("Min", {x, n.Operand("max", dtype)});
  return n.Finish(x);
}

absl::Status LogBase(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.Float(n.In("self"));
  const double base = n.Is("log2") ? std::numbers::ln2 : std::numbers::ln10;
  return n.Finish(n.Binary("Mul", n.Emit("Log", {x}), 1 / base));
}

absl::Status Log1p(Converter& c) {
  AtenNode n(c);
  return n.Finish(Log1pOf(c, n.Float(n.In("self"))));
}

absl::Status Expm1(Converter& c) {
  AtenNode n(c);
  return n.Finish(Expm1Of(c, n.Float(n.In("self"))));
}

absl::Status Logit(Converter& c) {
  AtenNode n(c);
  ValueId x = n.Float(n.In("self"));
  if (n.Has("eps")) {
    const double eps = n.Number("eps");
    x = n.Emit("Clip", {x, n.Scalar(x, eps), n.Scalar(x, 1 - eps)});
  }
  return n.Finish(n.Emit("Log", {n.Emit("Div", {x, n.Emit("Sub", {n.Scalar(x, 1), x})})}));
}

absl::Status IsFinite(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.Float(n.In("self"));
  return n.Finish(n.Emit("Not", {n.Emit("Or", {n.Emit("IsNaN", {x}), n.Emit("IsInf", {x})})}));
}

// Whether a number is infinite with one sign.
absl::Status IsInfinite(Converter& c) {
  AtenNode n(c);
  const bool positive = n.Is("isposinf");
  return n.Finish(
      n.Emit("IsInf", {n.Float(n.In("self"))},
             {{"detect_positive", int64_t{positive}}, {"detect_negative", int64_t{!positive}}}));
}

// To decimals: of 10^d-fold numbers, or with d < 0 of their 10^-d-th parts.
absl::Status RoundTo(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  const int64_t decimals = n.Int("decimals");
  if (!IsFloat(n.TypeOf(x)) && decimals >= 0) return n.Finish(n.Emit("Identity", {x}));
  if (!IsFloat(n.TypeOf(x))) return c.Unsupported("integers and decimals below 0");
  if (decimals == 0) return n.Finish(n.Emit("Round", {x}));
  const double power = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  const char* there = decimals > 0 ? "Mul" : "Div";
  const char* back = decimals > 0 ? "Div" : "Mul";
  return n.Finish(n.Binary(back, n.Emit("Round", {n.Binary(there, x, power)}), power));
}

absl::Status Rsqrt(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Emit("Reciprocal", {n.Emit("Sqrt", {n.Float(n.In("self"))})}));
}

absl::Status SquareOf(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Emit("Mul", {n.In("self"), n.In("self")}));
}

absl::Status Trunc(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  return n.Finish(IsFloat(n.TypeOf(x)) ? Truncated(n, x) : n.Emit("Identity", {x}));
}

absl::Status To(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, n.Dtype("dtype", n.TypeOf(x)));
  return n.Finish(dtype == n.TypeOf(x) ? n.Emit("Identity", {x}) : n.Cast(x, dtype));
}

absl::Status TypeAs(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  const DataType dtype = n.TypeOf(n.In("other"));
  return n.Finish(dtype == n.TypeOf(x) ? n.Emit("Identity", {x}) : n.Cast(x, dtype));
}

absl::Status WhereOf(Converter& c) {
  AtenNode n(c);
  const DataType dtype = n.Common("self", "other");
  return n.Finish(n.Emit("Where", {n.Cast(n.In("condition"), DataType::kBool),
                                   n.Operand("self", dtype), n.Operand("other", dtype)}));
}

absl::Status MaskedFill(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  return n.Finish(
      n.Emit("Where", {n.Cast(n.In("mask"), DataType::kBool), n.Operand("value", n.TypeOf(x)), x}));
}

}  // namespace quench::importer::torch_ops
