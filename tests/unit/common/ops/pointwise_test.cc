// Pointwise operators: values against closed forms computed with numpy and Python's math, types
// that each admits.
#include "common/ops/pointwise.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "run_op.h"

namespace quench::ops::pointwise_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct UnaryCase {
  std::string op;
  std::vector<float> input;
  std::vector<double> expected;
  Attributes attributes;
};

template <typename T>
std::vector<T> Numbers(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<T>(stream), std::istream_iterator<T>()};
}

// Text that is not a number is a string.
Attributes AttributesOf(const std::string& text) {
  Attributes attributes;
  for (const std::string& word : Numbers<std::string>(text)) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
    const std::vector<double> number = Numbers<double>(value);
    attributes[name] = number.empty() ? Attribute(value) : Attribute(number[0]);
  }
  return attributes;
}

std::vector<UnaryCase> ReadUnaryCases() {
  std::vector<UnaryCase> cases;
  std::ifstream file(QUENCH_OP_CASES "/unary.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::vector<std::string> cells;
    std::istringstream parts(line);
    for (std::string cell; std::getline(parts, cell, '|');) cells.push_back(cell);
    cells.resize(4);
    cases.push_back({Numbers<std::string>(cells[0]).at(0), Numbers<float>(cells[1]),
                     Numbers<double>(cells[2]), AttributesOf(cells[3])});
  }
  return cases;
}

TEST(Pointwise, UnaryFunctionsMatchTheirFormulas) {
  const std::vector<UnaryCase> cases = ReadUnaryCases();
  EXPECT_GE(cases.size(), 40u);
  for (const UnaryCase& test : cases) {
    SCOPED_TRACE(test.op);
    const Dims dims = {static_cast<int64_t>(test.input.size())};
    ExpectTensor(RunOp(test.op, {F32(dims, test.input)}, test.attributes)[0], dims, test.expected,
                 2e-6);
  }
}

// log(1 + x) of a small x has x's own digits.
TEST(Pointwise, SmallResultsOfSoftplusKeepTheirDigits) {
  const std::vector<float> inputs = {-1, -5, -9, -17, -30, -80};
  const Tensor x = F32({6}, inputs);
  const Tensor softplus = RunOp("Softplus", {x})[0], mish = RunOp("Mish", {x})[0];
  for (size_t i = 0; i < inputs.size(); ++i) {
    const double exact = std::log1p(std::exp(static_cast<double>(inputs[i])));
    EXPECT_NEAR(softplus.FloatAt(static_cast<int64_t>(i)) / exact, 1, 2e-6) << inputs[i];
    EXPECT_NEAR(mish.FloatAt(static_cast<int64_t>(i)) / (inputs[i] * std::tanh(exact)), 1, 2e-6)
        << inputs[i];
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
}  // namespace quench::ops::pointwise_test
