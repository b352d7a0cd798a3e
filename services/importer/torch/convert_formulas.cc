// Functions that several nodes make: of numbers, and distances of rows.
#include <cmath>
#include <limits>
#include <numbers>

#include "common/base/half.h"
#include "common/base/status.h"
#include "services/importer/graph/formulas.h"
#include "services/importer/torch/converters.h"

namespace quench::importer::torch_ops {
namespace {

// The two arguments in the type that arithmetic on them has, a float.
struct Pair {
  ValueId a = kNone, b = kNone;
};

Pair FloatPair(AtenNode& n, const char* a, const char* b) {
  const DataType common = n.Common(a, b);
  const DataType dtype = IsFloat(common) ? common : DataType::kF32;
  return {n.Operand(a, dtype), n.Operand(b, dtype)};
}

double LargestOf(DataType dtype) {
  if (dtype == DataType::kF64) return std::numeric_limits<double>::max();
  if (dtype == DataType::kF16) return 65504;
  if (dtype == DataType::kBF16) return Bfloat16ToFloat(0x7f7f);
  return std::numeric_limits<float>::max();
}

// The p-norm along an axis.
ValueId NormOf(AtenNode& n, ValueId x, double p, int64_t axis, bool keep) {
  if (p == 2) return n.Reduce("ReduceL2", x, {axis}, keep);
  if (p == 1) return n.Reduce("ReduceL1", x, {axis}, keep);
  const ValueId size = n.Emit("Abs", {x});
  if (std::isinf(p)) return n.Reduce(p > 0 ? "ReduceMax" : "ReduceMin", size, {axis}, keep);
  const ValueId sum = n.Reduce("ReduceSum", n.Binary("Pow", size, p), {axis}, keep);
  return n.Binary("Pow", sum, 1 / p);
}

}  // namespace

absl::Status PowerOfTwo(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.Float(n.In("self"));
  return n.Finish(n.Emit("Pow", {n.Scalar(x, 2), x}));
}

absl::Status Fraction(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  return n.Finish(n.Emit("Mod", {x, n.Scalar(x, 1)}, {{"fmod", int64_t{1}}}));
}

absl::Status Degrees(Converter& c) {
  AtenNode n(c);
  const double factor = n.Is("deg2rad") ? std::numbers::pi / 180 : 180 / std::numbers::pi;
  return n.Finish(n.Times(n.Float(n.In("self")), factor));
}

// From the nearer end, as PyTorch computes it.
absl::Status Lerp(Converter& c) {
  AtenNode n(c);
  const ValueId a = n.In("self"), b = n.In("end");
  const ValueId weight = n.Operand("weight", n.TypeOf(a));
  const ValueId whole = n.Emit("Sub", {b, a});
  const ValueId near = n.Emit("Add", {a, n.Emit("Mul", {weight, whole})});
  const ValueId rest = n.Emit("Sub", {n.Scalar(a, 1), weight});
  const ValueId far = n.Emit("Sub", {b, n.Emit("Mul", {rest, whole})});
  const ValueId is_near = n.Emit("Less", {n.Emit("Abs", {weight}), n.Scalar(a, 0.5)});
  return n.Finish(n.Emit("Where", {is_near, near, far}));
}

absl::Status Hypot(Converter& c) {
  AtenNode n(c);
  const Pair p = FloatPair(n, "self", "other");
  const ValueId sum = n.Emit("Add", {n.Emit("Mul", {p.a, p.a}), n.Emit("Mul", {p.b, p.b})});
  return n.Finish(n.Emit("Sqrt", {sum}));
}

// The larger one and what the smaller one adds; equal ones may be infinite.
absl::Status LogAddExp(Converter& c) {
  AtenNode n(c);
  const Pair p = FloatPair(n, "self", "other");
  const ValueId same = n.Emit("Equal", {p.a, p.b});
  const ValueId apart =
      n.Emit("Where", {same, n.Scalar(p.a, 0), n.Emit("Abs", {n.Emit("Sub", {p.a, p.b})})});
  return n.Finish(
      n.Emit("Add", {n.Emit("Max", {p.a, p.b}), n.Emit("Softplus", {n.Emit("Neg", {apart})})}));
}

// x log y and x log(1 + y): 0 where x is, unless y is not a number.
absl::Status XLogY(Converter& c) {
  AtenNode n(c);
  const Pair p = FloatPair(n, "self", "other");
  const ValueId log = n.c.node().op.ends_with("1py") ? Log1pOf(c, p.b) : n.Emit("Log", {p.b});
  const ValueId nothing = n.Emit(
      "And", {n.Emit("Equal", {p.a, n.Scalar(p.a, 0)}), n.Emit("Not", {n.Emit("IsNaN", {p.b})})});
  return n.Finish(n.Emit("Where", {nothing, n.Scalar(p.a, 0), n.Emit("Mul", {p.a, log})}));
}

absl::Status NanToNum(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  if (!IsFloat(n.TypeOf(x))) return n.Finish(n.Emit("Identity", {x}));
  const double largest = LargestOf(n.TypeOf(x));
  const auto replaced = [&](ValueId y, ValueId where, const char* name, double fallback) {
    return n.Emit("Where", {where, n.Scalar(x, n.Number(name, fallback)), y});
  };
  const auto infinite = [&](bool positive) {
    return n.Emit(
        "IsInf", {x},
        {{"detect_positive", int64_t{positive}}, {"detect_negative", int64_t{!positive}}});
  };
  ValueId y = replaced(x, n.Emit("IsNaN", {x}), "nan", 0);
  y = replaced(y, infinite(true), "posinf", largest);
  return n.Finish(replaced(y, infinite(false), "neginf", -largest));
}

absl::Status IsClose(Converter& c) {
  AtenNode n(c);
  const Pair p = FloatPair(n, "self", "other");
  const ValueId apart = n.Emit("Abs", {n.Emit("Sub", {p.a, p.b})});
  const ValueId size = n.Binary("Mul", n.Emit("Abs", {p.b}), n.Number("rtol", 1e-5));
  const ValueId allowed = n.Binary("Add", size, n.Number("atol", 1e-8));
  // An infinite number is close to itself alone.
  const ValueId finite = n.Emit("Not", {n.Emit("IsInf", {apart})});
  const ValueId near = n.Emit("And", {finite, n.Emit("LessOrEqual", {apart, allowed})});
  ValueId y = n.Emit("Or", {n.Emit("Equal", {p.a, p.b}), near});
  if (n.Flag("equal_nan"))
    y = n.Emit("Or", {y, n.Emit("And", {n.Emit("IsNaN", {p.a}), n.Emit("IsNaN", {p.b})})});
  return n.Finish(y);
}

absl::Status RandomLeakyRelu(Converter& c) {
  AtenNode n(c);
  const double slope = (n.Number("lower", 1.0 / 8) + n.Number("upper", 1.0 / 3)) / 2;
  return n.Finish(n.Emit("LeakyRelu", {n.In("self")}, {{"alpha", slope}}));
}

// ---- Distances ----

// Each row of x1 from each of x2.
absl::Status Cdist(Converter& c) {
  AtenNode n(c);
  const ValueId a = n.In("x1"), b = n.In("x2");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(a, "x1"));
  QUENCH_RETURN_IF_ERROR(n.RequireRank(b, "x2"));
  const double p = n.Number("p", 2);
  if (p == 0) return c.Unsupported("p is 0");
  const ValueId apart =
      n.Emit("Sub", {n.Unsqueeze(a, {n.Rank(a) - 1}), n.Unsqueeze(b, {n.Rank(b) - 2})});
  return n.Finish(NormOf(n, apart, p, -1, false));
}

absl::Status PairwiseDistance(Converter& c) {
  AtenNode n(c);
  const Pair p = FloatPair(n, "x1", "x2");
  const double order = n.Number("p", 2);
  if (order == 0) return c.Unsupported("p is 0");
  const ValueId apart = n.Binary("Add", n.Emit("Sub", {p.a, p.b}), n.Number("eps", 1e-6));
  return n.Finish(NormOf(n, apart, order, -1, n.Flag("keepdim")));
}

absl::Status CosineSimilarity(Converter& c) {
  AtenNode n(c);
  const Pair p = FloatPair(n, "x1", "x2");
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", std::max(n.Rank(p.a), n.Rank(p.b)), 1));
  const auto unit = [&](ValueId x) {
    const ValueId own =
        n.Emit("Max", {n.Reduce("ReduceL2", x, {axis}, true), n.Scalar(x, n.Number("eps", 1e-8))});
    return n.Emit("Div", {x, own});
  };
  return n.Finish(n.Reduce("ReduceSum", n.Emit("Mul", {unit(p.a), unit(p.b)}), {axis}, false));
}

}  // namespace quench::importer::torch_ops
