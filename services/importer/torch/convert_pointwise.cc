// One number in, one number out: arithmetic, comparisons, activations.
#include <cmath>
#include <numbers>

#include "common/base/status.h"
#include "services/importer/torch/converters.h"

namespace quench::importer::torch_ops {
namespace {

const TorchRow& RowOf(const AtenNode& n) {
  for (const TorchRow& row : AllTorchRows()) {
    if (row.domain == n.c.node().domain && row.name == n.c.node().op) return row;
  }
  QUENCH_CHECK(false);  // a converter runs for a row
}

bool Is(const AtenNode& n, std::string_view name) { return n.c.node().op.starts_with(name); }

// What `self` is computed in: true division and functions of real numbers make floats of integers.
DataType FloatOf(DataType dtype) { return IsFloat(dtype) ? dtype : DataType::kF32; }

ValueId Times(AtenNode& n, ValueId id, double factor) {
  return factor == 1 ? id : n.Binary("Mul", id, factor);
}

}  // namespace

absl::Status Unary(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  const std::string op(RowOf(n).canonical);
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
  return n.Finish(n.Emit(std::string(RowOf(n).canonical).c_str(), {n.Float(n.In("self"))}));
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
  std::string op(RowOf(n).canonical);
  if (dtype == DataType::kBool && op != "Sub") op = op == "Mul" ? "And" : "Or";
  ValueId a = n.Operand("self", dtype), b = n.Operand("other", dtype);
  if (Is(n, "rsub")) std::swap(a, b);
  if (n.Has("alpha") && dtype != DataType::kBool) {
    ValueId& scaled = Is(n, "rsub") ? b : b;
    if (n.In("alpha") != kNone) {
      scaled = n.Emit("Mul", {scaled, n.Operand("alpha", dtype)});
    } else {
      scaled = Times(n, scaled, n.Number("alpha", 1));
    }
  }
  return n.Finish(n.Emit(op.c_str(), {a, b}));
}

// Towards minus infinity, of integers too.
static ValueId FloorQuotient(AtenNode& n, ValueId a, ValueId b, DataType dtype) {
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
  if (Is(n, "fmod")) return n.Finish(n.Emit("Mod", {a, b}, {{"fmod", int64_t{1}}}));
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
  const std::string op(RowOf(n).canonical);
  if (dtype == DataType::kBool && op != "Equal") dtype = DataType::kI32;
  const ValueId y = n.Emit(op.c_str(), {n.Operand("self", dtype), n.Operand("other", dtype)});
  return n.Finish(Is(n, "ne") ? n.Emit("Not", {y}) : y);
}

absl::Status Logical(Converter& c) {
  AtenNode n(c);
  const DataType dtype = n.Common("self", "other");
  std::string op(RowOf(n).canonical);
  const bool bits = op.starts_with("Bitwise");
  if (dtype == DataType::kBool && bits) op = op.substr(7);
  if (dtype != DataType::kBool && !bits) op = "Bitwise" + op;
  return n.Finish(n.Emit(op.c_str(), {n.Operand("self", dtype), n.Operand("other", dtype)}));
}

absl::Status LogicalBool(Converter& c) {
  AtenNode n(c);
  return n.Finish(
      n.Emit(std::string(RowOf(n).canonical).c_str(),
             {n.Operand("self", DataType::kBool), n.Operand("other", DataType::kBool)}));
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
  return n.Finish(n.Emit(std::string(RowOf(n).canonical).c_str(),
                         {n.Operand("self", dtype), n.Operand("other", dtype)}));
}

absl::Status AddProduct(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  ValueId product =
      n.Emit(std::string(RowOf(n).canonical).c_str(), {n.In("tensor1"), n.In("tensor2")});
  product = Times(n, product, n.Number("value", 1));
  return n.Finish(n.Emit("Add", {x, product}));
}

absl::Status Atan2(Converter& c) {
  AtenNode n(c);
  const DataType dtype = FloatOf(n.Common("self", "other"));
  const ValueId y = n.Operand("self", dtype), x = n.Operand("other", dtype);
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
  return n.Finish(n.Emit("Where", {x_is_zero, axis, left}));
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

absl::Status HardTanh(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  const bool six = Is(n, "relu6");
  return n.Finish(n.Emit("Clip", {x, n.Scalar(x, n.Number("min_val", six ? 0 : -1)),
                                  n.Scalar(x, n.Number("max_val", six ? 6 : 1))}));
}

absl::Status HardSigmoidOf(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Emit("HardSigmoid", {n.In("self")}, {{"alpha", 1.0 / 6}, {"beta", 0.5}}));
}

absl::Status LeakyReluOf(Converter& c) {
  AtenNode n(c);
  return n.Finish(
      n.Emit("LeakyRelu", {n.In("self")}, {{"alpha", n.Number("negative_slope", 0.01)}}));
}

absl::Status Celu(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Emit("Celu", {n.In("self")}, {{"alpha", n.Number("alpha", 1)}}));
}

absl::Status EluOf(Converter& c) {
  AtenNode n(c);
  if (n.Number("scale", 1) != 1 || n.Number("input_scale", 1) != 1)
    return c.Unsupported("scale and input_scale must be 1");
  return n.Finish(n.Emit("Elu", {n.In("self")}, {{"alpha", n.Number("alpha", 1)}}));
}

absl::Status GeluOf(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Emit("Gelu", {n.In("self")}, {{"approximate", n.Text("approximate", "none")}}));
}

absl::Status Glu(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), -1));
  const std::vector<ValueId> halves =
      c.EmitMany("Split", {x}, 2, {{"axis", axis}, {"num_outputs", int64_t{2}}});
  return n.Finish(n.Emit("Mul", {halves[0], n.Emit("Sigmoid", {halves[1]})}));
}

absl::Status PReluOf(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  ValueId slope = n.In("weight");
  if (n.SizeAt(slope, 0) != 1 && n.Rank(x) > 2) {
    std::vector<int64_t> shape(static_cast<size_t>(n.Rank(x) - 1), 1);
    shape[0] = -1;
    slope = n.Reshape(slope, shape);
  }
  return n.Finish(n.Emit("PRelu", {x, slope}));
}

absl::Status SoftplusOf(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  const double beta = n.Number("beta", 1), threshold = n.Number("threshold", 20);
  const ValueId scaled = Times(n, x, beta);
  const ValueId y = Times(n, n.Emit("Softplus", {scaled}), 1 / beta);
  // Above the threshold the function is the identity; at 20 f32 cannot tell.
  if (threshold >= 20) return n.Finish(beta == 1 ? y : n.Emit("Identity", {y}));
  return n.Finish(n.Emit("Where", {n.Emit("Greater", {scaled, n.Scalar(x, threshold)}), x, y}));
}

absl::Status LogSigmoid(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Emit("Neg", {n.Emit("Softplus", {n.Emit("Neg", {n.In("self")})})}));
}

absl::Status LogBase(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.Float(n.In("self"));
  if (Is(n, "log1p")) return n.Finish(n.Emit("Log", {n.Binary("Add", x, 1)}));
  const double base = Is(n, "log2") ? std::numbers::ln2 : std::numbers::ln10;
  return n.Finish(n.Binary("Mul", n.Emit("Log", {x}), 1 / base));
}

absl::Status Expm1(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Binary("Sub", n.Emit("Exp", {n.Float(n.In("self"))}), 1));
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
