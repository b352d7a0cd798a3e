// Operators of single elements, and those that reduce or normalise along axes.
#include <algorithm>

#include "tests/fuzz/graphs/grower.h"

namespace quench::fuzz {
namespace {

const DataTypes kIntegers = {DataType::kI32, DataType::kI64, DataType::kI8, DataType::kU8};
const DataTypes kAnything = {DataType::kF32, DataType::kI64, DataType::kI32, DataType::kU8,
                             DataType::kBool};

bool Unary(Grower& g, const std::string& op) {
  Attributes attributes;
  if (op == "Elu" || op == "Celu" || op == "LeakyRelu" || op == "ThresholdedRelu" || op == "Swish")
    if (g.dice.Chance(0.5)) attributes["alpha"] = g.dice.Real(0.1, 1.5);
  if (op == "HardSigmoid" && g.dice.Chance(0.5))
    attributes = {{"alpha", g.dice.Real(0.1, 0.4)}, {"beta", g.dice.Real(0.2, 0.6)}};
  if (op == "Shrink") attributes = {{"lambd", g.dice.Real(0.1, 1)}, {"bias", g.dice.Real(0, 1)}};
  if (op == "Gelu" && g.dice.Chance(0.5)) attributes["approximate"] = std::string("tanh");
  return g.Add(op, {g.Float()}, attributes);
}

bool UnaryOfNumbers(Grower& g, const std::string& op) {
  DataTypes types = {g.main(), g.main(), DataType::kI32, DataType::kI64};
  if (op != "Neg" && op != "Relu") types.push_back(DataType::kU8);
  return g.Add(op, {g.Value(types)});
}

bool Binary(Grower& g, const std::string& op) {
  DataTypes types = {g.main(), g.main(), g.main(), DataType::kI64, DataType::kI32};
  if (op == "Pow") types = {g.main()};  // integers have no negative powers
  if (op == "Mod") types = kIntegers;
  if (op == "PRelu") types = {g.main()};
  const ValueId a = g.Value(types), b = g.Broadcastable(a);
  if (op == "PRelu" || g.dice.Chance(0.7)) return g.Add(op, {a, b});
  return g.Add(op, {b, a});
}

bool Variadic(Grower& g, const std::string& op) {
  std::vector<ValueId> inputs = {g.Value({g.main(), g.main(), DataType::kI64})};
  if (op == "Sum" || op == "Mean") inputs = {g.Float()};
  for (int64_t more = g.dice.Integer(0, 3); more > 0; --more)
    inputs.push_back(g.Broadcastable(inputs[0]));
  return g.Add(op, inputs);
}

bool Compare(Grower& g, const std::string& op) {
  const ValueId a = g.Value({g.main(), g.main(), DataType::kI64, DataType::kI32});
  return g.Add(op, {a, g.Broadcastable(a)});
}

bool Logical(Grower& g, const std::string& op) {
  const ValueId a = g.Value({DataType::kBool});
  if (op == "Not") return g.Add(op, {a});
  return g.Add(op, {a, g.Broadcastable(a)});
}

bool Bitwise(Grower& g, const std::string& op) {
  const ValueId a = g.Value(kIntegers);
  if (op == "BitwiseNot") return g.Add(op, {a});
  return g.Add(op, {a, g.Broadcastable(a)});
}

bool BitShift(Grower& g, const std::string& op) {
  const ValueId a = g.Value({DataType::kU8, DataType::kU32});
  return g.Add(op, {a, g.Broadcastable(a)},
               {{"direction", std::string(g.dice.Chance(0.5) ? "LEFT" : "RIGHT")}});
}

bool Cast(Grower& g, const std::string& op) {
  DataTypes from = kAnything;
  from.push_back(g.main());
  const DataType to =
      g.dice.Pick({g.main(), g.main(), DataType::kF32, DataType::kF64, DataType::kF16,
                   DataType::kI64, DataType::kI32, DataType::kU8, DataType::kBool});
  const ValueId x = g.Value(from);
  if (to == DataType::kU8) {  // what is beyond a byte becomes whatever the CPU likes
    for (int64_t i = 0; i < g.tensor(x).size(); ++i) {
      const double value = g.tensor(x).FloatAt(i);
      if (value < 0 || value > 255) return false;
    }
  }
  return g.Add(op, {x}, {{"to", static_cast<int64_t>(to)}});
}

bool Clip(Grower& g, const std::string& op) {
  const ValueId x = g.Float();
  const auto bound = [&](double low, double high) {
    return g.dice.Chance(0.2)
               ? kNone
               : g.FloatScalar(g.dtype(x), g.dice.Real(low, high), g.dice.Chance(0.7));
  };
  const ValueId least = bound(-2, 0), most = bound(0, 2);
  return g.Add(op, {x, least, most});
}

bool Where(Grower& g, const std::string& op) {
  const ValueId x = g.Value({g.main(), g.main(), DataType::kI64});
  const ValueId y = g.Broadcastable(x);
  Ints dims = g.dims(x);
  for (int64_t& dim : dims) {
    if (g.dice.Chance(0.2)) dim = 1;
  }
  return g.Add(op, {g.ValueOf(DataType::kBool, dims), x, y});
}

bool IsNanOrInf(Grower& g, const std::string& op) { return g.Add(op, {g.Float()}); }

bool Reduce(Grower& g, const std::string& op) {
  DataTypes types = {g.main(), g.main(), g.main()};
  if (op == "ReduceSum" || op == "ReduceMax" || op == "ReduceMin" || op == "ReduceProd")
    types.push_back(DataType::kI64);
  const ValueId x = g.Value(types, g.dice.Chance(0.9) ? 1 : 0);
  std::vector<ValueId> inputs = {x};
  Ints axes;
  for (int axis = 0; axis < g.rank(x); ++axis) {
    if (g.dice.Chance(0.5)) axes.push_back(g.dice.Chance(0.3) ? axis - g.rank(x) : axis);
  }
  if (!axes.empty() || g.dice.Chance(0.3)) inputs.push_back(g.Integers(axes, g.dice.Chance(0.7)));
  Attributes attributes;
  if (g.dice.Chance(0.5)) attributes["keepdims"] = g.dice.Integer(0, 1);
  if (axes.empty() && g.dice.Chance(0.3)) attributes["noop_with_empty_axes"] = int64_t{1};
  return g.Add(op, inputs, attributes);
}

bool AlongAxis(Grower& g, const std::string& op) {
  const ValueId x = g.Float(1);
  Attributes attributes;
  if (g.dice.Chance(0.7)) attributes["axis"] = g.dice.Integer(-g.rank(x), g.rank(x) - 1);
  if (op == "LpNormalization" && g.dice.Chance(0.5)) attributes["p"] = g.dice.Integer(1, 2);
  return g.Add(op, {x}, attributes);
}

bool ArgExtreme(Grower& g, const std::string& op) {
  const ValueId x = g.Value({g.main(), g.main(), DataType::kI32}, 1);
  return g.Add(op, {x},
               {{"axis", g.dice.Integer(-g.rank(x), g.rank(x) - 1)},
                {"keepdims", g.dice.Integer(0, 1)},
                {"select_last_index", g.dice.Integer(0, 1)}});
}

bool Cumulative(Grower& g, const std::string& op) {
  const ValueId x = g.Value({g.main(), g.main(), DataType::kI64}, 1);
  const ValueId axis = g.Scalar(g.dice.Integer(-g.rank(x), g.rank(x) - 1), g.dice.Chance(0.7));
  return g.Add(op, {x, axis},
               {{"exclusive", g.dice.Integer(0, 1)}, {"reverse", g.dice.Integer(0, 1)}});
}

bool LayerNorm(Grower& g, const std::string& op) {
  const ValueId x = g.Float(1);
  const int64_t axis = g.dice.Integer(0, g.rank(x) - 1);
  const Ints normalised(g.dims(x).begin() + axis, g.dims(x).end());
  std::vector<ValueId> inputs = {x, g.ValueOf(g.dtype(x), normalised)};
  if (op == "LayerNormalization" && g.dice.Chance(0.7))
    inputs.push_back(g.ValueOf(g.dtype(x), normalised));
  const int64_t written = g.dice.Chance(0.5) ? axis : axis - g.rank(x);
  return g.Add(op, inputs, {{"axis", written}, {"epsilon", 1e-3}});
}

bool ChannelNorm(Grower& g, const std::string& op) {
  const ValueId x = g.Float(op == "BatchNormalization" ? 2 : 3);
  const int64_t channels = g.dims(x)[1];
  std::vector<ValueId> inputs = {x, g.ValueOf(g.dtype(x), {channels}),
                                 g.ValueOf(g.dtype(x), {channels})};
  Attributes attributes = {{"epsilon", 1e-2}};
  if (op == "GroupNormalization") {
    int64_t groups = g.dice.Integer(1, 4);
    while (channels % groups != 0) --groups;
    attributes["num_groups"] = groups;
  }
  if (op == "BatchNormalization") {
    inputs.push_back(g.ValueOf(g.dtype(x), {channels}));
    const ValueId spread = g.Fresh(g.dtype(x), {channels}, true);
    if (!g.Add("Abs", {spread})) return false;
    inputs.push_back(g.last());
  }
  return g.Add(op, inputs, attributes);
}

bool MeanVariance(Grower& g, const std::string& op) {
  const ValueId x = g.Float(4, 4);
  Attributes attributes;
  if (g.dice.Chance(0.6)) {
    Ints axes;
    for (int64_t axis = 0; axis < 4; ++axis) {
      if (g.dice.Chance(0.6)) axes.push_back(axis);
    }
    attributes["axes"] = axes;
  }
  return g.Add(op, {x}, attributes);
}

bool LocalResponse(Grower& g, const std::string& op) {
  return g.Add(op, {g.Float(3)}, {{"size", g.dice.Integer(1, 5)}, {"alpha", 0.01}});
}

bool Loss(Grower& g, const std::string& op) {
  const Ints dims = g.SomeDims(2, 4);
  const ValueId x = g.ValueOf(g.main(), dims);
  Ints labels = dims;
  labels.erase(labels.begin() + 1);
  Tensor indices = Tensor::Zeros(DataType::kI64, labels);
  auto* values = reinterpret_cast<int64_t*>(indices.mutable_bytes());
  if (dims[1] == 0) return false;
  for (int64_t i = 0; i < indices.size(); ++i) values[i] = g.dice.Integer(0, dims[1] - 1);
  std::vector<ValueId> inputs = {x, g.Given(std::move(indices))};
  if (g.dice.Chance(0.4)) inputs.push_back(g.ValueOf(g.main(), {dims[1]}));
  return g.Add(op, inputs, {{"reduction", g.dice.Pick<std::string>({"none", "sum", "mean"})}});
}

bool Drop(Grower& g, const std::string& op) { return g.Add(op, {g.Float()}); }

bool ToBytes(Grower& g, const std::string& op) {
  const DataType type = g.dice.Chance(0.5) ? DataType::kU8 : DataType::kI8;
  const ValueId x = g.Float();
  const ValueId scale = g.FloatScalar(g.dtype(x), g.dice.Real(0.01, 0.05));
  const ValueId zero = g.Given(
      Tensor::Of(type, {},
                 std::vector<int8_t>{static_cast<int8_t>(
                     type == DataType::kU8 ? g.dice.Integer(90, 127) : g.dice.Integer(-20, 20))}),
      true);
  if (!g.Add(op, {x, scale, zero})) return false;
  if (g.family() != Family::kBytes && g.dice.Chance(0.5)) return true;
  return g.Add("DequantizeLinear", {g.last(), scale, zero});
}

bool FromBytes(Grower& g, const std::string& op) {
  const ValueId x = g.Value({DataType::kU8, DataType::kI8});
  const ValueId zero = g.Fresh(g.dtype(x), {}, true);
  return g.Add(op, {x, g.FloatScalar(DataType::kF32, g.dice.Real(0.01, 0.05)), zero});
}

bool ToBytesOfTheRun(Grower& g, const std::string& op) {
  return g.Add(op, {g.Value({DataType::kF32})}, {}, 3);
}

}  // namespace

std::vector<RuleRow> PointwiseRules() {
  return {
      {{"Acos",    "Acosh", "Asin",       "Asinh",          "Atan",      "Atanh",
        "Celu",    "Ceil",  "Cos",        "Cosh",           "Elu",       "Erf",
        "Exp",     "Floor", "Gelu",       "HardSigmoid",    "HardSwish", "LeakyRelu",
        "Log",     "Mish",  "Reciprocal", "Round",          "Selu",      "Shrink",
        "Sigmoid", "Sin",   "Sinh",       "Softplus",       "Softsign",  "Sqrt",
        "Swish",   "Tan",   "Tanh",       "ThresholdedRelu"},
       Unary},
      {{"Abs", "Neg", "Relu", "Sign", "Identity"}, UnaryOfNumbers},
      {{"Add", "Sub", "Mul", "Div", "Pow", "Mod", "PRelu"}, Binary},
      {{"Max", "Min", "Sum", "Mean"}, Variadic},
      {{"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}, Compare},
      {{"And", "Or", "Xor", "Not"}, Logical},
      {{"BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"}, Bitwise},
      {{"BitShift"}, BitShift},
      {{"Cast"}, Cast},
      {{"Clip"}, Clip},
      {{"Where"}, Where},
      {{"IsNaN", "IsInf"}, IsNanOrInf},
      {{"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
        "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"},
       Reduce},
      {{"Softmax", "LogSoftmax", "Hardmax", "LpNormalization"}, AlongAxis},
      {{"ArgMax", "ArgMin"}, ArgExtreme},
      {{"CumSum", "CumProd"}, Cumulative},
      {{"LayerNormalization", "RMSNormalization"}, LayerNorm},
      {{"BatchNormalization", "InstanceNormalization", "GroupNormalization"}, ChannelNorm},
      {{"MeanVarianceNormalization"}, MeanVariance},
      {{"LRN"}, LocalResponse},
      {{"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}, Loss},
      {{"Dropout"}, Drop},
      {{"QuantizeLinear"}, ToBytes},
      {{"DequantizeLinear"}, FromBytes},
      {{"DynamicQuantizeLinear"}, ToBytesOfTheRun},
  };
}

}  // namespace quench::fuzz
