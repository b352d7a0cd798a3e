#include "services/quantizer/weight_only.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "common/base/status.h"
#include "common/ir/hash.h"
#include "common/ir/text.h"
#include "common/ir/verify.h"
#include "common/ops/op.h"
#include "services/quantizer/constants.h"
#include "services/quantizer/quantize.h"
#include "services/quantizer/rounding.h"
#include "services/quantizer/switches.h"
#include "services/quantizer/weights.h"
#include "tests/support/graphs.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/quantizer/support.h"

namespace quench::quantizer::weight_only_test {
namespace {

using ::quench::testing::Add;
using ::quench::testing::CountOps;
using ::quench::testing::Difference;
using ::quench::testing::HasSubstr;
using ::quench::testing::RandomTensor;

QuantizeOptions WeightsOnly(DataType dtype) {
  QuantizeOptions options;
  options.source = RangeSource::kWeights;
  options.kernel_dtype = dtype;
  return options;
}

// ids -> table -> product -> gemm, with the table used as weights too, and one small product.
Graph LanguageModel() {
  Graph graph;
  graph.name = "lm";
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {3, 64}));
  const ValueId table = graph.AddConstant("table", RandomTensor({70, 64}, 1));
  const ValueId ids =
      graph.AddConstant("ids", Tensor::Of(DataType::kI64, {3}, std::vector<int64_t>{4, 69, 0}));
  const ValueId rows = Add(graph, "Gather", {table, ids}, {}, "embed");
  const ValueId both = Add(graph, "Add", {x, rows});
  const ValueId h =
      Add(graph, "MatMul", {both, graph.AddConstant("w", RandomTensor({64, 64}, 2))}, {}, "hidden");
  const ValueId logits = Add(graph, "Gemm", {h, table}, {{"transB", int64_t{1}}}, "head");
  graph.outputs = {Add(graph, "MatMul", {logits, graph.AddConstant("s", RandomTensor({70, 3}, 3))},
                       {}, "small")};
  return graph;
}

// x -> LSTM -> sequence of its first direction -> GRU.
Graph RecurrentNetwork() {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {4, 2, 6}));
  const ValueId y = Add(graph, "LSTM",
                        {x, graph.AddConstant("w1", RandomTensor({1, 32, 6}, 1)),
                         graph.AddConstant("r1", RandomTensor({1, 32, 8}, 2)),
                         graph.AddConstant("b1", RandomTensor({1, 64}, 3))},
                        {}, "first");
  const ValueId flat = Add(graph, "Squeeze", {y, graph.AddConstant("one", Tensor::I64({1}))});
  graph.outputs = {Add(graph, "GRU",
                       {flat, graph.AddConstant("w2", RandomTensor({2, 15, 8}, 4)),
                        graph.AddConstant("r2", RandomTensor({2, 15, 5}, 5))},
                       {{"direction", "bidirectional"}}, "second")};
  return graph;
}

// Weights of recurrent layers become bytes, whatever the rest does; the layers are in the report, and
// can be excluded, kept in float, and switched.
TEST(RecurrentLayers, TheirWeightsBecomeBytes) {
  const Graph graph = RecurrentNetwork();
  const Statistics statistics = Seen(graph);
  for (const RangeSource source :
       {RangeSource::kStatic, RangeSource::kDynamic, RangeSource::kWeights}) {
    for (const DataType dtype : {DataType::kI8, DataType::kU8, DataType::kI4}) {
      QuantizeOptions options;
      options.source = source;
      options.kernel_dtype = dtype;
      options.per_channel = source == RangeSource::kDynamic;
      if (dtype == DataType::kI4 && source != RangeSource::kWeights) continue;
      const bool is_static = source == RangeSource::kStatic;
      const auto module = Quantize(graph, is_static ? &statistics : nullptr, options);
      ASSERT_TRUE(module.ok()) << module.status();
      EXPECT_TRUE(VerifyGraph(module->graph).ok()) << VerifyGraph(module->graph);
      EXPECT_EQ(CountOps(module->graph, "DequantizeLinear"), 4);
      EXPECT_EQ(module->report.weights, 4);
      ASSERT_EQ(module->report.layers.size(), 2U);
      EXPECT_EQ(module->report.layers[0].op, "LSTM");
      for (const Node& node : module->graph.nodes) {  // a scale for each gate's unit
        if (node.op != "DequantizeLinear") continue;
        EXPECT_GT(module->graph.value(node.inputs[1]).constant->tensor.size(), 1);
      }
      EXPECT_TRUE(module->report.layers[1].quantized);
      EXPECT_LT(Difference(graph, module->graph), 0.05);
      EXPECT_GT(Difference(graph, module->graph), 0);
    }
  }
}

TEST(RecurrentLayers, AreExcludedAndSwitchedAsOthers) {
  const Graph graph = RecurrentNetwork();
  const Statistics statistics = Seen(graph);
  QuantizeOptions options;
  options.exclude = {"first"};
  const auto one = Quantize(graph, &statistics, options);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->report.weights, 2);
  EXPECT_EQ(one->report.layers[0].reason, "excluded");
  options.exclude.clear();
  options.switches = true;
  const auto switched = Quantize(graph, &statistics, options);
  ASSERT_TRUE(switched.ok()) << switched.status();
  EXPECT_TRUE(VerifyGraph(switched->graph).ok()) << VerifyGraph(switched->graph);
  EXPECT_EQ(SwitchedLayers(switched->graph), (std::vector<std::string>{"first", "second"}));
}

// No element is further from what it stands for than half a step of its block.
TEST(QuantizeBlocks, ErrorsAreAtMostHalfAStep) {
  for (const DataType dtype : {DataType::kI8, DataType::kU8, DataType::kI4, DataType::kU4}) {
    for (const int axis : {0, 1}) {
      const Tensor matrix = RandomTensor({37, 21}, 5);
      const auto blocks = QuantizeBlocks(matrix, axis, 8, {dtype}, false);
      ASSERT_TRUE(blocks.ok()) << blocks.status();
      const std::vector<int64_t> dims =
          axis == 0 ? std::vector<int64_t>{5, 21} : std::vector<int64_t>{37, 3};
      ASSERT_EQ(blocks->scale.dims(), dims);
      for (int64_t i = 0; i < matrix.size(); ++i) {
        const int64_t row = i / 21, column = i % 21;
        const int64_t block = axis == 0 ? row / 8 * 21 + column : row * 3 + column / 8;
        const double step = blocks->scale.FloatAt(block);
        const auto whole =
            static_cast<double>(blocks->integers.IntAt(i) - blocks->zero_point.IntAt(block));
        EXPECT_LE(std::abs(whole * step - matrix.FloatAt(i)), 0.5001 * step)
            << DataTypeName(dtype) << " axis " << axis << " element " << i;
      }
    }
  }
}

TEST(QuantizeBlocks, LeastErrorIsNeverMore) {
  const Tensor matrix = RandomTensor({64, 16}, 7);
  const auto error = [&](bool least) {
    const auto blocks = QuantizeBlocks(matrix, 0, 32, {DataType::kI4}, least);
    EXPECT_TRUE(blocks.ok()) << blocks.status();
    double sum = 0;
    for (int64_t i = 0; i < matrix.size(); ++i) {
      const int64_t block = i / 16 / 32 * 16 + i % 16;
      const double off =
          static_cast<double>(blocks->integers.IntAt(i)) * blocks->scale.FloatAt(block) -
          matrix.FloatAt(i);
      sum += off * off;
    }
    return sum;
  };
  EXPECT_LT(error(true), error(false));
}

TEST(WeightsOnly, ProductsAndTablesBecomeIntegers) {
  const Graph graph = LanguageModel();
  for (const auto& [dtype, tolerance] : {std::pair(DataType::kI8, 0.02),
                                         {DataType::kU8, 0.02},
                                         {DataType::kI4, 0.25},
                                         {DataType::kU4, 0.25}}) {
    const auto result = Quantize(graph, nullptr, WeightsOnly(dtype));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(VerifyGraph(result->graph).ok());
    EXPECT_EQ(result->graph.stage, Stage::kQuantized);
    EXPECT_EQ(result->graph.metadata.at("is_quantized"), "true");
    EXPECT_EQ(CountOps(result->graph, "QuantizeLinear"), 0);
    // The table is one for both of its readers: rows of it, and columns of the product.
    EXPECT_EQ(result->report.weights, 2);
    EXPECT_EQ(CountOps(result->graph, "DequantizeLinear"), 2);
    EXPECT_LE(Difference(graph, result->graph), tolerance) << DataTypeName(dtype);
    ASSERT_EQ(result->report.layers.size(), 4u);
    for (const LayerChoice& layer : result->report.layers) {
      EXPECT_EQ(layer.reason, layer.node == "small" ? "it has only 210 weights" : "");
    }
  }
}

TEST(WeightsOnly, BlocksAreOfTheAxisThatIsSummed) {
  const Graph graph = LanguageModel();
  const auto scales = [&](const Graph& quantized, const char* name) {
    const auto id = quantized.FindValue(name);
    return id ? quantized.value(*id).constant->tensor.dims() : std::vector<int64_t>();
  };
  QuantizeOptions options = WeightsOnly(DataType::kI4);
  auto result = Quantize(graph, nullptr, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(scales(result->graph, "w.scale"), (std::vector<int64_t>{2, 64}));
  EXPECT_EQ(scales(result->graph, "table.scale"), (std::vector<int64_t>{70, 2}));
  options.block_size = 0;
  result = Quantize(graph, nullptr, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(scales(result->graph, "w.scale"), (std::vector<int64_t>{64}));
}

TEST(WeightsOnly, ExcludedLayersStay) {
  QuantizeOptions options = WeightsOnly(DataType::kI8);
  options.exclude = {"hidden"};
  const auto result = Quantize(LanguageModel(), nullptr, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->report.layers[1].reason, "excluded");
  options.exclude = {"hiden"};
  EXPECT_PRED1(HasSubstr("no node fits `hiden`"),
               MessageOf(Quantize(LanguageModel(), nullptr, options).status()));
}

TEST(WeightsOnly, OptionsOfActivationsAreRefusedTogether) {
  QuantizeOptions options = WeightsOnly(DataType::kI16);
  options.block_size = 7;
  options.symmetric = true;
  options.method = "entropy";
  const std::string message = MessageOf(Quantize(LanguageModel(), nullptr, options).status());
  for (const char* part : {"kernel dtype is i16", "block_size is 7", "symmetric is for activations",
                           "method is `entropy`"})
    EXPECT_PRED1(HasSubstr(part), message);
  QuantizeOptions other;
  other.block_size = 32;
  other.kernel_dtype = DataType::kI4;
  const std::string elsewhere = MessageOf(Quantize(LanguageModel(), nullptr, other).status());
  EXPECT_PRED1(HasSubstr("only the type `weights`"), elsewhere);
  EXPECT_PRED1(HasSubstr("kernel dtype is i4"), elsewhere);
  const Statistics statistics;
  EXPECT_PRED1(
      HasSubstr("statistics are for activations"),
      MessageOf(Quantize(LanguageModel(), &statistics, WeightsOnly(DataType::kI8)).status()));
}

// The common part of the branches: rows of a table are added to x, and multiplied.
Graph Branch(const Graph& outer, const std::string& name, uint64_t seed) {
  Graph body;
  body.symbols = outer.symbols;
  const ValueId x = body.AddInput("x", Type::Tensor(DataType::kF32, {3, 64}));
  const ValueId table = body.AddConstant("table", RandomTensor({70, 64}, seed));
  const ValueId ids =
      body.AddConstant("ids", Tensor::Of(DataType::kI64, {3}, std::vector<int64_t>{4, 69, 0}));
  const ValueId rows = Add(body, "Gather", {table, ids}, {}, name + "_embed");
  const ValueId w = body.AddConstant("w", RandomTensor({64, 64}, seed + 1));
  body.outputs = {Add(body, "MatMul", {Add(body, "Add", {x, rows}), w}, {}, name + "_hidden")};
  return body;
}

GraphPtr Shared(Graph graph) { return std::make_shared<const Graph>(std::move(graph)); }

// x -> product -> If {products, and in one branch a Loop with an LSTM}, which takes one branch or,
// `turned`, the other. Constants of different graphs have the same names.
Graph BranchingModel(bool turned) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {3, 64}));
  const ValueId w = graph.AddConstant("w", RandomTensor({64, 64}, 2));
  const ValueId h = Add(graph, "MatMul", {x, w}, {}, "first");
  const ValueId sum = Add(graph, "ReduceSum", {h}, {{"keepdims", int64_t{0}}});
  const ValueId which = Add(graph, turned ? "Less" : "Greater",
                            {sum, graph.AddConstant("zero", Tensor::ScalarF32(0))});
  Graph step;
  step.symbols = graph.symbols;
  step.AddInput("i", Type::Tensor(DataType::kI64, {}));
  const ValueId go = step.AddInput("go", Type::Tensor(DataType::kBool, {}));
  const ValueId state = step.AddInput("state", Type::Tensor(DataType::kF32, {3, 64}));
  const ValueId axis = step.AddConstant("axis", Tensor::I64({1}));
  const ValueId sequence = Add(
      step, "LSTM",
      {Add(step, "Unsqueeze", {state, axis}), step.AddConstant("w", RandomTensor({1, 256, 64}, 5)),
       step.AddConstant("r", RandomTensor({1, 256, 64}, 6))},
      {}, "recurrent");
  const ValueId shape = step.AddConstant("shape", Tensor::I64({3, 64}));
  step.outputs = {go, Add(step, "Reshape", {sequence, shape})};
  Graph other = Branch(graph, "else", 8);
  const ValueId times =
      other.AddConstant("times", Tensor::Of(DataType::kI64, {}, std::vector<int64_t>{3}));
  // Gates far from their ends, where errors stay small.
  const ValueId small =
      Add(other, "Mul", {other.outputs[0], other.AddConstant("few", Tensor::ScalarF32(0.01F))});
  const NodeId loop = other.AddNode("Loop", "loop", {times, quench::kNone, small}, 1,
                                    {{"body", Shared(std::move(step))}});
  other.outputs = {other.node(loop).outputs[0]};
  const NodeId chosen = graph.AddNode("If", "if", {which, h}, 1,
                                      {{"then_branch", Shared(Branch(graph, "then", 3))},
                                       {"else_branch", Shared(std::move(other))}});
  graph.outputs = {graph.node(chosen).outputs[0]};
  EXPECT_TRUE(ops::InferGraph(graph).ok()) << ops::InferGraph(graph);
  return graph;
}

std::vector<std::string> QuantizedLayers(const QuantizeReport& report) {
  std::vector<std::string> names;
  for (const LayerChoice& layer : report.layers) {
    if (layer.quantized) names.push_back(layer.node);
  }
  return names;
}

TEST(WeightsOnly, BodiesAreQuantizedToo) {
  for (const bool turned : {false, true}) {
    const Graph graph = BranchingModel(turned);
    const auto result = Quantize(graph, nullptr, WeightsOnly(DataType::kI8));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(VerifyGraph(result->graph).ok()) << VerifyGraph(result->graph);
    EXPECT_EQ(result->report.weights, 7);
    EXPECT_EQ(QuantizedLayers(result->report),
              (std::vector<std::string>{"first", "else_embed", "else_hidden", "recurrent",
                                        "then_embed", "then_hidden"}));
    EXPECT_LE(Difference(graph, result->graph), 0.05);
    EXPECT_GT(Difference(graph, result->graph), 0);
    std::set<std::string> names;
    ForEachGraph(result->graph, [&](const Graph& each) {
      EXPECT_EQ(each.stage, Stage::kQuantized);
      for (const Node& node : each.nodes) {
        if (node.op == "DequantizeLinear") names.insert(node.name);
      }
    });
    EXPECT_EQ(names.size(), 7U);  // each is one node's
  }
}

TEST(WeightsOnly, PatternsReachIntoBodies) {
  const Graph graph = BranchingModel(false);
  const auto quantized = [&](std::vector<std::string> include, std::vector<std::string> exclude) {
    QuantizeOptions options = WeightsOnly(DataType::kI8);
    options.include = std::move(include);
    options.exclude = std::move(exclude);
    const auto result = Quantize(graph, nullptr, options);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? QuantizedLayers(result->report) : std::vector<std::string>();
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(quantized({"then_hidden"}, {}), (Names{"then_hidden"}));
  EXPECT_EQ(quantized({}, {"else_*", "op:Gather"}), (Names{"first", "recurrent", "then_hidden"}));
  // A node stands for what is in it.
  EXPECT_EQ(quantized({}, {"if"}), (Names{"first"}));
  EXPECT_EQ(quantized({"op:Loop"}, {}), (Names{"recurrent"}));
  EXPECT_EQ(quantized({"if"}, {"loop", "then_embed"}),
            (Names{"else_embed", "else_hidden", "then_hidden"}));
  QuantizeOptions options = WeightsOnly(DataType::kI8);
  options.exclude = {"then_hiden"};
  EXPECT_PRED1(HasSubstr("no node fits `then_hiden`"),
               MessageOf(Quantize(graph, nullptr, options).status()));
  // Ranges are of the main graph alone.
  options.exclude = {"then_hidden"};
  options.source = RangeSource::kDynamic;
  options.block_size.reset();
  EXPECT_PRED1(HasSubstr("no node fits `then_hidden`"),
               MessageOf(Quantize(graph, nullptr, options).status()));
}

// A rounding for a constant of the main graph is not used for another of that name.
TEST(WeightsOnly, AdaptedRoundingIsOfTheMainGraph) {
  const Graph graph = BranchingModel(false);
  QuantizeOptions options = WeightsOnly(DataType::kI8);
  const auto nearest = Quantize(graph, nullptr, options);
  Rounding rounding;
  rounding.fingerprint = Fingerprint(graph);
  rounding.scheme = SchemeWords(options);
  rounding.kernels = {{"w", 0, "first", std::string(64 * 64 / 8, '\xFF'), 64 * 64, 64 * 64, 0, 0}};
  options.rounding = std::make_shared<const Rounding>(std::move(rounding));
  const auto adapted = Quantize(graph, nullptr, options);
  ASSERT_TRUE(nearest.ok() && adapted.ok()) << adapted.status();
  EXPECT_EQ(adapted->report.adapted_kernels, 1);
  const auto body = [](const QuantizedModule& module) {
    for (const Node& node : module.graph.nodes) {
      if (node.op == "If") return PrintGraph(*node.Body("then_branch"));
    }
    return std::string();
  };
  EXPECT_NE(body(*nearest), "");
  EXPECT_EQ(body(*nearest), body(*adapted));
}

TEST(WeightsOnly, WeightsThatAreNoNumbersAreNamed) {
  Graph graph = LanguageModel();
  Tensor weights = RandomTensor({64, 64}, 2);
  reinterpret_cast<float*>(weights.mutable_bytes())[5] = std::numeric_limits<float>::quiet_NaN();
  for (Node& node : graph.nodes) {
    if (node.name == "hidden") {
      const ValueId broken = graph.AddConstant("broken", weights);
      node.inputs[1] = broken;
    }
  }
  EXPECT_PRED1(HasSubstr("node `hidden`: weights: 1 NaN and 0 infinite of 4096 elements"),
               MessageOf(Quantize(graph, nullptr, WeightsOnly(DataType::kI4)).status()));
}

}  // namespace
}  // namespace quench::quantizer::weight_only_test
