#include "services/quantizer/quantize.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/status.h"
#include "common/ir/hash.h"
#include "common/ir/verify.h"
#include "common/ops/evaluate.h"
#include "common/ops/op.h"
#include "services/quantizer/calibrate.h"
#include "services/quantizer/methods/method.h"
#include "tests/support/graphs.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/quantizer/support.h"

namespace quench::quantizer::quantize_test {
namespace {

using ::quench::testing::Add;
using ::quench::testing::CountOps;
using ::quench::testing::HasSubstr;
using ::quench::testing::RandomInputsFor;
using ::quench::testing::RandomTensor;

// Signal to quantization noise, in decibels.
double Sqnr(const Graph& graph, const Graph& quantized) {
  double signal = 0, noise = 0;
  for (uint64_t seed = 1; seed < 3; ++seed) {
    const std::vector<Tensor> inputs = RandomInputsFor(graph, seed);
    const auto a = ops::Evaluate(graph, inputs), b = ops::Evaluate(quantized, inputs);
    EXPECT_TRUE(a.ok()) << a.status();
    EXPECT_TRUE(b.ok()) << b.status();
    if (!a.ok() || !b.ok()) return -1;
    for (int64_t i = 0; i < (*a)[0].size(); ++i) {
      const double x = (*a)[0].FloatAt(i), y = (*b)[0].FloatAt(i);
      signal += x * x;
      noise += (x - y) * (x - y);
    }
  }
  return 10 * std::log10(signal / std::max(noise, 1e-300));
}

const Node* NodeOf(const Graph& graph, const std::string& value) {
  const auto id = graph.FindValue(value);
  return id && graph.value(*id).producer != kNone ? &graph.node(graph.value(*id).producer)
                                                  : nullptr;
}

// x / sqrt(mean of squares): near zero a step of the denominator would be many times the quotient.
TEST(Quantize, DenominatorsStayInFloat) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {4, 16}));
  const ValueId squares = Add(graph, "Mul", {x, x});
  const ValueId mean =
      Add(graph, "ReduceMean", {squares, graph.AddConstant("axes", Tensor::I64({1}))});
  const ValueId root = Add(graph, "Sqrt", {mean}, {}, "root");
  const ValueId norm = Add(graph, "Div", {x, root}, {}, "norm");
  const ValueId half =
      Add(graph, "Div", {norm, graph.AddConstant("two", Tensor::ScalarF32(2))}, {}, "half");
  const ValueId pooled = Add(graph, "Transpose", {half}, {}, "moved");
  graph.outputs = {Add(graph, "MatMul", {graph.AddConstant("w", RandomTensor({3, 16}, 3)), pooled}),
                   Add(graph, "MatMul", {half, graph.AddConstant("v", RandomTensor({16, 5}, 4))})};
  const Statistics statistics = Seen(graph);
  const auto result = Quantize(graph, &statistics, {});
  ASSERT_TRUE(result.ok()) << result.status();
  for (const Node& node : result->graph.nodes) {
    if (node.op != "QuantizeLinear") continue;
    const std::string& name = result->graph.value(node.inputs[0]).name;
    EXPECT_TRUE(name == "half" || name == "moved") << name;
  }
  EXPECT_GT(Sqnr(graph, result->graph), 25);
}

// Two states side by side, of very different ranges: each has its own scale once it is cut out.
TEST(Quantize, NarrowPartsAreCutOutInFloat) {
  for (const float wide : {50.0F, 1.0F}) {
    Graph graph;
    const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {2, 16}));
    std::vector<float> factors(16, wide);
    factors.insert(factors.end(), 16, 1.0F);
    const ValueId scaled =
        Add(graph, "Mul", {x, graph.AddConstant("f", Tensor::Of(DataType::kF32, {2, 16}, factors))},
            {}, "states");
    const auto part = [&](int64_t row, const char* name) {
      return Add(graph, "Slice",
                 {scaled, graph.AddConstant("from", Tensor::I64({row})),
                  graph.AddConstant("to", Tensor::I64({row + 1})),
                  graph.AddConstant("axis", Tensor::I64({0}))},
                 {}, name);
    };
    const ValueId w = graph.AddConstant("w", RandomTensor({16, 8}, 5));
    graph.outputs = {Add(graph, "MatMul", {part(1, "narrow"), w}),
                     Add(graph, "MatMul", {part(0, "wide"), w})};
    const Statistics statistics = Seen(graph);
    const auto result = Quantize(graph, &statistics, {});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_GT(Sqnr(graph, result->graph), 25);  // of the narrow one
    const Node* slice = NodeOf(result->graph, "narrow");
    ASSERT_NE(slice, nullptr);
    const Node* before = &result->graph.node(result->graph.value(slice->inputs[0]).producer);
    EXPECT_EQ(before->op == "DequantizeLinear", wide == 1) << before->op;
  }
}

TEST(Quantize, PutsPairsAroundProductsAndLeavesTheirInsides) {
  const Graph graph = ResidualNetwork();
  const Statistics statistics = Seen(graph);
  const auto result = Quantize(graph, &statistics, {});
  ASSERT_TRUE(result.ok()) << result.status();
  const Graph& quantized = result->graph;
  EXPECT_TRUE(VerifyGraph(quantized).ok()) << VerifyGraph(quantized);
  EXPECT_EQ(quantized.stage, Stage::kQuantized);
  EXPECT_EQ(quantized.metadata.at("is_quantized"), "true");
  EXPECT_EQ(quantized.metadata.at("is_calibrated"), "true");
  // x, r1, r2, pool, flat; c1, c2 and sum are inside of what is computed at once, fc is the output.
  EXPECT_EQ(CountOps(quantized, "QuantizeLinear"), 5);
  EXPECT_EQ(result->report.static_values, 5);
  // Those and three kernels and two biases.
  EXPECT_EQ(CountOps(quantized, "DequantizeLinear"), 10);
  EXPECT_EQ(result->report.weights, 5);
  EXPECT_NE(NodeOf(quantized, "r1.q"), nullptr);
  EXPECT_EQ(NodeOf(quantized, "c1.q"), nullptr);
  EXPECT_EQ(quantized.value(quantized.outputs[0]).name, "fc");
  EXPECT_GT(Sqnr(graph, quantized), 30);
  for (const LayerChoice& layer : result->report.layers) EXPECT_TRUE(layer.quantized);
}

// A module may come from anywhere: what it says of its values is inferred again.
TEST(Quantize, TypesAreInferredAfresh) {
  Graph graph = ResidualNetwork();
  Statistics statistics = Seen(graph);
  for (Value& value : graph.values) {
    if (value.producer != kNone) value.type = {};
  }
  statistics.fingerprint = Fingerprint(graph);
  const auto result = Quantize(graph, &statistics, {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(CountOps(result->graph, "QuantizeLinear"), 5);
}

TEST(Quantize, WhatMovesSharesItsScale) {
  const Graph graph = ResidualNetwork();
  const Statistics statistics = Seen(graph);
  const auto result = Quantize(graph, &statistics, {});
  ASSERT_TRUE(result.ok()) << result.status();
  const auto scale = [&](const std::string& value) {
    const Node* node = NodeOf(result->graph, value + ".q");
    return node == nullptr ? -1 : result->graph.value(node->inputs[1]).constant->tensor.FloatAt(0);
  };
  EXPECT_EQ(scale("r2"), scale("pool"));
  EXPECT_EQ(scale("r2"), scale("flat"));
  EXPECT_NE(scale("r2"), scale("r1"));
}

TEST(Quantize, PerChannelRescuesUnevenChannels) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 16}));
  Tensor w = RandomTensor({16, 2}, 1);
  for (int i = 0; i < 32; i += 2) reinterpret_cast<float*>(w.mutable_bytes())[i] /= 1000;
  graph.outputs = {Add(graph, "MatMul", {x, graph.AddConstant("w", w)}, {}, "y")};
  const Statistics statistics = Seen(graph);
  // Error of the output whose weights are small.
  const auto error = [&](bool per_channel) {
    QuantizeOptions options;
    options.per_channel = per_channel;
    options.include = {"y"};  // though two columns gain nothing
    const auto result = Quantize(graph, &statistics, options);
    EXPECT_TRUE(result.ok()) << result.status();
    const Node* kernel = NodeOf(result->graph, "w.real");
    EXPECT_EQ(kernel->Int("axis", -1), per_channel ? 1 : -1);
    const std::vector<Tensor> inputs = RandomInputsFor(graph, 1);
    const double exact = (*ops::Evaluate(graph, inputs))[0].FloatAt(0);
    return std::abs((*ops::Evaluate(result->graph, inputs))[0].FloatAt(0) - exact) /
           std::abs(exact);
  };
  EXPECT_GT(error(false), 0.5);
  EXPECT_LT(error(true), 0.1);
}

class QuantizeOptionsTest : public ::testing::Test {
 protected:
  double SqnrWith(const QuantizeOptions& options) const {
    const auto result = Quantize(graph_, &statistics_, options);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? Sqnr(graph_, result->graph) : -1;
  }
  const Graph graph_ = ResidualNetwork();
  const Statistics statistics_ = Seen(graph_);
};

TEST_F(QuantizeOptionsTest, EveryMethodKeepsTheFunction) {
  for (const MethodInfo& method : AllMethods()) {
    for (const bool symmetric : {false, true}) {
      QuantizeOptions options;
      options.symmetric = symmetric;
      options.method = method.name;
      if (method.name == "percentile") options.percentile = 99.99;
      EXPECT_GT(SqnrWith(options), 18) << method.name << " " << symmetric;
    }
  }
}

TEST_F(QuantizeOptionsTest, EveryDtypeKeepsTheFunction) {
  for (const DataType activation : {DataType::kI8, DataType::kU8}) {
    for (const DataType kernel : {DataType::kI8, DataType::kU8}) {
      for (const bool per_channel : {false, true}) {
        QuantizeOptions options;
        options.activation_dtype = activation;
        options.kernel_dtype = kernel;
        options.per_channel = per_channel;
        EXPECT_GT(SqnrWith(options), 30) << DataTypeName(activation) << DataTypeName(kernel);
      }
    }
  }
}

// Means of each output, of both graphs over many samples.
double MeanError(const Graph& graph, const Graph& quantized) {
  std::map<int64_t, double> error;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const std::vector<Tensor> inputs = RandomInputsFor(graph, seed);
    const auto a = ops::Evaluate(graph, inputs), b = ops::Evaluate(quantized, inputs);
    for (int64_t i = 0; i < (*a)[0].size(); ++i)
      error[i] += (*b)[0].FloatAt(i) - (*a)[0].FloatAt(i);
  }
  double sum = 0;
  for (const auto& [i, each] : error) sum += std::abs(each);
  return sum;
}

TEST(Quantize, BiasCorrectionTakesTheMeanErrorAway) {
  // Kernels of few levels, with inputs whose mean is far from zero: rounding moves the mean.
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 3, 8, 8}));
  const ValueId moved =
      Add(graph, "Add", {x, graph.AddConstant("two", Tensor::ScalarF32(2))}, {}, "moved");
  Tensor w = RandomTensor({4, 3, 3, 3}, 3);
  for (int i = 0; i < 4; ++i) reinterpret_cast<float*>(w.mutable_bytes())[i * 27] = 40;
  ValueId y = Add(graph, "Conv", {moved, graph.AddConstant("w", w)}, {}, "conv");
  y = Add(graph, "Relu", {y}, {}, "r");
  y = Add(graph, "Flatten", {y}, {}, "flat");
  graph.outputs = {Add(graph, "Gemm",
                       {y, graph.AddConstant("v", RandomTensor({144, 5}, 4)),
                        graph.AddConstant("b", RandomTensor({5}, 5))},
                       {}, "fc")};
  const Statistics statistics = Seen(graph);
  QuantizeOptions options;
  options.method = "minmax";
  const auto plain = Quantize(graph, &statistics, options);
  options.bias_correction = true;
  const auto corrected = Quantize(graph, &statistics, options);
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_TRUE(corrected.ok()) << corrected.status();
  EXPECT_EQ(corrected->report.corrected_biases, 2);  // the convolution had none
  EXPECT_TRUE(VerifyGraph(corrected->graph).ok());
  EXPECT_LT(MeanError(graph, corrected->graph), 0.5 * MeanError(graph, plain->graph));
  const auto none = Quantize(graph, nullptr, options);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_PRED1(HasSubstr("no bias was corrected"),
               fmt::format("{}", fmt::join(none->report.warnings, "\n")));
}

TEST_F(QuantizeOptionsTest, CoarserStepsCostDecibels) {
  QuantizeOptions options;
  options.method = "minmax";
  const double free = SqnrWith(options);
  options.power_of_two = true;
  const double shifts = SqnrWith(options);
  EXPECT_LT(shifts, free);
  EXPECT_GT(shifts, 24);
  options.bias_dtype = DataType::kI8;
  EXPECT_GT(SqnrWith(options), 20);
}

TEST(Quantize, DynamicNeedsNoStatistics) {
  const Graph graph = ResidualNetwork();
  QuantizeOptions options;
  options.source = RangeSource::kDynamic;
  const auto result = Quantize(graph, nullptr, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(CountOps(result->graph, "DynamicQuantizeLinear"), 3);  // inputs of products only
  EXPECT_EQ(CountOps(result->graph, "QuantizeLinear"), 0);
  EXPECT_FALSE(result->graph.metadata.contains("is_calibrated"));
  EXPECT_GT(Sqnr(graph, result->graph), 30);
}

TEST(Quantize, AnyTakesStatisticsWhereThereAreSome) {
  const Graph graph = ResidualNetwork();
  Statistics statistics = Seen(graph);
  statistics.values.erase("r1");
  const auto result = Quantize(graph, &statistics, {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->report.dynamic_values, 1);
  EXPECT_GT(result->report.static_values, 2);
  EXPECT_GT(Sqnr(graph, result->graph), 30);
  QuantizeOptions options;
  options.source = RangeSource::kStatic;
  EXPECT_PRED1(HasSubstr("`r1`"), MessageOf(Quantize(graph, &statistics, options).status()));
  EXPECT_PRED1(HasSubstr("calibrate first"), MessageOf(Quantize(graph, nullptr, options).status()));
}

TEST(Quantize, IncludeAndExcludeChooseNodes) {
  const Graph graph = ResidualNetwork();
  const Statistics statistics = Seen(graph);
  QuantizeOptions options;
  options.exclude = {"fc"};
  auto result = Quantize(graph, &statistics, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(CountOps(result->graph, "QuantizeLinear"), 2);  // x and r1: nobody wants the others
  EXPECT_EQ(result->report.layers.at(2).reason, "excluded");
  options.exclude = {};
  options.include = {"op:Gemm"};
  result = Quantize(graph, &statistics, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(CountOps(result->graph, "QuantizeLinear"), 1);
  options.include = {"c*", "nothing*"};
  options.exclude = {"op:LSTM"};
  const std::string text = MessageOf(Quantize(graph, &statistics, options).status());
  EXPECT_PRED1(HasSubstr("include: no node fits `nothing*`"), text);
  EXPECT_PRED1(HasSubstr("exclude: no node fits `op:LSTM`"), text);
}

// x: [rows, depth] times a matrix of `columns`, computed while running or constant.
Graph ProductOf(int64_t rows, int64_t depth, int64_t columns, bool constant) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {rows, depth}));
  const ValueId w = constant ? graph.AddConstant("w", RandomTensor({depth, columns}, 1))
                             : graph.AddInput("w", Type::Tensor(DataType::kF32, {depth, columns}));
  graph.outputs = {Add(graph, "MatMul", {x, w}, {}, "product")};
  EXPECT_TRUE(ops::InferGraph(graph).ok());
  return graph;
}

TEST(Quantize, LayersThatGainNothingStayInFloat) {
  const auto reason_of = [](const Graph& graph, const QuantizeOptions& options = {}) {
    const Statistics statistics = Seen(graph);
    const auto result = Quantize(graph, &statistics, options);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return std::string();
    const LayerChoice& layer = result->report.layers.at(0);
    EXPECT_EQ(layer.quantized, layer.reason.empty());
    EXPECT_EQ(CountOps(result->graph, "QuantizeLinear") > 0, layer.quantized);
    return layer.reason;
  };
  EXPECT_EQ(reason_of(ProductOf(8, 64, 4, true)), "");
  EXPECT_EQ(
      reason_of(ProductOf(8, 64, 3, true)),
      "integers would save no time: only 3.0 multiplications for each number that is quantized "
      "just for this layer");
  EXPECT_EQ(reason_of(ProductOf(64, 64, 64, false)), "");
  EXPECT_PRED1(HasSubstr("save no time: only 2.7 multiplications"),
               reason_of(ProductOf(8, 4, 4, false)));
  QuantizeOptions named;
  named.include = {"product"};
  EXPECT_EQ(reason_of(ProductOf(8, 4, 4, false), named), "");
}

// Numbers that several layers read, or that come out of a layer as integers, cost none of them much.
TEST(Quantize, LayersThatShareTheirIntegersGain) {
  Graph graph = ProductOf(8, 64, 3, true);
  const ValueId other = graph.AddConstant("other", RandomTensor({64, 3}, 2));
  graph.outputs.push_back(Add(graph, "MatMul", {graph.inputs[0], other}, {}, "second"));
  const ValueId wide = graph.AddConstant("wide", RandomTensor({64, 64}, 3));
  const ValueId hidden = Add(graph, "MatMul", {graph.inputs[0], wide}, {}, "hidden");
  graph.outputs.push_back(Add(graph, "MatMul", {hidden, other}, {}, "third"));
  ASSERT_TRUE(ops::InferGraph(graph).ok());
  const Statistics statistics = Seen(graph);
  const auto result = Quantize(graph, &statistics, {});
  ASSERT_TRUE(result.ok()) << result.status();
  for (const LayerChoice& layer : result->report.layers) EXPECT_EQ(layer.reason, "") << layer.node;
}

// As PutsPairsAroundProductsAndLeavesTheirInsides, for runtimes that take operators one by one.
TEST(Quantize, SingleOperatorsStandBetweenIntegers) {
  const Graph graph = ResidualNetwork();
  const Statistics statistics = Seen(graph);
  QuantizeOptions options;
  options.single_operators = true;
  const auto result = Quantize(graph, &statistics, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(VerifyGraph(result->graph).ok()) << VerifyGraph(result->graph);
  for (const char* name : {"x.q", "r1.q", "c2.q", "sum.q", "r2.q", "pool.q", "flat.q"})
    EXPECT_NE(NodeOf(result->graph, name), nullptr) << name;
  EXPECT_EQ(NodeOf(result->graph, "c1.q"), nullptr);  // an activation that clips is part of it
  EXPECT_EQ(NodeOf(result->graph, "fc.q"), nullptr);  // the output
  EXPECT_GT(Sqnr(graph, result->graph), 30);
}

TEST(Quantize, BiasesMayStayFloats) {
  const Graph graph = ResidualNetwork();
  const Statistics statistics = Seen(graph);
  QuantizeOptions options;
  options.bias_dtype = DataType::kF32;
  const auto result = Quantize(graph, &statistics, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->report.weights, 3);
  for (const Value& value : result->graph.values)
    EXPECT_NE(value.type.dtype, DataType::kI32) << value.name;
  EXPECT_GT(Sqnr(graph, result->graph), 30);
}

TEST(Quantize, TwiceOrWithOthersStatisticsIsRefused) {
  const Graph graph = ResidualNetwork();
  Statistics statistics = Seen(graph);
  const auto once = Quantize(graph, &statistics, {});
  ASSERT_TRUE(once.ok()) << once.status();
  EXPECT_PRED1(HasSubstr("quantized already"),
               MessageOf(Quantize(once->graph, nullptr, {}).status()));
  Graph reread = once->graph;
  reread.stage = Stage::kCanonical;  // as an importer gives it
  EXPECT_EQ(Quantize(reread, nullptr, {}).status().code(), absl::StatusCode::kFailedPrecondition);
  statistics.fingerprint = "0123456789abcdef0123";
  EXPECT_PRED1(HasSubstr("calibrate again"), MessageOf(Quantize(graph, &statistics, {}).status()));
}

TEST(Quantize, BadOptionsAreToldTogether) {
  QuantizeOptions options;
  options.activation_dtype = DataType::kI16;
  options.kernel_dtype = DataType::kF32;
  options.bias_dtype = DataType::kF16;
  options.percentile = 20;
  options.method = "kl";
  const std::string text = MessageOf(Quantize(ResidualNetwork(), nullptr, options).status());
  for (const char* part : {"activation dtype is i16, it must be i8 or u8", "kernel dtype is f32",
                           "bias dtype is f16", "percentile is 20", "unknown method `kl`"}) {
    EXPECT_PRED1(HasSubstr(part), text);
  }
}

TEST(Quantize, WeightsThatAreNoNumbersAreNamed) {
  Graph graph = ResidualNetwork();
  const Statistics statistics = Seen(graph);
  Tensor w = RandomTensor({4, 4, 3, 3}, 3);
  reinterpret_cast<float*>(w.mutable_bytes())[7] = NAN;
  auto constant = std::make_shared<Constant>();
  constant->tensor = w;
  graph.value(*graph.FindValue("w2")).constant = constant;
  const absl::Status status = Quantize(graph, nullptr, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_PRED1(HasSubstr("node `c2`: weights: 1 NaN"), MessageOf(status));
}

TEST(Quantize, SumsThatOverflowAreRefused) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 80'000}));
  graph.outputs = {Add(graph, "MatMul",
                       {x, graph.AddConstant("w", Tensor::Of(DataType::kF32, {80'000, 1},
                                                             std::vector<float>(80'000, 1)))},
                       {}, "y")};
  QuantizeOptions options;
  options.include = {"y"};  // though one column gains nothing
  const absl::Status status = Quantize(graph, nullptr, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_PRED1(HasSubstr("node `y`: its sums may reach 2.59"), MessageOf(status));
}

// Each output has its own sum, in whatever layout.
TEST(Quantize, SumsAreCountedForEachOutput) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 64, 2, 2}));
  Tensor w = Tensor::Zeros(DataType::kF32, {64, 600, 2, 2});  // 153,600 elements, 128 for an output
  for (int64_t i = 0; i < w.size(); ++i) reinterpret_cast<float*>(w.mutable_bytes())[i] = 1;
  graph.outputs = {
      Add(graph, "ConvTranspose", {x, graph.AddConstant("w", w)}, {{"group", int64_t{2}}}, "y")};
  EXPECT_TRUE(Quantize(graph, nullptr, {}).ok()) << Quantize(graph, nullptr, {}).status();
}

TEST(Quantize, WhatIsJoinedToMovedValuesIsNotClipped) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 2, 4, 4}));
  Tensor ten = Tensor::Zeros(DataType::kF32, {1, 1, 4, 4});
  for (int i = 0; i < 16; ++i) reinterpret_cast<float*>(ten.mutable_bytes())[i] = 10;
  const ValueId joined =
      Add(graph, "Concat", {x, graph.AddConstant("ten", ten)}, {{"axis", int64_t{1}}}, "joined");
  graph.outputs = {
      Add(graph, "Conv", {joined, graph.AddConstant("w", RandomTensor({4, 3, 3, 3}, 3))}, {}, "y")};
  const Statistics statistics = Seen(graph);
  const auto result = Quantize(graph, &statistics, {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(Sqnr(graph, result->graph), 25);
}

TEST(Quantize, NearlyDeadChannelsKeepTheirBiases) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 3, 4, 4}));
  Tensor w = RandomTensor({4, 3, 3, 3}, 3);
  auto* values = reinterpret_cast<float*>(w.mutable_bytes());
  for (int i = 0; i < 27; ++i) values[i] *= 1e-9f;
  for (int i = 27; i < 54; ++i) values[i] = 0;
  graph.outputs = {Add(graph, "Conv",
                       {x, graph.AddConstant("w", w), graph.AddConstant("b", RandomTensor({4}, 5))},
                       {}, "y")};
  const Statistics statistics = Seen(graph);
  QuantizeOptions options;
  options.per_channel = true;
  const auto result = Quantize(graph, &statistics, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(Sqnr(graph, result->graph), 35);
  EXPECT_PRED1(HasSubstr("stay in float: `y`"),
               fmt::format("{}", fmt::join(result->report.warnings, "\n")));
}

// One number as bias and as factor of the same group: only the bias changes.
TEST(Quantize, ConstantsThatOthersReadTooStayTheirs) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 2, 4, 4}));
  Tensor w = RandomTensor({1, 2, 3, 3}, 3);
  reinterpret_cast<float*>(w.mutable_bytes())[0] = 30;  // coarse steps: the mean moves
  const ValueId half =
      graph.AddConstant("half", Tensor::Of(DataType::kF32, {1}, std::vector<float>{0.5f}));
  const ValueId y = Add(graph, "Conv", {x, graph.AddConstant("w", w), half}, {}, "y");
  graph.outputs = {Add(graph, "Mul", {y, half}, {}, "z")};
  const Statistics statistics = Seen(graph);
  QuantizeOptions options;
  options.bias_correction = true;
  const auto result = Quantize(graph, &statistics, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(Sqnr(graph, result->graph), 30);
  const Node* product = NodeOf(result->graph, "z");
  ASSERT_NE(product, nullptr);
  const Value& factor = result->graph.value(product->inputs[1]);
  ASSERT_NE(factor.constant, nullptr);
  EXPECT_EQ(factor.constant->tensor.FloatAt(0), 0.5);
}

TEST(Quantize, WarnsOfWhatCostsAccuracy) {
  const Graph graph = ResidualNetwork();
  Statistics statistics = Seen(graph, 1);
  statistics.random = true;
  QuantizeOptions options;
  options.bias_dtype = DataType::kI8;
  const auto result = Quantize(graph, &statistics, options);
  ASSERT_TRUE(result.ok()) << result.status();
  const std::string text = fmt::format("{}", fmt::join(result->report.warnings, "\n"));
  EXPECT_PRED1(HasSubstr("random inputs"), text);
  EXPECT_PRED1(HasSubstr("1 sample:"), text);
  EXPECT_PRED1(HasSubstr("8 bits"), text);
}

}  // namespace
}  // namespace quench::quantizer::quantize_test
