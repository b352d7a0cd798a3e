// Pointwise operators: values against closed forms computed with numpy and Python's math, types
// that each admits.
#include "common/ops/pointwise.h"

#include <gtest/gtest.h>

#include <limits>

#include "run_op.h"

namespace quench::ops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct UnaryCase {
  std::string op;
  std::vector<float> input;
  std::vector<double> expected;
  Attributes attributes;
};

const std::vector<UnaryCase> kUnaryCases = {
    {"Abs", {-2.5, -0.5, 0.0, 0.75, 3.0}, {2.5, 0.5, 0, 0.75, 3}, {}},
    {"Acos",
     {0.1, 0.25, 0.5, 0.75, 0.9},
     {1.47062891, 1.31811607, 1.04719755, 0.722734248, 0.451026812},
     {}},
    {"Acosh", {1.0, 1.5, 2.0, 4.0, 10.0}, {0, 0.96242365, 1.3169579, 2.06343707, 2.99322285}, {}},
    {"Asin",
     {0.1, 0.25, 0.5, 0.75, 0.9},
     {0.100167421, 0.252680255, 0.523598776, 0.848062079, 1.11976951},
     {}},
    {"Asinh",
     {-2.5, -0.5, 0.0, 0.75, 3.0},
     {-1.64723115, -0.481211825, 0, 0.693147181, 1.81844646},
     {}},
    {"Atan",
     {-2.5, -0.5, 0.0, 0.75, 3.0},
     {-1.19028995, -0.463647609, 0, 0.643501109, 1.24904577},
     {}},
    {"Atanh",
     {0.1, 0.25, 0.5, 0.75, 0.9},
     {0.100335348, 0.255412812, 0.549306144, 0.972955075, 1.47221949},
     {}},
    {"Ceil", {-2.5, -0.5, 0.0, 0.75, 3.0}, {-2, 0, 0, 1, 3}, {}},
    {"Cos",
     {-2.5, -0.5, 0.0, 0.75, 3.0},
     {-0.801143616, 0.877582562, 1, 0.731688869, -0.989992497},
     {}},
    {"Cosh", {-2.5, -0.5, 0.0, 0.75, 3.0}, {6.13228948, 1.12762597, 1, 1.29468328, 10.067662}, {}},
    {"Erf",
     {-2.5, -0.5, 0.0, 0.75, 3.0},
     {-0.999593048, -0.520499878, 0, 0.711155634, 0.99997791},
     {}},
    {"Exp",
     {-2.5, -0.5, 0.0, 0.75, 3.0},
     {0.0820849986, 0.60653066, 1, 2.11700002, 20.0855369},
     {}},
    {"Floor", {-2.5, -0.5, 0.0, 0.75, 3.0}, {-3, -1, 0, 0, 3}, {}},
    {"Log", {1.0, 1.5, 2.0, 4.0, 10.0}, {0, 0.405465108, 0.693147181, 1.38629436, 2.30258509}, {}},
    {"Celu",
     {-2.5, -0.5, 0.0, 0.75, 3.0},
     {-1.42699041, -0.442398434, 0, 0.75, 3},
     {{"alpha", 2.0}}},
    {"Elu", {-2.5, -0.5, 0.0, 0.75, 3.0}, {-1.3768725, -0.59020401, 0, 0.75, 3}, {{"alpha", 1.5}}},
    {"Gelu",
     {-2.5, -0.5, 0.0, 0.75, 3.0},
     {-0.0155241633, -0.154268769, 0, 0.580029486, 2.99595031},
     {}},
    {"Gelu",
     {-2.5, -0.5, 0.0, 0.75, 3.0},
     {-0.0150842661, -0.15428599, 0, 0.579960555, 2.99636261},
     {{"approximate", std::string("tanh")}}},
    {"HardSigmoid", {-2.5, -0.5, 0.0, 0.75, 3.0}, {0, 0.4, 0.5, 0.65, 1}, {}},
    {"HardSwish", {-2.5, -0.5, 0.0, 0.75, 3.0}, {-0.208333333, -0.208333333, 0, 0.46875, 3}, {}},
    {"Identity", {-2.5, -0.5, 0.0, 0.75, 3.0}, {-2.5, -0.5, 0, 0.75, 3}, {}},
    {"LeakyRelu", {-2.5, -0.5, 0.0, 0.75, 3.0}, {-0.25, -0.05, 0, 0.75, 3}, {{"alpha", 0.1}}},
    {"Mish",
     {-2.5, -0.5, 0.0, 0.75, 3.0},
     {-0.196816204, -0.220743775, 0, 0.610018335, 2.986535},
     {}},
    {"Neg", {-2.5, -0.5, 0.0, 0.75, 3.0}, {2.5, 0.5, -0, -0.75, -3}, {}},
    {"Reciprocal", {1.0, 1.5, 2.0, 4.0, 10.0}, {1, 0.666666667, 0.5, 0.25, 0.1}, {}},
    {"Relu", {-2.5, -0.5, 0.0, 0.75, 3.0}, {0, 0, 0, 0.75, 3}, {}},
    {"Round", {-2.5, -1.5, 0.5, 1.5, 2.51}, {-2, -2, 0, 2, 3}, {}},
    {"Selu",
     {-2.5, -0.5, 0.0, 0.75, 3.0},
     {-1.61378576, -0.691758188, 0, 0.788025741, 3.15210296},
     {}},
    {"Shrink",
     {-2.5, -0.5, 0.0, 0.75, 3.0},
     {-1, 0, 0, -0.75, 1.5},
     {{"lambd", 0.6}, {"bias", 1.5}}},
    {"Sigmoid",
     {-2.5, -0.5, 0.0, 0.75, 3.0},
     {0.07585818, 0.377540669, 0.5, 0.679178699, 0.952574127},
     {}},
    {"Sign", {-2.5, -0.5, 0.0, 0.75, 3.0}, {-1, -1, 0, 1, 1}, {}},
    {"Sin",
     {-2.5, -0.5, 0.0, 0.75, 3.0},
     {-0.598472144, -0.479425539, 0, 0.68163876, 0.141120008},
     {}},
    {"Sinh",
     {-2.5, -0.5, 0.0, 0.75, 3.0},
     {-6.05020448, -0.521095305, 0, 0.822316732, 10.0178749},
     {}},
    {"Softplus",
     {-100.0, -1.0, 0.0, 2.0, 100.0},
     {3.72007598e-44, 0.313261688, 0.693147181, 2.12692801, 100},
     {}},
    {"Softsign",
     {-2.5, -0.5, 0.0, 0.75, 3.0},
     {-0.714285714, -0.333333333, 0, 0.428571429, 0.75},
     {}},
    {"Sqrt", {1.0, 1.5, 2.0, 4.0, 10.0}, {1, 1.22474487, 1.41421356, 2, 3.16227766}, {}},
    {"Swish",
     {-2.5, -0.5, 0.0, 0.75, 3.0},
     {-0.0167321273, -0.134470711, 0, 0.613180857, 2.99258213},
     {{"alpha", 2.0}}},
    {"Tan",
     {-2.5, -0.5, 0.0, 0.75, 3.0},
     {0.747022297, -0.54630249, 0, 0.93159646, -0.142546543},
     {}},
    {"Tanh",
     {-2.5, -0.5, 0.0, 0.75, 3.0},
     {-0.986614298, -0.462117157, 0, 0.635148952, 0.995054754},
     {}},
    {"ThresholdedRelu", {-2.5, -0.5, 0.0, 0.75, 3.0}, {0, 0, 0, 0.75, 3}, {{"alpha", 0.7}}},
};

TEST(Pointwise, UnaryFunctionsMatchTheirFormulas) {
  for (const UnaryCase& test : kUnaryCases) {
    SCOPED_TRACE(test.op);
    const Dims dims = {static_cast<int64_t>(test.input.size())};
    ExpectTensor(RunOp(test.op, {F32(dims, test.input)}, test.attributes)[0], dims, test.expected,
                 2e-6);
  }
}

TEST(Pointwise, ArithmeticBroadcasts) {
  const Tensor a = F32({2, 1}, {10, 20});
  const Tensor b = F32({3}, {1, 2, 4});
  ExpectTensor(RunOp("Add", {a, b})[0], {2, 3}, {11, 12, 14, 21, 22, 24});
  ExpectTensor(RunOp("Sub", {a, b})[0], {2, 3}, {9, 8, 6, 19, 18, 16});
  ExpectTensor(RunOp("Mul", {a, b})[0], {2, 3}, {10, 20, 40, 20, 40, 80});
  ExpectTensor(RunOp("Div", {a, b})[0], {2, 3}, {10, 5, 2.5, 20, 10, 5});
  ExpectTensor(RunOp("Max", {a, b, F32({}, {15})})[0], {2, 3}, {15, 15, 15, 20, 20, 20});
  ExpectTensor(RunOp("Min", {a, b, F32({}, {3})})[0], {2, 3}, {1, 2, 3, 1, 2, 3});
  ExpectTensor(RunOp("Sum", {a, b})[0], {2, 3}, {11, 12, 14, 21, 22, 24});
  ExpectTensor(RunOp("Mean", {a, b})[0], {2, 3}, {5.5, 6, 7, 10.5, 11, 12});
  ExpectTensor(RunOp("Sum", {a})[0], {2, 1}, {10, 20});
}

TEST(Pointwise, ShapesThatDoNotBroadcastAreRefused) {
  ExpectError(TryOp("Add", {F32({2}, {1, 2}), F32({3}, {1, 2, 3})}), "cannot broadcast");
  ExpectError(TryOp("Add", {F32({1}, {1}), I32({1}, {1})}), "takes one type");
  ExpectError(TryOp("Relu", {Bool({1}, {1})}), "input 0 is bool, Relu takes");
}

TEST(Pointwise, EmptyTensorsStayEmpty) {
  ExpectTensor(RunOp("Add", {F32({0, 3}, {}), F32({3}, {1, 2, 3})})[0], {0, 3}, {});
}

TEST(Pointwise, IntegerDivisionTruncatesAndModFollowsTheDivisor) {
  const Tensor a = I32({4}, {-7, 7, -7, 7});
  const Tensor b = I32({4}, {2, -2, -2, 2});
  ExpectTensor(RunOp("Div", {a, b})[0], {4}, {-3, -3, 3, 3});
  ExpectTensor(RunOp("Mod", {a, b})[0], {4}, {1, -1, -1, 1});
  ExpectTensor(RunOp("Mod", {a, b}, {{"fmod", int64_t{1}}})[0], {4}, {-1, 1, -1, 1});
  ExpectTensor(RunOp("Mod", {F32({2}, {-4.5f, 5.5f}), F32({}, {2})}, {{"fmod", int64_t{1}}})[0],
               {2}, {-0.5, 1.5});
  ExpectError(TryOp("Mod", {F32({1}, {1}), F32({1}, {2})}), "fmod");
}

TEST(Pointwise, DivisionByZeroOfIntegersGivesZero) {
  ExpectTensor(
      RunOp("Div", {I32({2}, {5, std::numeric_limits<int32_t>::min()}), I32({2}, {0, -1})})[0], {2},
      {0, -2147483648.0});
}

TEST(Pointwise, LogicAndComparison) {
  const Tensor a = Bool({4}, {0, 0, 1, 1});
  const Tensor b = Bool({4}, {0, 1, 0, 1});
  ExpectTensor(RunOp("And", {a, b})[0], {4}, {0, 0, 0, 1});
  ExpectTensor(RunOp("Or", {a, b})[0], {4}, {0, 1, 1, 1});
  ExpectTensor(RunOp("Xor", {a, b})[0], {4}, {0, 1, 1, 0});
  ExpectTensor(RunOp("Not", {a})[0], {4}, {1, 1, 0, 0});
  const Tensor x = F32({4}, {1, 2, 3, static_cast<float>(kNan)});
  const Tensor y = F32({}, {2});
  ExpectTensor(RunOp("Equal", {x, y})[0], {4}, {0, 1, 0, 0});
  ExpectTensor(RunOp("Less", {x, y})[0], {4}, {1, 0, 0, 0});
  ExpectTensor(RunOp("LessOrEqual", {x, y})[0], {4}, {1, 1, 0, 0});
  ExpectTensor(RunOp("Greater", {x, y})[0], {4}, {0, 0, 1, 0});
  ExpectTensor(RunOp("GreaterOrEqual", {x, y})[0], {4}, {0, 1, 1, 0});
}

TEST(Pointwise, BitsAndShifts) {
  const Tensor a = U8({3}, {0b1100, 1, 0x80});
  const Tensor b = U8({3}, {0b1010, 3, 9});
  ExpectTensor(RunOp("BitwiseAnd", {a, b})[0], {3}, {0b1000, 1, 0});
  ExpectTensor(RunOp("BitwiseOr", {a, b})[0], {3}, {0b1110, 3, 0x89});
  ExpectTensor(RunOp("BitwiseXor", {a, b})[0], {3}, {0b0110, 2, 0x89});
  ExpectTensor(RunOp("BitwiseNot", {a})[0], {3}, {0xf3, 0xfe, 0x7f});
  const Attributes left = {{"direction", std::string("LEFT")}};
  const Attributes right = {{"direction", std::string("RIGHT")}};
  ExpectTensor(RunOp("BitShift", {U8({3}, {1, 0x81, 7}), U8({3}, {1, 1, 8})}, left)[0], {3},
               {2, 2, 0});
  ExpectTensor(RunOp("BitShift", {U8({3}, {8, 0x81, 7}), U8({3}, {1, 1, 8})}, right)[0], {3},
               {4, 64, 0});
  ExpectError(TryOp("BitShift", {a, b}, {{"direction", std::string("UP")}}), "direction is `UP`");
}

TEST(Pointwise, PowKeepsTheTypeOfItsBase) {
  const Tensor x = F32({3}, {1, 2, 3});
  ExpectTensor(RunOp("Pow", {x, F32({}, {2})})[0], {3}, {1, 4, 9});
  ExpectTensor(RunOp("Pow", {x, F32({}, {0.5f})})[0], {3}, {1, std::sqrt(2.0), std::sqrt(3.0)});
  ExpectTensor(RunOp("Pow", {x, F32({3}, {4, 5, 2.5f})})[0], {3}, {1, 32, 15.588457});
  const std::vector<Tensor> powers = RunOp("Pow", {I64({2}, {3, -2}), I32({}, {3})});
  EXPECT_EQ(powers[0].dtype(), DataType::kI64);
  ExpectTensor(powers[0], {2}, {27, -8});
  ExpectTensor(RunOp("Pow", {I32({2}, {2, 3}), F32({}, {2})})[0], {2}, {4, 9});
}

TEST(Pointwise, WherePicksByCondition) {
  ExpectTensor(RunOp("Where", {Bool({2, 1}, {1, 0}), F32({2}, {1, 2}), F32({}, {9})})[0], {2, 2},
               {1, 2, 9, 9});
}

TEST(Pointwise, ClipTakesEachLimitOrNone) {
  const Tensor x = F32({3}, {-3, 0.5, 3});
  ExpectTensor(RunOp("Clip", {x, F32({}, {-1}), F32({}, {1})})[0], {3}, {-1, 0.5, 1});
  ExpectTensor(RunOp("Clip", {x, std::nullopt, F32({}, {1})})[0], {3}, {-3, 0.5, 1});
  ExpectTensor(RunOp("Clip", {x, F32({}, {0})})[0], {3}, {0, 0.5, 3});
  ExpectTensor(RunOp("Clip", {x})[0], {3}, {-3, 0.5, 3});
  // As NumPy: the maximum wins over a larger minimum.
  ExpectTensor(RunOp("Clip", {x, F32({}, {2}), F32({}, {1})})[0], {3}, {1, 1, 1});
  ExpectError(TryOp("Clip", {x, F32({3}, {0, 0, 0})}), "they must be equal");
}

TEST(Pointwise, PReluSlopesBroadcastToX) {
  ExpectTensor(RunOp("PRelu", {F32({2, 2}, {-1, 2, -3, 4}), F32({2, 1}, {0.5f, 2})})[0], {2, 2},
               {-0.5, 2, -6, 4});
  ExpectError(TryOp("PRelu", {F32({2}, {1, 2}), F32({2, 1}, {1, 2})}), "does not broadcast");
}

TEST(Pointwise, SpecialValues) {
  const float inf = static_cast<float>(kInf);
  const float nan = static_cast<float>(kNan);
  const Tensor x = F32({4}, {-inf, inf, nan, 0});
  ExpectTensor(RunOp("IsNaN", {x})[0], {4}, {0, 0, 1, 0});
  ExpectTensor(RunOp("IsInf", {x})[0], {4}, {1, 1, 0, 0});
  ExpectTensor(RunOp("IsInf", {x}, {{"detect_negative", int64_t{0}}})[0], {4}, {0, 1, 0, 0});
  ExpectTensor(RunOp("IsInf", {x}, {{"detect_positive", int64_t{0}}})[0], {4}, {1, 0, 0, 0});
  ExpectTensor(RunOp("Relu", {x})[0], {4}, {0, kInf, kNan, 0});
  ExpectTensor(RunOp("Sign", {x})[0], {4}, {-1, 1, kNan, 0});
  ExpectTensor(RunOp("Max", {x, F32({}, {1})})[0], {4}, {1, kInf, kNan, 1});
}

TEST(Pointwise, CastTruncatesSaturatesAndTests) {
  const auto to = [](DataType type) { return Attributes{{"to", static_cast<int64_t>(type)}}; };
  const Tensor x = F32({5}, {-1.7f, 1.7f, 300, -300, static_cast<float>(kNan)});
  ExpectTensor(RunOp("Cast", {x}, to(DataType::kI32))[0], {5}, {-1, 1, 300, -300, 0});
  ExpectTensor(RunOp("Cast", {x}, to(DataType::kI8))[0], {5}, {-1, 1, 127, -128, 0});
  ExpectTensor(RunOp("Cast", {x}, to(DataType::kU8))[0], {5}, {0, 1, 255, 0, 0});
  ExpectTensor(RunOp("Cast", {x}, to(DataType::kBool))[0], {5}, {1, 1, 1, 1, 1});
  ExpectTensor(RunOp("Cast", {F32({2}, {0.1f, 65520})}, to(DataType::kF16))[0], {2},
               {0.0999755859375, kInf});
  ExpectTensor(RunOp("Cast", {I32({2}, {300, -1})}, to(DataType::kU8))[0], {2}, {44, 255});
  ExpectTensor(RunOp("Cast", {Bool({2}, {0, 1})}, to(DataType::kF32))[0], {2}, {0, 1});
  ExpectError(TryOp("Cast", {x}, {{"to", int64_t{99}}}), "to is 99");
}

// The expected numbers come from ONNX Runtime 1.31.
TEST(Pointwise, CastToFloat8SaturatesUnlessToldNotTo) {
  const Tensor x = F32({6}, {static_cast<float>(kInf), -static_cast<float>(kInf), 1000, 465,
                             static_cast<float>(kNan), 250});
  const auto cast = [&](DataType type, int64_t saturate) {
    return RunOp("Cast", {x}, {{"to", static_cast<int64_t>(type)}, {"saturate", saturate}})[0];
  };
  ExpectTensor(cast(DataType::kF8E4M3FN, 1), {6}, {448, -448, 448, 448, kNan, 256});
  ExpectTensor(cast(DataType::kF8E4M3FNUZ, 1), {6}, {240, -240, 240, 240, kNan, 240});
  ExpectTensor(cast(DataType::kF8E5M2, 1), {6}, {57344, -57344, 1024, 448, kNan, 256});
  ExpectTensor(cast(DataType::kF8E4M3FN, 0), {6}, {kNan, kNan, kNan, kNan, kNan, 256});
  ExpectTensor(cast(DataType::kF8E5M2, 0), {6}, {kInf, -kInf, 1024, 448, kNan, 256});
}

TEST(Pointwise, BatchNormalizationNormalisesChannels) {
  const std::vector<Tensor> y = RunOp("BatchNormalization",
                                      {F32({1, 2, 2}, {1, 2, 3, 4}), F32({2}, {1, 2}),
                                       F32({2}, {0, 1}), F32({2}, {1, 3}), F32({2}, {1, 4})},
                                      {{"epsilon", 0.0}});
  ExpectTensor(y[0], {1, 2, 2}, {0, 1, 1, 2});
  ExpectError(TryOp("BatchNormalization",
                    {F32({1, 1}, {1}), F32({1}, {1}), F32({1}, {1}), F32({1}, {1}), F32({1}, {1})},
                    {{"training_mode", int64_t{1}}}),
              "only inference is supported");
}

TEST(Pointwise, HalfIsComputedInSinglePrecision) {
  // 2048 + 1 does not exist in f16; the sum of three is exact in f32 and rounds once.
  const auto half = [](float value) {
    return RunOp("Cast", {F32({1}, {value})}, {{"to", static_cast<int64_t>(DataType::kF16)}})[0];
  };
  const Tensor sum = RunOp("Sum", {half(2048), half(1), half(1)})[0];
  EXPECT_EQ(sum.dtype(), DataType::kF16);
  ExpectTensor(sum, {1}, {2050});
}

// ---- every pointwise operator, every type it admits ----

Tensor Sample(DataType type) {
  Tensor tensor = Tensor::Zeros(type, {2, 3});
  return tensor;
}

// Operands of an operator when all are of `type`, and attributes that it requires.
struct Sampled {
  Operands operands;
  Attributes attributes;
};
Sampled SampleFor(const OpDef& op, DataType type) {
  Sampled sample;
  for (int i = 0; i < op.min_inputs; ++i) sample.operands.emplace_back(Sample(type));
  if (op.name == "Where") sample.operands[0] = Sample(DataType::kBool);
  if (op.name == "BatchNormalization") {
    for (size_t i = 1; i < 5; ++i) sample.operands[i] = Tensor::Zeros(type, {3});
  }
  if (op.name == "QuantizeLinear" || op.name == "DequantizeLinear") {
    sample.operands[1] = Tensor::Zeros(DataType::kF32, {});
  }
  if (op.name == "Cast") sample.attributes["to"] = static_cast<int64_t>(type);
  if (op.name == "BitShift") sample.attributes["direction"] = std::string("LEFT");
  if (op.name == "Mod") sample.attributes["fmod"] = int64_t{1};
  return sample;
}

TEST(Pointwise, EveryOperatorLowersForEveryTypeItAdmits) {
  const std::vector<DataType> types = {
      DataType::kF32, DataType::kF16, DataType::kBF16, DataType::kF64, DataType::kI8,
      DataType::kI16, DataType::kI32, DataType::kI64,  DataType::kU8,  DataType::kU16,
      DataType::kU32, DataType::kU64, DataType::kBool};
  int lowered = 0;
  for (const OpDef* op : AllOps()) {
    if (op->kind != OpKind::kPointwise) continue;
    int admitted = 0;
    for (const DataType type : types) {
      SCOPED_TRACE(op->name + " " + std::string(DataTypeName(type)));
      const Sampled sample = SampleFor(*op, type);
      Graph graph = OneNode(op->name, sample.operands, sample.attributes);
      const absl::Status inferred = InferNode(graph, graph.nodes[0]);
      if (!inferred.ok()) {
        // Refused for its type, and for nothing else.
        EXPECT_NE(inferred.message().find(" takes "), std::string::npos) << inferred;
        continue;
      }
      ++admitted;
      const OpContext context = ContextOf(graph, graph.nodes[0]);
      const absl::StatusOr<loops::Function> function = LowerNode(context);
      ASSERT_TRUE(function.ok()) << function.status();
      EXPECT_EQ(loops::Verify(*function), "");
      EXPECT_TRUE(IsPointwise(graph.nodes[0]));
      const absl::StatusOr<loops::ScalarFunction> scalar = ScalarOf(context);
      ASSERT_TRUE(scalar.ok()) << scalar.status();
      EXPECT_EQ(scalar->param_types.size(), sample.operands.size());
      EXPECT_EQ(scalar->exprs[static_cast<size_t>(scalar->result)].type,
                loops::ComputeType(context.output(0).dtype));
      ++lowered;
    }
    EXPECT_GT(admitted, 0) << op->name << " admits no type at all";
  }
  EXPECT_GT(lowered, 300);
}

}  // namespace
}  // namespace quench::ops
