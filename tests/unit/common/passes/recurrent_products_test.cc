#include <functional>

#include "common/ops/op.h"
#include "tests/unit/common/passes/pass_test_util.h"

namespace quench::passes::recurrent_products_test {
namespace {

struct Recurrent {
  std::string name, op;
  int64_t gates = 1;
  std::map<std::string, Attribute> attributes;
  bool bias = true, lengths = false, states = false, peepholes = false;
  int64_t hidden = 6;
  bool quantized = false, each_unit = false;  // weights: i8, with a scale for each gate's unit
};

std::vector<Recurrent> RecurrentCases() {
  const std::pair<const std::string, Attribute> both = {"direction", "bidirectional"};
  return {
      {"lstm", "LSTM", 4, {}},
      {"lstm_bare", "LSTM", 4, {}, false},
      {"lstm_all", "LSTM", 4, {both}, true, true, true, true, 5},
      {"lstm_reverse", "LSTM", 4, {{"direction", "reverse"}}, true, true},
      {"lstm_batch_first", "LSTM", 4, {both, {"layout", int64_t{1}}}, true, false, true},
      {"lstm_coupled", "LSTM", 4, {{"input_forget", int64_t{1}}, {"clip", 0.5}}},
      {"lstm_blocks", "LSTM", 4, {both}, true, false, false, false, 128},
      {"gru", "GRU", 3, {both}, true, true, true},
      {"gru_linear", "GRU", 3, {both, {"linear_before_reset", int64_t{1}}}},
      {"gru_linear_bare", "GRU", 3, {{"linear_before_reset", int64_t{1}}}, false},
      {"rnn", "RNN", 1, {both}, true, true},
      {"lstm_integers", "LSTM", 4, {both}, true, false, true, false, 32, true},
      {"lstm_integers_units", "LSTM", 4, {both}, true, false, true, false, 32, true, true},
      {"gru_integers",
       "GRU",
       3,
       {{"linear_before_reset", int64_t{1}}},
       true,
       false,
       false,
       false,
       32,
       true,
       true},
      {"rnn_integers", "RNN", 1, {}, true, false, false, false, 48, true},
  };
}

ValueId WeightsOf(Graph& graph, const Recurrent& form, const std::string& name, int64_t columns,
                  int64_t directions, uint64_t seed) {
  const int64_t rows = form.gates * form.hidden;
  const Tensor real = RandomTensor({directions, rows, columns}, seed);
  if (!form.quantized) return graph.AddConstant(name, real);
  Tensor integers = Tensor::Zeros(DataType::kI8, real.dims());
  for (int64_t i = 0; i < real.size(); ++i)
    integers.mutable_bytes()[i] =
        static_cast<std::byte>(static_cast<int8_t>(100 * real.FloatAt(i)));
  std::vector<float> scales;
  for (int64_t i = 0; i < (form.each_unit ? rows : 1); ++i)
    scales.push_back(0.005F + 0.0001F * static_cast<float>(i));
  const Tensor scale =
      form.each_unit ? Tensor::Of(DataType::kF32, {rows}, scales) : Tensor::ScalarF32(scales[0]);
  return Add(graph, "DequantizeLinear",
             {graph.AddConstant(name, integers), graph.AddConstant(name + ".scale", scale)},
             {{"axis", int64_t{1}}}, name + ".real");
}

Graph RecurrentGraph(const Recurrent& form) {
  constexpr int64_t kTime = 5, kBatch = 3, kWidth = 7;
  const auto direction = form.attributes.find("direction");
  const bool both = direction != form.attributes.end() &&
                    std::get<std::string>(direction->second) == "bidirectional";
  const bool batch_first = form.attributes.contains("layout");
  const int64_t directions = both ? 2 : 1, rows = form.gates * form.hidden;
  Graph graph;
  graph.name = form.name;
  const std::vector<Dim> dims = batch_first ? std::vector<Dim>{kBatch, kTime, kWidth}
                                            : std::vector<Dim>{kTime, kBatch, kWidth};
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, dims));
  std::vector<ValueId> inputs(8, kNone);
  inputs[0] = x;
  inputs[1] = WeightsOf(graph, form, "w", kWidth, directions, 1);
  inputs[2] = WeightsOf(graph, form, "r", form.hidden, directions, 2);
  if (form.bias) inputs[3] = graph.AddConstant("b", RandomTensor({directions, 2 * rows}, 3));
  if (form.lengths)
    inputs[4] = graph.AddConstant(
        "lengths", Tensor::Of(DataType::kI32, {kBatch}, std::vector<int32_t>{4, 0, 3}));
  const std::vector<Dim> state = batch_first ? std::vector<Dim>{kBatch, directions, form.hidden}
                                             : std::vector<Dim>{directions, kBatch, form.hidden};
  if (form.states) inputs[5] = graph.AddInput("h", Type::Tensor(DataType::kF32, state));
  if (form.states && form.op == "LSTM")
    inputs[6] = graph.AddInput("c", Type::Tensor(DataType::kF32, state));
  if (form.peepholes)
    inputs[7] = graph.AddConstant("p", RandomTensor({directions, 3 * form.hidden}, 4));
  while (inputs.back() == kNone) inputs.pop_back();
  const int outputs = form.op == "LSTM" ? 3 : 2;
  const NodeId node = graph.AddNode(form.op, "layer", inputs, outputs, form.attributes);
  graph.outputs = graph.node(node).outputs;
  EXPECT_TRUE(ops::InferGraph(graph).ok()) << ops::InferGraph(graph);
  return graph;
}

class RecurrentProductsTest : public ::testing::TestWithParam<Recurrent> {};

TEST_P(RecurrentProductsTest, ComputesTheSame) {
  const Graph before = RecurrentGraph(GetParam());
  const Graph after = After("recurrent_products", before);
  EXPECT_EQ(CountOps(after, GetParam().op), 0);
  const bool skips = GetParam().lengths && !GetParam().quantized;
  EXPECT_EQ(CountOps(after, "MatMul"), skips ? 0 : 1);
  EXPECT_EQ(CountOps(after, "q.sequence_matmul"), skips ? 1 : 0);
  EXPECT_EQ(CountOps(after, "Add"), GetParam().bias ? 1 : 0);
  int integers = 0;  // R, as it is stored
  for (const Node& node : after.nodes) {
    if (node.op.starts_with("q."))
      integers += after.value(node.inputs[2]).type.dtype == DataType::kI8 ? 1 : 0;
  }
  EXPECT_EQ(integers, GetParam().quantized ? 1 : 0);
}

TEST(RecurrentProducts, BfloatsAreMultipliedAsTheyAreStored) {
  PassOptions options;
  options.store_as = DataType::kBF16;
  for (const bool lengths : {false, true}) {
    const Graph after =
        After("recurrent_products", RecurrentGraph({"lstm", "LSTM", 4, {}, true, lengths}), options,
              0.02);
    int products = 0;
    for (const Node& node : after.nodes) {
      if (node.op != "MatMul" && node.op != "q.sequence_matmul") continue;
      ++products;
      EXPECT_EQ(after.value(node.outputs[0]).type.dtype, DataType::kBF16);
      EXPECT_TRUE(after.value(node.inputs[1]).constant != nullptr);
    }
    EXPECT_EQ(products, 1);
    EXPECT_EQ(CountOps(after, "Cast"), 2);
  }
}

// A look inside a run finds no rows that nothing wrote.
TEST(SequenceProductsTest, WholeValuesHaveTheirPaddedStepsToo) {
  PassOptions options;
  options.whole_values = true;
  const Recurrent form = {"lstm", "LSTM", 4, {}, true, true};
  const Graph after = After("recurrent_products", RecurrentGraph(form), options);
  EXPECT_EQ(CountOps(after, "MatMul"), 1);
  EXPECT_EQ(CountOps(after, "q.sequence_matmul"), 0);
}

INSTANTIATE_TEST_SUITE_P(Cells, RecurrentProductsTest, ::testing::ValuesIn(RecurrentCases()),
                         [](const auto& test) { return test.param.name; });

// Weights that are computed while running, or have scales along another axis, stay.
TEST(RecurrentProducts, OthersStay) {
  Graph graph = RecurrentGraph({"rnn", "RNN", 1, {}});
  graph.nodes[0].inputs[1] = graph.AddInput("w_in", graph.value(graph.nodes[0].inputs[1]).type);
  EXPECT_EQ(CountOps(After("recurrent_products", graph), "RNN"), 1);
  graph = RecurrentGraph({"rnn", "RNN", 1, {}});
  graph.nodes[0].inputs[3] = graph.AddInput("b_in", graph.value(graph.nodes[0].inputs[3]).type);
  EXPECT_EQ(CountOps(After("recurrent_products", graph), "RNN"), 1);
}

// Integers stay where they are read, through the passes that fold constants.
TEST(RecurrentProducts, DequantizedWeightsAreNotFolded) {
  const Recurrent form = {"lstm", "LSTM", 4, {}, true, false, false, false, 32, true, true};
  const Graph folded = After("fold_constants", RecurrentGraph(form));
  EXPECT_EQ(CountOps(folded, "DequantizeLinear"), 2);
}

Graph WithZeroPoint(Graph graph, int8_t value) {
  const ValueId id =
      graph.AddConstant("zero", Tensor::Of(DataType::kI8, {}, std::vector<int8_t>{value}));
  for (Node& node : graph.nodes) {
    if (node.op == "DequantizeLinear") node.inputs.push_back(id);
  }
  return graph;
}

// Weights that the pass cannot read are floats before it runs: bytes hold their distances from 3,
// but not from -128.
TEST(RecurrentProducts, AsymmetricWeights) {
  const Graph graph = RecurrentGraph({"rnn", "RNN", 1, {}, true, false, false, false, 32, true});
  const Graph near = After("fold_constants", WithZeroPoint(graph, 3));
  EXPECT_EQ(CountOps(near, "DequantizeLinear"), 2);
  EXPECT_EQ(CountOps(After("recurrent_products", near), "RNN"), 0);
  const Graph folded = After("fold_constants", WithZeroPoint(graph, -128));
  EXPECT_EQ(CountOps(folded, "DequantizeLinear"), 0);
  EXPECT_EQ(CountOps(After("recurrent_products", folded), "MatMul"), 1);
}

TEST(RecurrentProducts, NothingIsHidden) {
  Graph graph = RecurrentGraph({"lstm", "LSTM", 4, {}, false});
  graph.nodes[0].inputs[1] = graph.AddConstant("w0", Tensor::Zeros(DataType::kF32, {1, 0, 7}));
  graph.nodes[0].inputs[2] = graph.AddConstant("r0", Tensor::Zeros(DataType::kF32, {1, 0, 0}));
  EXPECT_NE(std::string(ops::InferGraph(graph).message()).find("hidden size is 0"),
            std::string::npos);
}

TEST(QLstm, WhatDoesNotFitIsSaid) {
  const Graph good = After("recurrent_products", RecurrentGraph({"lstm", "LSTM", 4, {}}));
  const auto problem = [&](const std::function<void(Graph&, Node&)>& change) {
    Graph graph = good;
    for (Node& node : graph.nodes) {
      if (node.op == "q.lstm") change(graph, node);
    }
    return std::string(ops::InferGraph(graph).message());
  };
  const auto constant = [](Graph& graph, Node& node, size_t input, const Tensor& tensor) {
    const ValueId id = graph.AddConstant("other", tensor);
    node.inputs.resize(std::max(node.inputs.size(), input + 1), kNone);
    node.inputs[input] = id;
  };
  EXPECT_EQ(problem([](Graph&, Node&) {}), "");
  EXPECT_NE(problem([&](Graph& g, Node& n) {
              constant(g, n, 1, RandomTensor({1, 24, 7}, 1));
            }).find("no W"),
            std::string::npos);
  EXPECT_NE(problem([&](Graph& g, Node& n) {
              constant(g, n, 2, RandomTensor({1, 8, 6, 4}, 1));
            }).find("blocks of R divide"),
            std::string::npos);
  EXPECT_NE(problem([&](Graph& g, Node& n) {
              constant(g, n, 2, RandomTensor({1, 11, 6, 2}, 1));
            }).find("axis 1 of input 2"),
            std::string::npos);
  EXPECT_NE(problem([&](Graph& g, Node& n) {
              constant(g, n, 2, Tensor::Zeros(DataType::kI8, {1, 12, 6, 2}));
            }).find("no i8 with scales"),
            std::string::npos);
  EXPECT_NE(problem([&](Graph& g, Node& n) {
              constant(g, n, 8, RandomTensor({5}, 1));
            }).find("one for each of 24"),
            std::string::npos);
}

}  // namespace
}  // namespace quench::passes::recurrent_products_test
