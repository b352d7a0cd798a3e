// Whole graphs through the interpreter: order, control flow, limits, input checks.
#include "common/ops/evaluate.h"

#include <gtest/gtest.h>

#include "common/ir/text.h"
#include "run_op.h"

namespace quench::ops::evaluate_test {
namespace {

Type Vector(Dim n) { return Type::Tensor(DataType::kF32, {n}); }
Type Scalar(DataType type) { return Type::Tensor(type, {}); }

// y = relu(a + b), z = y * y
Graph Chain() {
  Graph graph;
  const Dim n = Dim::OfSymbol(graph.symbols->AddInput("n", {0, 0}, {1, 8}));
  const ValueId a = graph.AddInput("a", Vector(n));
  const ValueId b = graph.AddInput("b", Vector(n));
  const NodeId add = graph.AddNode("Add", "add", {a, b});
  const NodeId relu = graph.AddNode("Relu", "relu", {graph.node(add).outputs[0]});
  const ValueId y = graph.node(relu).outputs[0];
  const NodeId square = graph.AddNode("Mul", "square", {y, y});
  graph.outputs = {y, graph.node(square).outputs[0]};
  return graph;
}

TEST(Evaluate, RunsNodesInOrderAtAnySize) {
  const Graph graph = Chain();
  for (const int64_t n : {1, 3, 8}) {
    const std::vector<Tensor> inputs = {Iota({n}),
                                        F32({n}, std::vector<float>(static_cast<size_t>(n), -1))};
    const auto results = Evaluate(graph, inputs);
    ASSERT_TRUE(results.ok()) << results.status();
    EXPECT_EQ((*results)[0].FloatAt(n - 1), std::max<int64_t>(n - 2, 0));
    EXPECT_EQ((*results)[1].FloatAt(n - 1), std::max<int64_t>((n - 2) * (n - 2) * (n > 2), 0));
  }
}

TEST(Evaluate, ReportsEveryValue) {
  std::vector<std::string> names;
  EvaluateOptions options;
  options.on_value = [&](const std::string& name, const Tensor&) { names.push_back(name); };
  const std::vector<Tensor> inputs = {Iota({2}), Iota({2})};
  ASSERT_TRUE(Evaluate(Chain(), inputs, {}, options).ok());
  EXPECT_EQ(names, (std::vector<std::string>{"add", "relu", "square"}));
}

TEST(Evaluate, StopsWhenCancelled) {
  StepContext context;
  context.cancel_token()->Cancel();
  const std::vector<Tensor> inputs = {Iota({2}), Iota({2})};
  EXPECT_EQ(Evaluate(Chain(), inputs, context).status().code(), absl::StatusCode::kCancelled);
}

TEST(CheckInputs, ReportsEveryMismatch) {
  const Graph graph = Chain();
  const std::vector<Tensor> one = {Iota({2})};
  EXPECT_NE(CheckInputs(graph, one).message().find("1 inputs given"), std::string::npos);
  const std::vector<Tensor> types = {I32({2}, {1, 2}), Iota({2, 1})};
  const std::string text(CheckInputs(graph, types).message());
  EXPECT_NE(text.find("input `a` is i32, the graph takes f32"), std::string::npos) << text;
  EXPECT_NE(text.find("input `b` has rank 2"), std::string::npos) << text;
  const std::vector<Tensor> sizes = {Iota({2}), Iota({3})};
  EXPECT_NE(CheckInputs(graph, sizes).message().find("`n` is 2"), std::string::npos);
  const std::vector<Tensor> large = {Iota({9}), Iota({9})};
  EXPECT_NE(CheckInputs(graph, large).message().find("`n` goes from 1 to 8"), std::string::npos);
}

TEST(Evaluate, RefusesTensorsOverTheLimit) {
  const absl::StatusOr<std::vector<Tensor>> results =
      TryOp("ConstantOfShape", {Tensor::I64({int64_t{1} << 40, int64_t{1} << 40})});
  EXPECT_EQ(results.status().code(), absl::StatusCode::kResourceExhausted) << results.status();
}

TEST(Evaluate, StringsPassThroughViewsOnly) {
  const Tensor words = Tensor::Strings({2}, {"a", "b"});
  const std::vector<Tensor> same = RunOp("Identity", {words});
  EXPECT_EQ(same[0].strings(), (std::vector<std::string>{"a", "b"}));
  const std::vector<Tensor> column = RunOp("Reshape", {words, Tensor::I64({2, 1})});
  EXPECT_EQ(column[0].dims(), (Dims{2, 1}));
  EXPECT_EQ(column[0].strings().size(), 2u);
  const auto sum = TryOp("Add", {words, words});
  EXPECT_EQ(sum.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(sum.status().message().find("string"), std::string::npos);
}

// A body of one node over its inputs.
GraphPtr Body(const std::string& op, const std::vector<Type>& types) {
  Graph body;
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < types.size(); ++i)
    inputs.push_back(body.AddInput("i" + std::to_string(i), types[i]));
  body.outputs = body.node(body.AddNode(op, "inner_" + op, inputs)).outputs;
  return std::make_shared<const Graph>(std::move(body));
}

TEST(Fused, MeansWhatItsBodyMeans) {
  const Attributes attributes = {{"body", Body("Add", {Vector(2), Vector(2)})}};
  ExpectTensor(RunOp("q.fused", {Iota({2}), Iota({2})}, attributes)[0], {2}, {0, 2});
}

TEST(If, RunsOneBranchWithTheCaptures) {
  const Attributes attributes = {{"then_branch", Body("Add", {Vector(2), Vector(2)})},
                                 {"else_branch", Body("Sub", {Vector(2), Vector(2)})}};
  const Tensor x = F32({2}, {5, 6});
  const Tensor y = F32({2}, {1, 2});
  ExpectTensor(RunOp("If", {Bool({}, {1}), x, y}, attributes)[0], {2}, {6, 8});
  ExpectTensor(RunOp("If", {Bool({}, {0}), x, y}, attributes)[0], {2}, {4, 4});
}

// Body of a Loop: v + step -> v, collected; goes on while v < limit. Captures: step, limit.
GraphPtr CountingBody() {
  Graph body;
  body.AddInput("iteration", Scalar(DataType::kI64));
  body.AddInput("condition", Scalar(DataType::kBool));
  const ValueId v = body.AddInput("v", Scalar(DataType::kF32));
  const ValueId step = body.AddInput("step", Scalar(DataType::kF32));
  const ValueId limit = body.AddInput("limit", Scalar(DataType::kF32));
  const ValueId next = body.node(body.AddNode("Add", "next", {v, step})).outputs[0];
  const ValueId more = body.node(body.AddNode("Less", "more", {next, limit})).outputs[0];
  const ValueId copy = body.node(body.AddNode("Identity", "copy", {next})).outputs[0];
  body.outputs = {more, next, copy};
  return std::make_shared<const Graph>(std::move(body));
}

TEST(Loop, CarriesCollectsAndStops) {
  const Attributes attributes = {{"body", CountingBody()}, {"q.captures", int64_t{2}}};
  const auto scalar = [](float value) { return F32({}, {value}); };
  // Ends by its condition.
  std::vector<Tensor> results = RunOp(
      "Loop", {I64({}, {100}), Bool({}, {1}), scalar(0), scalar(2), scalar(5)}, attributes, 2);
  ExpectTensor(results[0], {}, {6});
  ExpectTensor(results[1], {3}, {2, 4, 6});
  // Ends by its trip count; no condition given.
  results =
      RunOp("Loop", {I64({}, {2}), std::nullopt, scalar(0), scalar(2), scalar(50)}, attributes, 2);
  ExpectTensor(results[0], {}, {4});
  // Never runs.
  results =
      RunOp("Loop", {I64({}, {0}), Bool({}, {1}), scalar(7), scalar(2), scalar(5)}, attributes, 2);
  ExpectTensor(results[0], {}, {7});
  EXPECT_EQ(results[1].dims(), (Dims{0}));
}

TEST(Loop, InfersCarriedValuesThatGrow) {
  // v = Concat(v, x): its size changes from one iteration to the next.
  Graph body;
  body.AddInput("iteration", Scalar(DataType::kI64));
  const ValueId condition = body.AddInput("condition", Scalar(DataType::kBool));
  const ValueId v = body.AddInput("v", Vector(0));
  const ValueId x = body.AddInput("x", Vector(2));
  const ValueId longer =
      body.node(body.AddNode("Concat", "longer", {v, x}, 1, {{"axis", int64_t{0}}})).outputs[0];
  const ValueId go_on = body.node(body.AddNode("Identity", "go_on", {condition})).outputs[0];
  body.outputs = {go_on, longer};
  const Attributes attributes = {{"body", std::make_shared<const Graph>(body)},
                                 {"q.captures", int64_t{1}}};
  const Operands operands = {I64({}, {3}), Bool({}, {1}), F32({0}, {}), Iota({2})};
  Graph graph = OneNode("Loop", operands, attributes);
  const absl::Status status = InferGraph(graph);
  ASSERT_TRUE(status.ok()) << status;
  const Type& type = graph.value(graph.outputs[0]).type;
  ASSERT_EQ(type.rank(), 1);
  EXPECT_FALSE(type.dims[0].is_static());
  EXPECT_TRUE(graph.symbols->DependsOnRuntime(type.dims[0]));
  ExpectTensor(RunOp("Loop", operands, attributes)[0], {6}, {0, 1, 0, 1, 0, 1});
}

TEST(Scan, SlicesAndStacksAlongItsAxes) {
  // Running sum over columns: state s {2}, slice x {2} -> s + x, collected.
  Graph body;
  const ValueId s = body.AddInput("s", Vector(2));
  const ValueId x = body.AddInput("x", Vector(2));
  const ValueId sum = body.node(body.AddNode("Add", "sum", {s, x})).outputs[0];
  const ValueId copy = body.node(body.AddNode("Identity", "copy", {sum})).outputs[0];
  body.outputs = {sum, copy};
  Attributes attributes = {{"body", std::make_shared<const Graph>(body)},
                           {"num_scan_inputs", int64_t{1}},
                           {"scan_input_axes", std::vector<int64_t>{1}},
                           {"scan_output_axes", std::vector<int64_t>{1}}};
  const Tensor start = F32({2}, {0, 100});
  const Tensor columns = F32({2, 3}, {1, 2, 3, 10, 20, 30});
  std::vector<Tensor> results = RunOp("Scan", {start, columns}, attributes, 2);
  ExpectTensor(results[0], {2}, {6, 160});
  ExpectTensor(results[1], {2, 3}, {1, 3, 6, 110, 130, 160});
  attributes["scan_input_directions"] = std::vector<int64_t>{1};
  results = RunOp("Scan", {start, columns}, attributes, 2);
  ExpectTensor(results[1], {2, 3}, {3, 5, 6, 130, 150, 160});
}

// Rows have the declared sizes where the loop never runs: of an input, of a node before the loop, and
// of a value that the loop would carry.
TEST(Loop, RowsThatNobodyMadeHaveTheirSizes) {
  absl::StatusOr<Graph> graph = ParseGraph(R"(quench.ir 1
module "rows" canonical {
  symbol n = input(2, 0) in 1..8
  input %times: i64[]
  input %which: bool[4]
  input %x: f32[n, 4]
  input %start: f32[2]
  %some = Compress(%x, %which) {axis = 1}
  %end, %rows = Loop(%times, _, %start, %some) {
    body = graph "" {
      input %i: i64[]
      input %on: bool[]
      input %state: f32[2]
      input %capture: f32[n, 4]
      %go_on = Identity(%on)
      %longer = Concat(%state, %state) {axis = 0}
      %row = Neg(%capture)
      output %go_on, %longer, %row
    },
    q.captures = 1
  }
  output %end, %rows
}
)");
  ASSERT_TRUE(graph.ok()) << graph.status();
  const absl::Status status = InferGraph(*graph);
  ASSERT_TRUE(status.ok()) << status;
  for (const int64_t trips : {0, 2}) {
    const auto results =
        Evaluate(*graph, std::vector<Tensor>{I64({}, {trips}), Bool({4}, {1, 0, 1, 1}),
                                             Iota({3, 4}), F32({2}, {5, 6})});
    ASSERT_TRUE(results.ok()) << results.status();
    EXPECT_EQ((*results)[0].dims(), (Dims{trips == 0 ? 2 : 8}));
    EXPECT_EQ((*results)[1].dims(), (Dims{trips, 3, 3}));
  }
}

TEST(Evaluate, ErrorsInBodiesNameTheWay) {
  const Attributes attributes = {{"body", Body("Add", {Vector(2), Vector(3)})}};
  ExpectError(TryOp("q.fused", {Iota({2}), Iota({3})}, attributes),
              "node `n`: body: node `inner_Add`");
}

}  // namespace
}  // namespace quench::ops::evaluate_test
