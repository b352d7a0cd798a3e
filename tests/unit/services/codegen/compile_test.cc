// Whole artifacts: small graphs compiled at every level and run against the interpreter.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "common/base/status.h"
#include "common/ir/text_parts.h"
#include "common/ops/evaluate.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen::compile_test {
namespace {

Type F32(std::vector<Dim> dims) { return Type::Tensor(DataType::kF32, std::move(dims)); }

Graph ReluGraph() {
  Graph graph;
  graph.name = "relu";
  const ValueId x = graph.AddInput("x", F32({3, 37}));
  graph.outputs = {Node1(graph, "Relu", {x})};
  Infer(graph);
  return graph;
}

TEST(CompileTest, Relu) { ExpectSameAsInterpreter(ReluGraph()); }

TEST(CompileTest, MatMulWithBias) {
  Graph graph;
  const ValueId x = graph.AddInput("x", F32({5, 33}));
  const ValueId w = graph.AddConstant("w", Values({33, 50}));
  const ValueId bias = graph.AddConstant("b", Values({50}, 2));
  const ValueId y = Node1(graph, "Add", {Node1(graph, "MatMul", {x, w}), bias});
  graph.outputs = {Node1(graph, "Relu", {y})};
  Infer(graph);
  ExpectSameAsInterpreter(graph);
}

// Equal products one after another end 0.4 % off.
TEST(CompileTest, ProductsOfLongVectors) {
  constexpr int64_t kLength = 300'000;
  Graph graph;
  const ValueId x = graph.AddInput("x", F32({2, kLength}));
  const ValueId w = graph.AddInput("w", F32({kLength, 3}));
  graph.outputs = {Node1(graph, "MatMul", {x, w})};
  Infer(graph);
  const auto filled = [](std::vector<int64_t> dims) {
    const auto count = static_cast<size_t>(dims[0] * dims[1]);
    return Tensor::Of(DataType::kF32, std::move(dims), std::vector<float>(count, 1.0F / 3));
  };
  const auto compiled = CompileGraph(graph);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  ForEachRun(*compiled, {filled({2, kLength}), filled({kLength, 3})},
             [](const std::vector<Tensor>& outputs, const std::string& where) {
               EXPECT_NEAR(outputs[0].FloatAt(5) / (kLength / 9.0), 1, 2e-5) << where;
             });
}

Graph ConvGraph() {
  Graph graph;
  const ValueId x = graph.AddInput("x", F32({1, 3, 20, 20}));
  const ValueId w = graph.AddConstant("w", Values({32, 3, 3, 3}));
  const ValueId bias = graph.AddConstant("b", Values({32}, 2));
  const ValueId v = graph.AddConstant("v", Values({24, 32, 3, 3}, 3));
  const std::map<std::string, Attribute> same = {{"pads", std::vector<int64_t>{1, 1, 1, 1}},
                                                 {"kernel_shape", std::vector<int64_t>{3, 3}}};
  const ValueId a = Node1(graph, "Relu", {Node1(graph, "Conv", {x, w, bias}, same)});
  const ValueId b = Node1(graph, "Conv", {a, v}, same);
  const ValueId c = Node1(
      graph, "MaxPool", {Node1(graph, "Sigmoid", {b})},
      {{"kernel_shape", std::vector<int64_t>{2, 2}}, {"strides", std::vector<int64_t>{2, 2}}});
  graph.outputs = {c, a};
  Infer(graph);
  return graph;
}

TEST(CompileTest, Convolutions) {
  ExpectSameAsInterpreter(ConvGraph(), {}, 1e-4);  // Winograd's class of error
}

// Between convolutions, whose tensors are in blocks of channels.
struct BlockCase {
  const char* name;
  const char* nodes;  // from %a and %b, in channels as below, to %y
  int a, b, y;        // channels
  bool in_blocks = true;
};

TEST(CompileTest, BlocksOfChannelsAreJoinedCutAndMovedAsTheyAre) {
  const BlockCase cases[] = {
      {"concat", "%y = Concat(%a, %b) {axis = 1}", 32, 48, 80},
      {"concat odd end", "%y = Concat(%a, %b) {axis = 1}", 32, 23, 55},
      {"concat odd start", "%y = Concat(%a, %b) {axis = -3}", 23, 32, 55, false},
      {"concat spatial", "%y = Concat(%a, %b) {axis = 2}", 32, 32, 32},
      {"split", "%s, %t = Split(%a) {axis = 1, num_outputs = 2}  %y = Sub(%s, %t)", 64, 16, 32},
      {"split odd end", "const %p: i64[2] = [32, 17]  %y, %t = Split(%a, %p) {axis = 1}", 49, 16,
       32},
      {"resize", "const %k: f32[4] = [1, 1, 2, 2]  %y = Resize(%a, _, %k) {mode = \"nearest\"}", 24,
       16, 24},
      {"pad", "const %k: i64[8] = [0, 0, 1, 2, 0, 0, 0, 1]  %y = Pad(%a, %k)", 40, 16, 40},
      {"slice",
       "const %f: i64[2] = [1, 0]  const %l: i64[2] = [5, 4]  const %i: i64[2] = [2, 3]  "
       "%y = Slice(%a, %f, %l, %i)",
       40, 16, 40},
  };
  for (const BlockCase& c : cases) {
    SCOPED_TRACE(c.name);
    Graph graph;
    const ValueId x = graph.AddInput("x", F32({1, 32, 14, 14}));
    const auto convolve = [&](ValueId from, int in, int out, const char* name) {
      const ValueId w = graph.AddConstant("w", Values({out, in, 1, 1}, static_cast<uint32_t>(out)));
      const ValueId y = Node1(graph, "Conv", {from, w});
      graph.value(y).name = name;
      return y;
    };
    convolve(x, 32, c.a, "a");
    const ValueId b = convolve(x, 32, c.b, "b");
    Infer(graph);
    ASSERT_TRUE(ParseBlockInto("{" + std::string(c.nodes) + "}", 0, {}, graph).ok());
    const ValueId y = convolve(*graph.FindValue("y"), c.y, 32, "last");
    graph.outputs = {y, b};
    Infer(graph);
    ExpectSameAsInterpreter(graph);
    const std::string text = PlanText(graph, {}, PlanStage::kProgram).value();
    const size_t made = text.find("`y`: f32[");
    ASSERT_NE(made, std::string::npos) << text;
    EXPECT_EQ(text.substr(made, text.find('\n', made) - made).find("NCHW") != std::string::npos,
              c.in_blocks)
        << text;
  }
}

TEST(CompileTest, NumbersInGroupsOfEveryType) {
  const std::vector<Tensor> threes = {Tensor::ScalarF32(3),
                                      Tensor::Of(DataType::kF16, {}, std::vector<uint16_t>{0x4200}),
                                      Tensor::Of(DataType::kF64, {1}, std::vector<double>{3}),
                                      Tensor::Of(DataType::kI32, {1, 1}, std::vector<int32_t>{3})};
  for (const Tensor& three : threes) {
    Graph graph;
    const ValueId x = graph.AddInput("x", Type::Tensor(three.dtype(), {3, 40}));
    const ValueId c = graph.AddConstant("c", three);
    const ValueId y = Node1(graph, "Sub", {Node1(graph, "Mul", {x, c}), c});
    graph.outputs = {Node1(graph, "Abs", {y})};
    Infer(graph);
    ExpectSameAsInterpreter(graph, {}, three.dtype() == DataType::kF16 ? 2e-3 : 1e-5);
  }
}

TEST(CompileTest, Lstm) {
  Graph graph;
  const ValueId x = graph.AddInput("x", F32({6, 2, 5}));
  const ValueId w = graph.AddConstant("w", Values({1, 16, 5}));
  const ValueId r = graph.AddConstant("r", Values({1, 16, 4}, 2));
  const NodeId node = graph.AddNode("LSTM", "lstm", {x, w, r}, 3, {{"hidden_size", int64_t{4}}});
  graph.outputs = graph.node(node).outputs;
  Infer(graph);
  ExpectSameAsInterpreter(graph);
}

TEST(CompileTest, SymbolicBatchRunsAtAnySize) {
  Graph graph;
  const Dim n = Dim::OfSymbol(graph.symbols->AddInput("n", {0, 0}, {1, 64}));
  const ValueId x = graph.AddInput("x", F32({n, 4, 6}));
  const ValueId shape = graph.AddConstant("shape", Tensor::I64({0, 24}));
  const ValueId w = graph.AddConstant("w", Values({24, 10}));
  const ValueId y = Node1(graph, "MatMul", {Node1(graph, "Reshape", {x, shape}), w});
  const ValueId z = Node1(graph, "Softmax", {Node1(graph, "Tanh", {y})});
  graph.outputs = {z, Node1(graph, "Add", {y, z})};
  Infer(graph);
  for (const int64_t size : {1, 5, 64}) ExpectSameAsInterpreter(graph, {{"n", size}});
}

TEST(CompileTest, SymbolicSizesPlanEveryBuffer) {
  Graph graph;
  const Dim n = Dim::OfSymbol(graph.symbols->AddInput("n", {0, 0}, {1, kUnbounded}));
  const ValueId x = graph.AddInput("x", F32({n, 7}));
  ValueId a = Node1(graph, "Exp", {x});
  const ValueId b = Node1(graph, "Softmax", {a});
  for (int i = 0; i < 4; ++i)
    a = Node1(graph, "Concat", {Node1(graph, "Softmax", {a}), b}, {{"axis", int64_t{0}}});
  graph.outputs = {a};
  Infer(graph);
  for (const int64_t size : {1, 3, 200}) ExpectSameAsInterpreter(graph, {{"n", size}});
}

// A sorted axis takes 64 bytes, rounded up, whatever the size of the run is.
// One result for an axis without elements, whose place only the run knows.
// A function of all steps would take LLVM minutes. Memory made in the first part is read in the last.
TEST(CompileTest, LongProgramsAreSeveralFunctions) {
  Graph graph;
  const ValueId x = graph.AddInput("x", F32({4, 3}));
  const ValueId places = Node1(graph, "NonZero", {Node1(graph, "Relu", {x})});
  ValueId y = x;
  for (int i = 0; i < 400; ++i)
    y = Node1(graph, "Transpose", {Node1(graph, "Softmax", {y}, {{"axis", int64_t{i % 2}}})});
  graph.outputs = {y, Node1(graph, "Transpose", {places})};
  Infer(graph);
  ExpectSameAsInterpreter(graph);
}

TEST(CompileTest, ReductionsOfNothing) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {3, 0}));
  const ValueId axes = graph.AddInput("axes", Type::Tensor(DataType::kI64, {1}));
  graph.outputs = {Node1(graph, "Cos", {Node1(graph, "ReduceSum", {x, axes})})};
  Infer(graph);
  for (const int64_t axis : {0, 1}) {  // the empty axis stays, or becomes one result
    const std::vector<Tensor> inputs = {Tensor::Zeros(DataType::kF32, {3, 0}), Tensor::I64({axis})};
    EXPECT_EQ((*ops::Evaluate(graph, inputs))[0].size(), axis == 0 ? 0 : 3);
    for (int level = 0; level <= 3; ++level) ExpectSame(graph, inputs, level);
  }
}

TEST(CompileTest, ScratchOfAFewElements) {
  Graph graph;
  const Dim n = Dim::OfSymbol(graph.symbols->AddInput("n", {0, 0}, {1, 3}));
  const ValueId x = graph.AddInput("x", F32({n}));
  const ValueId last = graph.AddConstant("last", Values({1}));
  const ValueId one = graph.AddConstant("one", Tensor::I64({1}));
  const ValueId joined = Node1(graph, "Concat", {x, last}, {{"axis", int64_t{0}}});
  graph.outputs = {Node1(graph, "TopK", {joined, one})};
  Infer(graph);
  for (const int64_t size : {1, 3}) ExpectSameAsInterpreter(graph, {{"n", size}});
}

TEST(CompileTest, DataDependentSizes) {
  Graph graph;
  const ValueId x = graph.AddInput("x", F32({5, 7}));
  const ValueId positive = Node1(graph, "Relu", {x});
  const ValueId indices = Node1(graph, "NonZero", {positive});
  const ValueId columns =
      Node1(graph, "Transpose", {indices}, {{"perm", std::vector<int64_t>{1, 0}}});
  const ValueId values = Node1(graph, "GatherND", {x, columns});
  graph.outputs = {indices, Node1(graph, "Exp", {values}), values};
  Infer(graph);
  ExpectSameAsInterpreter(graph);
}

// If with a branch that doubles and one that negates.
Graph IfGraph() {
  Graph graph;
  const ValueId condition = graph.AddInput("condition", Type::Tensor(DataType::kBool, {}));
  const ValueId x = graph.AddInput("x", F32({4, 9}));
  auto branch = [&](const std::string& op, bool twice) {
    Graph body;
    body.symbols = graph.symbols;
    const ValueId in = body.AddInput("in", F32({4, 9}));
    const ValueId once =
        Node1(body, op, twice ? std::vector<ValueId>{in, in} : std::vector<ValueId>{in});
    body.outputs = {Node1(body, "Tanh", {once}), in};
    return std::make_shared<const Graph>(std::move(body));
  };
  const NodeId node =
      graph.AddNode("If", "if", {condition, x}, 2,
                    {{"then_branch", branch("Add", true)}, {"else_branch", branch("Neg", false)}});
  graph.outputs = {Node1(graph, "Exp", {graph.node(node).outputs[0]}), graph.node(node).outputs[1]};
  Infer(graph);
  return graph;
}

TEST(CompileTest, IfTakesEitherBranch) {
  const Graph graph = IfGraph();
  const Tensor x = Values({4, 9});
  for (const uint8_t flag : {0, 1}) {
    const Tensor condition = Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{flag});
    for (int level = 0; level <= 3; ++level) ExpectSame(graph, {condition, x}, level);
  }
}

// `x` of n columns: one branch drops the axis, which only a run can tell to be of size 1, the other
// cannot run. Outputs of sizes that are known, unknown, and none.
Graph ImpossibleBranchGraph() {
  Graph graph;
  const Dim n = Dim::OfSymbol(graph.symbols->AddInput("n", {1, 1}));
  const ValueId condition = graph.AddInput("condition", Type::Tensor(DataType::kBool, {}));
  const ValueId x = graph.AddInput("x", F32({5, n}));
  auto branch = [&](bool possible) {
    Graph body;
    body.symbols = graph.symbols;
    const ValueId in = body.AddInput("in", F32({5, n}));
    ValueId column = kNone;
    if (possible) {
      column = Node1(body, "Squeeze", {in, body.AddConstant("axes", Tensor::I64({1}))});
    } else {
      column = Node1(body, "Reshape", {in, body.AddConstant("shape", Tensor::I64({5, 2, -1, -1}))});
    }
    body.outputs = {Node1(body, "Relu", {column}), Node1(body, "NonZero", {column}),
                    Node1(body, "ReduceSum", {column}, {{"keepdims", int64_t{0}}})};
    return std::make_shared<const Graph>(std::move(body));
  };
  const NodeId node =
      graph.AddNode("If", "if", {condition, x}, 3,
                    {{"then_branch", branch(true)}, {"else_branch", branch(false)}});
  graph.outputs = graph.node(node).outputs;
  Infer(graph);
  return graph;
}

TEST(CompileTest, ARunThatTakesABranchThatCannotRunFails) {
  const Graph graph = ImpossibleBranchGraph();
  const auto flag = [](uint8_t value) {
    return Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{value});
  };
  for (int level = 0; level <= 3; ++level) {
    ExpectSame(graph, {flag(1), Values({5, 1})}, level);
    CompileOptions options;
    options.opt_level = level;
    const auto compiled = CompileGraph(graph, options);
    ASSERT_TRUE(compiled.ok()) << MessageOf(compiled.status());
    auto artifact = Artifact::Open(compiled->library());
    ASSERT_TRUE(artifact.ok()) << MessageOf(artifact.status());
    const auto not_taken = (*artifact)->Run(std::vector<Tensor>{flag(0), Values({5, 1})});
    ASSERT_FALSE(not_taken.ok());
    EXPECT_NE(MessageOf(not_taken.status()).find("node `if`: else_branch: node `Reshape"),
              std::string::npos)
        << MessageOf(not_taken.status());
    const auto not_one = (*artifact)->Run(std::vector<Tensor>{flag(1), Values({5, 2})});
    ASSERT_FALSE(not_one.ok());
    EXPECT_NE(MessageOf(not_one.status()).find("node `Squeeze"), std::string::npos)
        << MessageOf(not_one.status());
  }
}

TEST(CompileTest, ARunThatWantsToTrainFails) {
  Graph graph;
  const ValueId x = graph.AddInput("x", F32({4}));
  const ValueId ratio = graph.AddInput("ratio", F32({}));
  const ValueId training = graph.AddInput("training", Type::Tensor(DataType::kBool, {}));
  graph.outputs = {Node1(graph, "Exp", {Node1(graph, "Dropout", {x, ratio, training})})};
  Infer(graph);
  const auto inputs = [](float ratio_value, uint8_t flag) {
    return std::vector<Tensor>{Values({4}), Tensor::ScalarF32(ratio_value),
                               Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{flag})};
  };
  for (const int level : {0, 3}) {
    ExpectSame(graph, inputs(0.5F, 0), level);
    ExpectSame(graph, inputs(0, 1), level);
    CompileOptions options;
    options.opt_level = level;
    const auto compiled = CompileGraph(graph, options);
    ASSERT_TRUE(compiled.ok()) << MessageOf(compiled.status());
    auto artifact = Artifact::Open(compiled->library());
    ASSERT_TRUE(artifact.ok()) << MessageOf(artifact.status());
    const auto trained = (*artifact)->Run(inputs(0.5F, 1));
    ASSERT_FALSE(trained.ok());
    EXPECT_NE(MessageOf(trained.status()).find("(Dropout): training_mode is true"),
              std::string::npos)
        << MessageOf(trained.status());
  }
}

// Iterations swap two carried values, and stack a sum and their number.
Graph LoopGraph(bool constant_trips) {
  Graph graph;
  const ValueId trips =
      constant_trips
          ? graph.AddConstant("trips", Tensor::Of(DataType::kI64, {}, std::vector<int64_t>{4}))
          : graph.AddInput("trips", Type::Tensor(DataType::kI64, {}));
  const ValueId a = graph.AddInput("a", F32({6}));
  const ValueId b = graph.AddInput("b", F32({6}));
  Graph body;
  body.symbols = graph.symbols;
  const ValueId i = body.AddInput("i", Type::Tensor(DataType::kI64, {}));
  const ValueId go = body.AddInput("go", Type::Tensor(DataType::kBool, {}));
  const ValueId p = body.AddInput("p", F32({6}));
  const ValueId q = body.AddInput("q", F32({6}));
  const ValueId step = Node1(body, "Cast", {i}, {{"to", int64_t{1}}});
  const ValueId sum = Node1(body, "Add", {p, step});
  body.outputs = {Node1(body, "Identity", {go}), q, p, sum, step};
  graph.outputs =
      graph
          .node(graph.AddNode("Loop", "loop", {trips, quench::kNone, a, b}, 4,
                              {{"body", std::make_shared<const Graph>(std::move(body))}}))
          .outputs;
  Infer(graph);
  return graph;
}

TEST(CompileTest, LoopCarriesSwapsAndStacks) {
  const Graph known = LoopGraph(true), open = LoopGraph(false);
  const Tensor a = Values({6}), b = Values({6}, 2);
  for (int level = 0; level <= 3; ++level) {
    ExpectSame(known, {a, b}, level);
    for (const int64_t trips : {0, 1, 5}) {
      ExpectSame(open, {Tensor::Of(DataType::kI64, {}, std::vector<int64_t>{trips}), a, b}, level);
    }
  }
}

TEST(CompileTest, LoopEndsWhenItsConditionSaysSo) {
  Graph graph;
  const ValueId x = graph.AddInput("x", F32({}));
  const ValueId limit = graph.AddConstant("limit", Tensor::ScalarF32(100));
  Graph body;
  body.symbols = graph.symbols;
  body.AddInput("i", Type::Tensor(DataType::kI64, {}));
  body.AddInput("go", Type::Tensor(DataType::kBool, {}));
  const ValueId v = body.AddInput("v", F32({}));
  const ValueId most = body.AddInput("most", F32({}));
  const ValueId twice = Node1(body, "Add", {v, v});
  body.outputs = {Node1(body, "Less", {twice, most}), twice};
  graph.outputs =
      graph
          .node(graph.AddNode("Loop", "loop", {quench::kNone, quench::kNone, x, limit}, 1,
                              {{"body", std::make_shared<const Graph>(std::move(body))},
                               {"q.captures", int64_t{1}}}))
          .outputs;
  Infer(graph);
  for (int level = 0; level <= 3; ++level) ExpectSame(graph, {Tensor::ScalarF32(1.5f)}, level);
}

TEST(CompileTest, ScanSlicesAndStacksAlongAnyAxis) {
  Graph graph;
  const ValueId start = graph.AddInput("start", F32({3}));
  const ValueId x = graph.AddInput("x", F32({3, 5}));
  Graph body;
  body.symbols = graph.symbols;
  const ValueId state = body.AddInput("state", F32({3}));
  const ValueId slice = body.AddInput("slice", F32({3}));
  const ValueId sum = Node1(body, "Add", {state, slice});
  body.outputs = {sum, Node1(body, "Exp", {sum})};
  graph.outputs = graph
                      .node(graph.AddNode("Scan", "scan", {start, x}, 2,
                                          {{"body", std::make_shared<const Graph>(std::move(body))},
                                           {"num_scan_inputs", int64_t{1}},
                                           {"scan_input_axes", std::vector<int64_t>{1}},
                                           {"scan_input_directions", std::vector<int64_t>{1}},
                                           {"scan_output_axes", std::vector<int64_t>{-1}}}))
                      .outputs;
  Infer(graph);
  ExpectSameAsInterpreter(graph);
}

TEST(CompileTest, OutputsMayBeInputsConstantsAndOneAnother) {
  Graph graph;
  const ValueId x = graph.AddInput("x", F32({4}));
  const ValueId c = graph.AddConstant("c", Values({4}));
  const ValueId y = Node1(graph, "Exp", {x});
  graph.outputs = {x, c, y, y};
  Infer(graph);
  ExpectSameAsInterpreter(graph);
}

TEST(CompileTest, ChannelsLastGivesTheSameResults) {
  const Graph graph = ConvGraph();
  const std::vector<Tensor> inputs = *RandomInputs(InputsOf(graph), 3);
  const std::vector<Tensor> expected = *ops::Evaluate(graph, inputs);
  for (const char* layout : {"first", "last"}) {
    CompileOptions options;
    options.channel_layout = layout;
    const absl::StatusOr<Compiled> compiled = CompileGraph(graph, options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const std::vector<Tensor> actual = *(*Artifact::Open(compiled->library()))->Run(inputs);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_LE(RelativeError(actual[i], expected[i]), 1e-5) << layout;
  }
}

TEST(CompileTest, TapsShowEveryValueRowMajor) {
  const Graph graph = ConvGraph();
  const std::vector<Tensor> inputs = *RandomInputs(InputsOf(graph), 3);
  std::map<std::string, Tensor> expected;
  ops::EvaluateOptions watch;
  watch.on_value = [&](const std::string& name, const Tensor& tensor) { expected[name] = tensor; };
  ASSERT_TRUE(ops::Evaluate(graph, inputs, {}, watch).ok());
  CompileOptions options;
  options.taps = Taps::kModelValues;
  const absl::StatusOr<Compiled> compiled = CompileGraph(graph, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  size_t seen = 0;
  const auto results = (*Artifact::Open(compiled->library()))
                           ->Run(inputs, {}, [&](const std::string& name, const Tensor& tensor) {
                             ++seen;
                             ASSERT_TRUE(expected.contains(name)) << name;
                             // Winograd's class of error.
                             EXPECT_LE(RelativeError(tensor, expected[name]), 1e-4) << name;
                           });
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_GE(seen, 3u);
}

std::string Bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(CompileTest, SameRequestSameBytes) {
  CompileOptions options;
  options.target = "x86-64";
  const absl::StatusOr<Compiled> first = CompileGraph(ConvGraph(), options),
                                 second = CompileGraph(ConvGraph(), options);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ(Bytes(first->library()), Bytes(second->library()));
  EXPECT_EQ(Bytes(first->header()), Bytes(second->header()));
  EXPECT_EQ(first->report.uuid, second->report.uuid);
  EXPECT_EQ(first->report.variants,
            (std::vector<std::string>{"x86-64-v2", "x86-64-v3", "x86-64-v4"}));
  options.opt_level = 1;
  const absl::StatusOr<Compiled> other = CompileGraph(ConvGraph(), options);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(first->report.uuid, other->report.uuid);
}

TEST(CompileTest, GivenUuidIsStamped) {
  CompileOptions options;
  options.uuid = "123E4567E89B12D3A456426614174000";
  const absl::StatusOr<Compiled> compiled = CompileGraph(ReluGraph(), options);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ((*Artifact::Open(compiled->library()))->uuid(), "123e4567-e89b-12d3-a456-426614174000");
}

TEST(CompileTest, BadOptionsAreNamedAndLeaveNothing) {
  CompileOptions options;
  options.target = "x86-64-v5";
  const absl::Status target = CompileGraph(ReluGraph(), options).status();
  EXPECT_EQ(target.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(MessageOf(target).find("`x86-64-v4`"), std::string::npos) << target;
  options = {};
  options.opt_level = 5;
  EXPECT_EQ(CompileGraph(ReluGraph(), options).status().code(), absl::StatusCode::kInvalidArgument);
  options = {};
  options.uuid = "xyz";
  EXPECT_EQ(CompileGraph(ReluGraph(), options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CompileTest, InterfacesOfStringsAreRefusedTogether) {
  Graph graph;
  const ValueId text = graph.AddInput("text", Type::Tensor(DataType::kString, {2}));
  graph.AddInput("unused", Type::Tensor(DataType::kString, {2}));
  graph.outputs = {Node1(graph, "Identity", {text})};
  Infer(graph);
  const absl::Status status = CompileGraph(graph).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  for (const std::string part : {"input `text` is string", "input `unused` is string", "output `"})
    EXPECT_NE(MessageOf(status).find(part), std::string::npos) << status;
}

TEST(CompileTest, CancelledCompileLeavesNothing) {
  const TempDir folder = *TempDir::Create();
  const StepContext context;
  context.cancel_token()->Cancel();
  const absl::Status status =
      Compile(ConvGraph(), {}, folder.path() / "model.so", folder.path() / "model.h", context)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(CompileTest, UnwritableOutputIsAnError) {
  const absl::Status status =
      Compile(ReluGraph(), {}, "/no/such/folder/model.so", "/no/such/folder/model.h").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
}

TEST(CompileTest, GroupsAreOnlyFusedWhenAskedTo) {
  CompileOptions options;
  const absl::StatusOr<Compiled> fused = CompileGraph(ConvGraph(), options);
  options.passes.disabled = {"fuse_groups"};
  const absl::StatusOr<Compiled> single = CompileGraph(ConvGraph(), options);
  ASSERT_TRUE(fused.ok() && single.ok()) << fused.status() << single.status();
  EXPECT_LT(fused->report.kernels.size(), single->report.kernels.size());
  EXPECT_NE(fused->report.uuid, single->report.uuid);
}

TEST(CompileTest, ReportSaysWhatRuns) {
  const absl::StatusOr<Compiled> compiled = CompileGraph(ConvGraph());
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_FALSE(compiled->report.kernels.empty());
  EXPECT_GE(compiled->report.arena_bytes, compiled->report.arena_lower_bound);
  EXPECT_GT(compiled->report.weight_bytes, 0);
  const auto artifact = Artifact::Open(compiled->library());
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  const auto timings = (*artifact)->Profile(*RandomInputs(InputsOf(ConvGraph()), 1));
  ASSERT_TRUE(timings.ok()) << timings.status();
  EXPECT_EQ(timings->size(), compiled->report.kernels.size());
}

// A library for several CPUs has one copy of the weights that all of them read.
TEST(CompileTest, VariantsShareTheirWeights) {
  Graph graph;
  ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 64, 14, 14}));
  const auto conv = [&](int64_t out, int64_t in, int64_t taps, int64_t stride) {
    const int64_t pad = taps / 2;
    const ValueId w = graph.AddConstant("w", Values({out, in, taps, taps}, 3));
    x = Node1(graph, "Conv", {x, w},
              {{"pads", std::vector<int64_t>{pad, pad, pad, pad}},
               {"strides", std::vector<int64_t>{stride, stride}}});
  };
  conv(96, 64, 1, 1);
  conv(96, 96, 3, 2);
  x = Node1(graph, "GlobalAveragePool", {x});
  const ValueId rows = Node1(graph, "Flatten", {x});
  graph.outputs = {Node1(graph, "MatMul", {rows, graph.AddConstant("m", Values({96, 200}, 5))})};
  Infer(graph);
  const auto bytes_of = [&](const std::string& target) {
    CompileOptions options;
    options.target = target;
    const absl::StatusOr<Compiled> compiled = CompileGraph(graph, options);
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    return compiled.ok() ? compiled->report.weight_bytes : 0;
  };
  EXPECT_LE(bytes_of("x86-64"), bytes_of("x86-64-v4") * 11 / 10);
}

TEST(CompileTest, ReportHasTheMemoryPlan) {
  const absl::StatusOr<Compiled> compiled = CompileGraph(ConvGraph());
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const CompileReport& report = compiled->report;
  ASSERT_FALSE(report.arena.empty());
  int64_t end = 0, most = 0;
  for (const ArenaBuffer& buffer : report.arena) {
    EXPECT_FALSE(buffer.values.empty());
    EXPECT_LE(0, buffer.first);
    EXPECT_LE(buffer.first, buffer.last);
    EXPECT_LT(buffer.last, static_cast<int>(report.kernels.size()));
    end = std::max(end, buffer.offset + buffer.bytes);
  }
  EXPECT_EQ(end, report.arena_bytes);
  for (const KernelReport& kernel : report.kernels) most = std::max(most, kernel.arena_bytes);
  EXPECT_EQ(most, report.arena_lower_bound);
}

}  // namespace
}  // namespace quench::codegen::compile_test
