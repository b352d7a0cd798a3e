// Codegen's passes on integers, together, on quantized graphs; each alone has its case.
#include <tuple>

#include "common/ops/evaluate.h"
#include "common/passes/passes.h"
#include "tests/unit/common/passes/pass_test_util.h"

namespace quench::passes::integer_passes_test {
namespace {

// Builds quantized graphs the way that quantization and other tools write them.
struct Quantized {
  Graph graph;
  ValueId x = kNone;

  explicit Quantized(std::vector<Dim> dims) { x = Input("x", std::move(dims)); }

  ValueId Input(const std::string& name, std::vector<Dim> dims) {
    return graph.AddInput(name, Type::Tensor(DataType::kF32, std::move(dims)));
  }
  ValueId Scale(float value) { return graph.AddConstant("scale", Tensor::ScalarF32(value)); }
  ValueId Zero(int8_t value) {
    return graph.AddConstant("zero", Tensor::Of(DataType::kI8, {}, std::vector<int8_t>{value}));
  }
  ValueId Q(ValueId value, float scale, int8_t zero) {
    return Add(graph, "QuantizeLinear", {value, Scale(scale), Zero(zero)});
  }
  ValueId DQ(ValueId value, float scale, int8_t zero) {
    return Add(graph, "DequantizeLinear", {value, Scale(scale), Zero(zero)});
  }
  ValueId Pair(ValueId value, float scale, int8_t zero) {
    return DQ(Q(value, scale, zero), scale, zero);
  }
  // i8 weights with a scale per index of `axis`.
  ValueId Kernel(const std::vector<int64_t>& dims, int64_t axis) {
    Tensor integers = Tensor::Zeros(DataType::kI8, dims);
    std::byte* out = integers.mutable_bytes();
    for (int64_t i = 0; i < integers.size(); ++i)
      out[i] = static_cast<std::byte>(i * 37 % 255 - 127);
    std::vector<float> scales;
    for (int64_t c = 0; c < dims[static_cast<size_t>(axis)]; ++c)
      scales.push_back(0.004F * static_cast<float>(1 + c % 3));
    const ValueId scale = graph.AddConstant(
        "scales", Tensor::Of(DataType::kF32, {static_cast<int64_t>(scales.size())}, scales));
    return Add(graph, "DequantizeLinear", {graph.AddConstant("w", integers), scale},
               {{"axis", axis}});
  }
};

// After the passes, and at most `steps` apart in outputs that are `step` wide: the last rounding may
// fall to the other side.
Graph Integers(const Graph& before, double step) {
  const absl::StatusOr<Graph> after = RunIntegerPasses(before);
  EXPECT_TRUE(after.ok()) << after.status();
  if (!after.ok()) return before;
  const std::vector<Tensor> inputs = testing::RandomInputsFor(before, 3);
  const absl::StatusOr<std::vector<Tensor>> expected = ops::Evaluate(before, inputs);
  const absl::StatusOr<std::vector<Tensor>> actual = ops::Evaluate(*after, inputs);
  EXPECT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
  if (!expected.ok() || !actual.ok()) return *after;
  int64_t apart = 0;
  for (int64_t i = 0; i < (*expected)[0].size(); ++i) {
    const double difference = std::abs((*expected)[0].FloatAt(i) - (*actual)[0].FloatAt(i));
    EXPECT_LE(difference, step * 1.001) << "element " << i;
    apart += difference > step * 0.001 ? 1 : 0;
  }
  EXPECT_LE(apart, (*expected)[0].size() / 50 + 1);
  return *after;
}

const Node* Find(const Graph& graph, const std::string& op) {
  for (const Node& node : graph.nodes) {
    if (node.op == op) return &node;
  }
  return nullptr;
}

TEST(IntegerPassesTest, AConvolutionBetweenIntegers) {
  Quantized q({1, 3, 8, 8});
  const ValueId conv = Add(q.graph, "Conv", {q.Pair(q.x, 0.01F, -5), q.Kernel({8, 3, 3, 3}, 0)});
  q.graph.outputs = {q.Pair(Add(q.graph, "Relu", {conv}), 0.02F, -128)};
  const Graph after = Integers(q.graph, 0.02);
  EXPECT_EQ(CountOps(after, "Conv"), 0);
  ASSERT_EQ(CountOps(after, "ConvInteger"), 1);
  EXPECT_EQ(CountOps(after, "DequantizeLinear"), 1);  // the output
  // One product scales the sums to steps of the result, whose own scale is 1 then.
  for (const Node& node : after.nodes) {
    if (node.op != "QuantizeLinear" || after.value(node.outputs[0]).name == "zero") continue;
    if (node.inputs[0] == after.inputs[0]) continue;
    EXPECT_EQ(ConstantOf(after, node.inputs[1])->FloatAt(0), 1);
  }
}

// A layer of u8 weights of `dims` with these zero points, one for all or for each channel; the last
// `far` weights are 0.
Graph LayerOfZeros(const std::string& op, const std::vector<int64_t>& dims,
                   const std::vector<uint8_t>& zeros, int far, int64_t group = 1) {
  const bool conv = op == "Conv";
  Quantized q(conv ? std::vector<Dim>{1, dims[1] * group, 6, 6} : std::vector<Dim>{3, dims[1]});
  Tensor weights = Tensor::Zeros(DataType::kU8, dims);
  for (int64_t i = 0; i < weights.size(); ++i) {
    const auto near = static_cast<int64_t>(zeros[0]) + i * 37 % 81 - 40;
    weights.mutable_bytes()[i] = static_cast<std::byte>(i < weights.size() - far ? near : 0);
  }
  const auto count = static_cast<int64_t>(zeros.size());
  const std::vector<int64_t> shape(count == 1 ? 0 : 1, count);
  const std::vector<float> scales(zeros.size(), 0.004F);
  const ValueId real =
      Add(q.graph, "DequantizeLinear",
          {q.graph.AddConstant("w", weights),
           q.graph.AddConstant("scales", Tensor::Of(DataType::kF32, shape, scales)),
           q.graph.AddConstant("zeros", Tensor::Of(DataType::kU8, shape, zeros))},
          {{"axis", int64_t{0}}});
  std::map<std::string, Attribute> attributes;
  if (conv) attributes["group"] = group;
  if (!conv) attributes["transB"] = int64_t{1};
  const ValueId y = Add(q.graph, op, {q.Pair(q.x, 0.01F, 3), real}, attributes);
  q.graph.outputs = {q.Pair(y, 0.05F, 0)};
  return Integers(q.graph, 0.05);
}

TEST(IntegerPassesTest, WeightsOfAnyZeroPoint) {
  const auto weights = [](const Graph& graph, const std::string& op) {
    return ConstantOf(graph, Find(graph, op)->inputs[1])->dtype();
  };
  const std::vector<int64_t> dims = {8, 16, 3, 3};
  // Bytes hold what all weights are less their zero point.
  EXPECT_EQ(weights(LayerOfZeros("Conv", dims, {157}, 0), "ConvInteger"), DataType::kI8);
  EXPECT_EQ(weights(LayerOfZeros("Gemm", {8, 16}, {157}, 0), "MatMulInteger"), DataType::kI8);
  EXPECT_EQ(weights(LayerOfZeros("Conv", dims, std::vector<uint8_t>(8, 157), 0), "ConvInteger"),
            DataType::kI8);
  // They do not, of few, or where each channel has its own.
  const Graph few = LayerOfZeros("Conv", dims, {157}, 1);
  EXPECT_EQ(weights(few, "ConvInteger"), DataType::kU8);
  EXPECT_EQ(ConstantOf(few, Find(few, "ConvInteger")->inputs[3])->IntAt(0), 157);
  EXPECT_EQ(weights(LayerOfZeros("Conv", {16, 1, 3, 3}, {204}, 100, 16), "ConvInteger"),
            DataType::kU8);
  // Many words, groups, products, with several zero points: floats.
  EXPECT_EQ(CountOps(LayerOfZeros("Conv", dims, {157}, 144 * 4), "Conv"), 1);
  EXPECT_EQ(CountOps(LayerOfZeros("Conv", {8, 4, 3, 3}, {157}, 1, 4), "Conv"), 1);
  EXPECT_EQ(CountOps(LayerOfZeros("Gemm", {8, 16}, {157}, 1), "Gemm"), 1);
  std::vector<uint8_t> zeros(8, 157);
  zeros[3] = 120;
  EXPECT_EQ(CountOps(LayerOfZeros("Conv", dims, zeros, 0), "Conv"), 1);
}

TEST(IntegerPassesTest, ResidualsAndClipsAreScaledAlong) {
  Quantized q({1, 4, 6, 6});
  const ValueId x = q.Pair(q.x, 0.01F, 3);
  const ValueId conv = Add(q.graph, "Conv", {x, q.Kernel({4, 4, 1, 1}, 0)});
  const ValueId sum = Add(q.graph, "Add", {conv, x});
  const ValueId six = q.graph.AddConstant("six", Tensor::ScalarF32(0.6F));
  const ValueId none = q.graph.AddConstant("none", Tensor::ScalarF32(0));
  q.graph.outputs = {q.Pair(Add(q.graph, "Clip", {sum, none, six}), 0.005F, -128)};
  const Graph after = Integers(q.graph, 0.005);
  EXPECT_EQ(CountOps(after, "ConvInteger"), 1);
  const Node* clip = Find(after, "Clip");
  ASSERT_NE(clip, nullptr);
  EXPECT_FLOAT_EQ(static_cast<float>(ConstantOf(after, clip->inputs[2])->FloatAt(0)),
                  0.6F / 0.005F);
}

TEST(IntegerPassesTest, LimitsWhereIntegersEndAreTheirs) {
  for (const auto& [zero, limit, stays] :
       {std::tuple(-128, 1.275F, 0), std::tuple(-128, 1.2F, 1), std::tuple(-100, 1.14F, 1)}) {
    Quantized q({1, 4, 6, 6});
    const ValueId conv = Add(q.graph, "Conv", {q.Pair(q.x, 0.01F, 3), q.Kernel({4, 4, 1, 1}, 0)});
    const ValueId high = q.graph.AddConstant("high", Tensor::ScalarF32(limit));
    const ValueId low = q.graph.AddConstant("low", Tensor::ScalarF32(0));
    const ValueId clip = Add(q.graph, "Clip", {Add(q.graph, "Relu", {conv}), low, high});
    q.graph.outputs = {q.Pair(clip, 0.005F, static_cast<int8_t>(zero))};
    const Graph after = Integers(q.graph, 0.005);
    EXPECT_EQ(CountOps(after, "Clip"), stays) << zero << " " << limit;
    EXPECT_EQ(CountOps(after, "Relu"), stays) << zero << " " << limit;
  }
}

TEST(IntegerPassesTest, OtherReadersKeepTheScale) {
  Quantized q({1, 4, 6, 6});
  const ValueId conv = Add(q.graph, "Conv", {q.Pair(q.x, 0.01F, 3), q.Kernel({4, 4, 1, 1}, 0)});
  q.graph.outputs = {q.Pair(conv, 0.02F, 0), Add(q.graph, "Sigmoid", {conv})};
  const Graph after = Integers(q.graph, 0.02);
  EXPECT_EQ(CountOps(after, "ConvInteger"), 1);
  EXPECT_LE(Difference(q.graph, after), 0.02);
}

TEST(IntegerPassesTest, ProductsOfMatrices) {
  Quantized q({4, 16});
  std::vector<float> bias(10);
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = 0.01F * static_cast<float>(i);
  const ValueId dense = Add(q.graph, "Gemm",
                            {q.Pair(q.x, 0.01F, 3), q.Kernel({10, 16}, 0),
                             q.graph.AddConstant("bias", Tensor::Of(DataType::kF32, {10}, bias))},
                            {{"transB", int64_t{1}}});
  const ValueId next = Add(q.graph, "MatMul", {q.Pair(dense, 0.03F, 1), q.Kernel({10, 6}, 1)});
  q.graph.outputs = {next};
  const Graph after = Integers(q.graph, 0.05);
  EXPECT_EQ(CountOps(after, "MatMulInteger"), 2);
  EXPECT_EQ(CountOps(after, "DequantizeLinear"), 0);
}

// Attention, turned keys included.
TEST(IntegerPassesTest, ProductsOfTwoComputedSides) {
  Quantized q({2, 3, 5, 27});
  const ValueId keys = Add(q.graph, "Transpose", {q.Pair(q.x, 0.01F, 3)},
                           {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  const ValueId scores = Add(q.graph, "MatMul", {q.Pair(q.x, 0.02F, -4), keys});
  const ValueId shares = Add(q.graph, "Softmax", {scores}, {{"axis", int64_t{-1}}});
  const ValueId mixed =
      Add(q.graph, "MatMul", {q.Pair(shares, 1 / 255.0F, -128), q.Pair(q.x, 0.02F, -4)});
  q.graph.outputs = {q.Pair(mixed, 0.01F, 1)};
  const Graph after = Integers(q.graph, 0.01);
  EXPECT_EQ(CountOps(after, "MatMulInteger"), 2);
  EXPECT_EQ(CountOps(after, "MatMul"), 0);
  EXPECT_EQ(CountOps(after, "DequantizeLinear"), 1);  // of the result
  const Node* node = Find(after, "MatMulInteger");
  ASSERT_EQ(node->inputs.size(), 4U);
  EXPECT_EQ(ConstantOf(after, node->inputs[3])->IntAt(0), 3);
}

// Nobody knows how many terms the sums have, or there are too many.
TEST(IntegerPassesTest, ComputedSidesWhoseSumsMayOverflowStayInFloat) {
  for (const bool known : {true, false}) {
    Quantized q({4});
    const Dim depth =
        known ? Dim(40000) : Dim::OfSymbol(q.graph.symbols->AddInput("depth", {1, 1}));
    const ValueId a = q.Input("a", {2, depth}), b = q.Input("b", {depth, 2});
    q.graph.outputs = {Add(q.graph, "MatMul", {q.Pair(a, 0.01F, -128), q.Pair(b, 0.01F, 127)})};
    EXPECT_EQ(CountOps(AfterIntegers(q.graph), "MatMul"), 1) << known;
  }
}

TEST(IntegerPassesTest, WhatMovesWorksOnIntegers) {
  Quantized q({1, 4, 8, 8});
  const ValueId x = q.Pair(q.x, 0.01F, 3);
  const ValueId pooled =
      Add(q.graph, "MaxPool", {x},
          {{"kernel_shape", std::vector<int64_t>{2, 2}}, {"strides", std::vector<int64_t>{2, 2}}});
  const ValueId again = q.Pair(pooled, 0.01F, 3);
  const ValueId conv = Add(q.graph, "Conv", {again, q.Kernel({4, 4, 1, 1}, 0)});
  q.graph.outputs = {q.Pair(conv, 0.02F, 0)};
  const Graph after = Integers(q.graph, 0.02);
  EXPECT_EQ(CountOps(after, "QuantizeLinear"), 2);
  const Node* pool = Find(after, "MaxPool");
  ASSERT_NE(pool, nullptr);
  EXPECT_EQ(after.value(pool->outputs[0]).type.dtype, DataType::kI8);
}

TEST(IntegerPassesTest, AveragesBetweenIntegers) {
  const std::vector<int64_t> two = {2, 2};
  for (const char* op : {"AveragePool", "GlobalAveragePool", "ReduceMean"}) {
    Quantized q({2, 3, 6, 8});
    std::vector<ValueId> operands = {q.Pair(q.x, 0.01F, 3)};
    std::map<std::string, Attribute> attributes;
    if (op == std::string("AveragePool")) attributes = {{"kernel_shape", two}, {"strides", two}};
    if (op == std::string("ReduceMean")) {
      operands.push_back(q.graph.AddConstant("axes", Tensor::I64({3, -2})));
      attributes = {{"keepdims", int64_t{0}}};
    }
    q.graph.outputs = {q.Pair(Add(q.graph, op, operands, attributes), 0.004F, -20)};
    const Graph after = Integers(q.graph, 0.004);
    EXPECT_EQ(CountOps(after, "q.average_pool"), 1) << op;
    EXPECT_EQ(CountOps(after, op), 0) << op;
    EXPECT_EQ(CountOps(after, "DequantizeLinear"), 1) << op;  // the output
  }
}

TEST(IntegerPassesTest, AveragesOfOtherFormsStayInFloat) {
  Quantized q({2, 3, 6, 8});
  const ValueId x = q.Pair(q.x, 0.01F, 3);
  const auto mean = [&](std::vector<int64_t> axes) {
    const ValueId list = q.graph.AddConstant("axes", Tensor::I64(axes));
    return Add(q.graph, "ReduceMean", {x, list});
  };
  const ValueId read_twice = Add(q.graph, "GlobalAveragePool", {x});
  const ValueId large = Add(q.graph, "GlobalAveragePool", {q.Pair(q.x, 1e30F, 3)});
  q.graph.outputs = {q.Q(mean({1, 2}), 0.01F, 0), q.Q(mean({3}), 0.01F, 0),
                     q.Q(read_twice, 0.01F, 0), Add(q.graph, "Relu", {read_twice}),
                     q.Q(large, 1e-30F, 0)};
  EXPECT_EQ(CountOps(Integers(q.graph, 0.01), "q.average_pool"), 0);
}

// The sum of so many bytes might not fit i32; the graph is not run.
TEST(IntegerPassesTest, AveragesOfAnySizeStayInFloat) {
  Quantized q({1, 1, 4, 4});
  const Dim n = Dim::OfSymbol(q.graph.symbols->AddInput("n", {0, 2}));
  q.graph.value(q.x).type = Type::Tensor(DataType::kF32, {1, 1, n, 4});
  q.graph.outputs = {q.Q(Add(q.graph, "GlobalAveragePool", {q.Pair(q.x, 0.01F, 3)}), 0.01F, 0)};
  const auto after = RunIntegerPasses(q.graph);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(CountOps(*after, "q.average_pool"), 0);
}

TEST(IntegerPassesTest, ATransposedKernelIsStillOne) {
  Quantized q({4, 16});
  const ValueId w =
      Add(q.graph, "Transpose", {q.Kernel({6, 16}, 0)}, {{"perm", std::vector<int64_t>{1, 0}}});
  q.graph.outputs = {Add(q.graph, "MatMul", {q.Pair(q.x, 0.01F, 0), w})};
  const Graph after = Integers(q.graph, 0.05);
  EXPECT_EQ(CountOps(after, "MatMulInteger"), 1);
  EXPECT_EQ(CountOps(after, "Transpose"), 0);
}

TEST(IntegerPassesTest, LinearOperatorsAreWhatTheyStandFor) {
  Quantized q({1, 2, 5, 5});
  const auto u8 = [&](uint8_t value) {
    return q.graph.AddConstant("zero", Tensor::Of(DataType::kU8, {}, std::vector<uint8_t>{value}));
  };
  Tensor weights = Tensor::Zeros(DataType::kU8, {3, 2, 3, 3});
  for (int64_t i = 0; i < weights.size(); ++i)
    weights.mutable_bytes()[i] = static_cast<std::byte>(i * 29);
  const ValueId scales = q.graph.AddConstant(
      "scales", Tensor::Of(DataType::kF32, {3}, std::vector<float>{0.004F, 0.01F, 0.002F}));
  const ValueId zeros = q.graph.AddConstant(
      "zeros", Tensor::Of(DataType::kU8, {3}, std::vector<uint8_t>{128, 128, 128}));
  const ValueId bias = q.graph.AddConstant(
      "bias", Tensor::Of(DataType::kI32, {3}, std::vector<int32_t>{5, -700, 90}));
  const ValueId x = Add(q.graph, "QuantizeLinear", {q.x, q.Scale(0.01F), u8(120)});
  const ValueId conv = Add(q.graph, "QLinearConv",
                           {x, q.Scale(0.01F), u8(120), q.graph.AddConstant("w", weights), scales,
                            zeros, q.Scale(0.03F), u8(100), bias});
  const ValueId flat =
      Add(q.graph, "Reshape", {conv, q.graph.AddConstant("to", Tensor::I64({3, 9}))});
  Tensor matrix = Tensor::Zeros(DataType::kI8, {9, 4});
  for (int64_t i = 0; i < matrix.size(); ++i)
    matrix.mutable_bytes()[i] = static_cast<std::byte>(i * 53);
  const ValueId y = Add(q.graph, "QLinearMatMul",
                        {flat, q.Scale(0.03F), u8(100), q.graph.AddConstant("m", matrix),
                         q.Scale(0.01F), q.Zero(0), q.Scale(0.2F), u8(130)});
  q.graph.outputs = {Add(q.graph, "DequantizeLinear", {y, q.Scale(0.2F), u8(130)})};
  const Graph after = Integers(q.graph, 0.2);
  EXPECT_EQ(CountOps(after, "ConvInteger"), 1);
  EXPECT_EQ(CountOps(after, "MatMulInteger"), 1);
  EXPECT_EQ(CountOps(after, "QLinearConv") + CountOps(after, "QLinearMatMul"), 0);
  for (const Node& node : after.nodes) {
    if (node.op == "ConvInteger") {
      EXPECT_EQ(ConstantOf(after, node.inputs[1])->dtype(), DataType::kI8);
    }
  }
}

// Shares add up to 1, however many there are.
TEST(IntegerPassesTest, SharesOfAnyNumberFit) {
  for (const int64_t axis : {-1, 1, 0}) {
    Quantized q({4});
    const Dim depth = Dim::OfSymbol(q.graph.symbols->AddInput("depth", {1, 1}));
    const ValueId a = q.Input("a", {2, depth}), b = q.Input("b", {depth, 2});
    const ValueId shares = Add(q.graph, "Softmax", {a}, {{"axis", axis}});
    q.graph.outputs = {
        Add(q.graph, "MatMul", {q.Pair(shares, 1 / 255.0F, -128), q.Pair(b, 0.01F, 3)})};
    const int expected = axis == 0 ? 0 : 1;
    EXPECT_EQ(CountOps(AfterIntegers(q.graph), "MatMulInteger"), expected) << axis;
  }
}

TEST(IntegerPassesTest, DynamicRangesAreAFactor) {
  Quantized q({2, 16});
  const NodeId dynamic = q.graph.AddNode("DynamicQuantizeLinear", "dynamic", {q.x}, 3);
  const std::vector<ValueId> parts = q.graph.node(dynamic).outputs;
  q.graph.value(parts[0]).type = Type::Tensor(DataType::kU8, {2, 16});
  q.graph.value(parts[1]).type = Type::Tensor(DataType::kF32, {});
  q.graph.value(parts[2]).type = Type::Tensor(DataType::kU8, {});
  const ValueId x = Add(q.graph, "DequantizeLinear", {parts[0], parts[1], parts[2]});
  q.graph.outputs = {Add(q.graph, "MatMul", {x, q.Kernel({16, 6}, 1)})};
  const Graph after = Integers(q.graph, 1e-2);
  EXPECT_EQ(CountOps(after, "MatMulInteger"), 1);
  EXPECT_EQ(CountOps(after, "Mul"), 2);
  EXPECT_EQ(CountOps(after, "DequantizeLinear"), 0);
}

TEST(IntegerPassesTest, DynamicRangesOfBothSidesAreFactors) {
  Quantized q({4, 4});
  const auto dynamic = [&](ValueId value) {
    const NodeId node = q.graph.AddNode("DynamicQuantizeLinear", "dynamic", {value}, 3);
    const std::vector<ValueId> parts = q.graph.node(node).outputs;
    q.graph.value(parts[0]).type = Type::Tensor(DataType::kU8, {4, 4});
    q.graph.value(parts[1]).type = Type::Tensor(DataType::kF32, {});
    q.graph.value(parts[2]).type = Type::Tensor(DataType::kU8, {});
    return Add(q.graph, "DequantizeLinear", {parts[0], parts[1], parts[2]});
  };
  const ValueId y = q.Input("y", {4, 4});
  q.graph.outputs = {Add(q.graph, "MatMul", {dynamic(q.x), dynamic(y)})};
  const Graph after = Integers(q.graph, 1e-2);
  EXPECT_EQ(CountOps(after, "MatMulInteger"), 1);
  EXPECT_EQ(CountOps(after, "Mul"), 3);
  EXPECT_EQ(CountOps(after, "DequantizeLinear"), 0);
}

TEST(IntegerPassesTest, WeightsAround128AreSigned) {
  Quantized q({2, 8});
  Tensor weights = Tensor::Zeros(DataType::kU8, {8, 3});
  for (int64_t i = 0; i < weights.size(); ++i)
    weights.mutable_bytes()[i] = static_cast<std::byte>(i * 31);
  const ValueId zero =
      q.graph.AddConstant("zero", Tensor::Of(DataType::kU8, {}, std::vector<uint8_t>{128}));
  const ValueId x = q.Q(q.x, 0.01F, 3);
  q.graph.outputs = {
      Add(q.graph, "MatMulInteger", {x, q.graph.AddConstant("w", weights), q.Zero(3), zero})};
  const Graph after = Integers(q.graph, 0);
  const Node* product = Find(after, "MatMulInteger");
  ASSERT_NE(product, nullptr);
  EXPECT_EQ(ConstantOf(after, product->inputs[1])->dtype(), DataType::kI8);
  EXPECT_EQ(product->inputs.size(), 3u);
}

TEST(IntegerPassesTest, BiasesOfOtherFormsStayInFloat) {
  // One that is computed while running, and a column, which is added to rows.
  for (const bool column : {false, true}) {
    Quantized q({8, 16});
    const ValueId bias =
        column ? Add(q.graph, "DequantizeLinear",
                     {q.graph.AddConstant("b",
                                          Tensor::Of(DataType::kI32, {8, 1},
                                                     std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8})),
                      q.Scale(0.01F * 0.004F)})
               : q.Pair(q.Input("c", {8}), 0.01F, 2);
    Tensor integers = Tensor::Zeros(DataType::kI8, {16, 8});
    for (int64_t i = 0; i < integers.size(); ++i)
      integers.mutable_bytes()[i] = static_cast<std::byte>(i * 7);
    const ValueId w =
        Add(q.graph, "DequantizeLinear", {q.graph.AddConstant("w", integers), q.Scale(0.004F)});
    q.graph.outputs = {Add(q.graph, "Gemm", {q.Pair(q.x, 0.01F, 0), w, bias})};
    const Graph after = Integers(q.graph, 1e-3);
    EXPECT_EQ(CountOps(after, "Gemm"), 1);
  }
}

TEST(IntegerPassesTest, AScaleThatMayBeNegativeStaysBeforeMaxPool) {
  Quantized q({1, 2, 4, 4});
  const ValueId scale = q.graph.AddInput("s", Type::Tensor(DataType::kF32, {}));
  const ValueId real = Add(q.graph, "DequantizeLinear", {q.Q(q.x, 0.01F, 3), scale, q.Zero(3)});
  q.graph.outputs = {
      Add(q.graph, "MaxPool", {real}, {{"kernel_shape", std::vector<int64_t>{2, 2}}})};
  const Graph after = Integers(q.graph, 1e-6);
  EXPECT_EQ(after.value(Find(after, "MaxPool")->outputs[0]).type.dtype, DataType::kF32);
}

TEST(IntegerPassesTest, WhatMovesKeepsItsName) {
  Quantized q({1, 2, 4, 4});
  const ValueId pooled = Add(q.graph, "MaxPool", {q.Pair(q.x, 0.01F, 3)},
                             {{"kernel_shape", std::vector<int64_t>{2, 2}}}, "pool");
  q.graph.outputs = {Add(q.graph, "Relu", {pooled})};
  EXPECT_EQ(Find(Integers(q.graph, 1e-6), "MaxPool")->name, "pool");
}

TEST(FoldConstantsTest, DequantizedConstantsWaitForIntegersOnly) {
  for (const bool quantized : {false, true}) {
    Quantized q({1, 3, 6, 6});
    const ValueId x = quantized ? q.Pair(q.x, 0.01F, 0) : q.x;
    q.graph.outputs = {Add(q.graph, "Conv", {x, q.Kernel({4, 3, 3, 3}, 0)})};
    const Graph after = After("fold_constants", q.graph);
    EXPECT_EQ(CountOps(after, "DequantizeLinear"), quantized ? 2 : 0);
  }
}

TEST(IntegerPassesTest, SumsThatOverflowStayInFloat) {
  Quantized q({1, 70000});
  Tensor integers = Tensor::Zeros(DataType::kI8, {70000, 1});
  for (int64_t i = 0; i < integers.size(); ++i) integers.mutable_bytes()[i] = std::byte{127};
  const ValueId w = Add(q.graph, "DequantizeLinear",
                        {q.graph.AddConstant("w", integers), q.Scale(0.001F), q.Zero(0)});
  q.graph.outputs = {Add(q.graph, "MatMul", {q.Pair(q.x, 0.01F, -128), w})};
  const Graph after = Integers(q.graph, 1e-3);
  EXPECT_EQ(CountOps(after, "q.weight_only_matmul"), 1);
  EXPECT_EQ(CountOps(after, "MatMulInteger"), 0);
  EXPECT_EQ(CountOps(after, "DequantizeLinear"), 1);  // not the weights: who reads them does that
}

TEST(IntegerPassesTest, SmallWeightsOfFloatProductsBecomeFloats) {
  for (const int64_t k : {8, 512}) {
    ValueId x;
    Graph graph = ImageGraph(&x, {2, k});
    Tensor integers = Tensor::Zeros(DataType::kI4, {k, 8});
    for (size_t i = 0; i < integers.bytes().size(); ++i)
      integers.mutable_bytes()[i] = static_cast<std::byte>(i * 89);
    const ValueId w =
        Add(graph, "DequantizeLinear",
            {graph.AddConstant("w", integers), graph.AddConstant("s", RandomTensor({k / 4, 8}, 3))},
            {{"axis", int64_t{0}}, {"block_size", int64_t{4}}});
    graph.outputs = {Add(graph, "MatMul", {x, w})};
    const Graph after = Integers(After("fold_constants", graph), 1e-5);
    EXPECT_EQ(CountOps(after, "q.weight_only_matmul"), k == 512 ? 1 : 0);
    EXPECT_EQ(CountOps(after, "DequantizeLinear"), 0);
  }
}

TEST(FuseGroupsTest, GroupsHandOnIntegers) {
  Quantized q({1, 4, 6, 6});
  const ValueId x = q.Pair(q.x, 0.01F, 3);
  const ValueId a = q.Pair(Add(q.graph, "Conv", {x, q.Kernel({4, 4, 1, 1}, 0)}), 0.03F, 1);
  const ValueId b = Add(q.graph, "Conv", {x, q.Kernel({4, 4, 1, 1}, 0)});
  q.graph.outputs = {q.Pair(Add(q.graph, "Relu", {Add(q.graph, "Add", {b, a})}), 0.02F, -128)};
  const Graph after = After("fuse_groups", Integers(q.graph, 0.02));
  for (const Node& node : after.nodes) {
    if (node.op != "q.fused") continue;
    EXPECT_EQ(after.value(node.outputs[0]).type.dtype, DataType::kI8) << node.name;
  }
  EXPECT_EQ(CountOps(after, "q.fused"), 2);
  EXPECT_EQ(CountOps(after, "DequantizeLinear"), 1);  // the output
}

}  // namespace
}  // namespace quench::passes::integer_passes_test
