// The catalogue itself: look-up, node checks, inference over graphs and bodies.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/loops/interpreter.h"
#include "common/ops/work.h"
#include "run_op.h"

namespace quench::ops::catalogue_test {
namespace {

TEST(Catalogue, IsSortedAndComplete) {
  const std::span<const OpDef* const> all = AllOps();
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(),
                             [](const OpDef* a, const OpDef* b) { return a->name < b->name; }));
  for (const OpDef* op : all) {
    SCOPED_TRACE(op->name);
    EXPECT_EQ(FindOp(op->name), op);
    EXPECT_FALSE(op->summary.empty());
    EXPECT_NE(op->infer, nullptr);
    EXPECT_EQ(op->kind == OpKind::kPointwise, op->scalar != nullptr);
    EXPECT_TRUE(op->kind != OpKind::kNest || op->lower != nullptr);
    EXPECT_LE(op->min_inputs, op->max_inputs < 0 ? op->min_inputs : op->max_inputs);
    EXPECT_LE(op->min_outputs, op->max_outputs < 0 ? op->min_outputs : op->max_outputs);
  }
  EXPECT_EQ(FindOp("Nothing"), nullptr);
  EXPECT_EQ(FindOp(""), nullptr);
}

TEST(Catalogue, OperatorsWithMacsAreConvolutionsProductsOrRecurrent) {
  for (const OpDef* op : AllOps()) {
    SCOPED_TRACE(op->name);
    const WorkKind kind = WorkOf(*op);
    const bool has_macs = kind == WorkKind::kConvolution || kind == WorkKind::kProduct ||
                          kind == WorkKind::kRecurrent;
    EXPECT_EQ(has_macs, op->macs != nullptr);
    EXPECT_TRUE(op->bias < 0 || (op->macs != nullptr && op->bias < op->max_inputs));
  }
  EXPECT_EQ(WorkOf(*FindOp("LSTM")), WorkKind::kRecurrent);
  EXPECT_EQ(WorkOf(*FindOp("ReduceSum")), WorkKind::kReduction);
  EXPECT_EQ(WorkOf(*FindOp("Relu")), WorkKind::kElementwise);
  EXPECT_EQ(WorkOf(*FindOp("Concat")), WorkKind::kNone);
}

TEST(Catalogue, SuggestsSimilarNames) {
  EXPECT_EQ(SimilarOps("relu", 1), std::vector<std::string>{"Relu"});
  EXPECT_EQ(SimilarOps("Matmul", 1), std::vector<std::string>{"MatMul"});
  EXPECT_EQ(SimilarOps("Conv", 2).size(), 2u);
}

TEST(CheckNode, ReportsEveryProblemAtOnce) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 1, 4}));
  const NodeId node = graph.AddNode("MaxPool", "pool", {x, x}, 3,
                                    {{"stride", int64_t{1}}, {"pads", std::string("1")}});
  const absl::Status status = CheckNode(graph, graph.node(node));
  ASSERT_FALSE(status.ok());
  const std::string text(status.message());
  for (const char* part : {"node `pool` (MaxPool)", "has 2 inputs, MaxPool takes 1",
                           "has 3 outputs", "unknown attribute `stride`",
                           "`pads` is not a list of ints", "`kernel_shape` is missing"}) {
    EXPECT_NE(text.find(part), std::string::npos) << "no " << part << " in: " << text;
  }
}

TEST(CheckNode, UnknownOperatorsNameSimilarOnes) {
  Graph graph;
  const NodeId node = graph.AddNode("Rellu", "n", {}, 1);
  const absl::Status status = CheckNode(graph, graph.node(node));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("`Relu`"), std::string::npos);
}

TEST(CheckNode, OmittedRequiredInputs) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1}));
  const NodeId node = graph.AddNode("Add", "n", {x, kNone}, 1);
  EXPECT_NE(CheckNode(graph, graph.node(node)).message().find("input 1 is omitted"),
            std::string::npos);
}

TEST(InferGraph, ReportsIndependentFailuresAndNotTheirConsequences) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {2}));
  const ValueId y = graph.AddInput("y", Type::Tensor(DataType::kF32, {3}));
  const NodeId first = graph.AddNode("Add", "first", {x, y});
  graph.AddNode("Relu", "after", {graph.node(first).outputs[0]});
  graph.AddNode("Nope", "second", {x});
  const absl::Status status = InferGraph(graph);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("`first`"), std::string::npos);
  EXPECT_NE(status.message().find("`second`"), std::string::npos);
  EXPECT_EQ(status.message().find("`after`"), std::string::npos);
}

TEST(Broadcast, SymbolsMeetOnesNumbersAndEachOther) {
  Graph graph;
  const Dim n = Dim::OfSymbol(graph.symbols->AddInput("n", {0, 0}));
  const Dim m = Dim::OfSymbol(graph.symbols->AddInput("m", {1, 0}));
  const auto sum_dim = [&](Dim a, Dim b) {
    const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {a}));
    const ValueId y = graph.AddInput("y", Type::Tensor(DataType::kF32, {b}));
    const NodeId node = graph.AddNode("Add", "add", {x, y});
    EXPECT_TRUE(InferNode(graph, graph.node(node)).ok());
    return graph.value(graph.node(node).outputs[0]).type.dims[0];
  };
  EXPECT_EQ(sum_dim(n, 1), n);
  EXPECT_EQ(sum_dim(n, n), n);
  EXPECT_EQ(sum_dim(n, 8), Dim(8));
  EXPECT_EQ(sum_dim(n, m), graph.symbols->Max(n, m));

  const Dim none = Dim::OfSymbol(graph.symbols->AddInput("none", {2, 0}, {0, 64}));
  const Dim size = sum_dim(none, n);
  for (const auto& [a, b, both] :
       {std::tuple{0, 1, 0}, {1, 1, 1}, {5, 1, 5}, {1, 7, 7}, {3, 3, 3}}) {
    std::vector<int64_t> slots(static_cast<size_t>(graph.symbols->size()), -1);
    slots[static_cast<size_t>(n.symbol())] = b;
    slots[static_cast<size_t>(none.symbol())] = a;
    slots = graph.symbols->Evaluate(slots).value();
    EXPECT_EQ(SymbolTable::ValueOf(size, slots), both) << a << " and " << b;
  }
}

// x {n} + y {8}: fine when n is 8 or 1, refused by the nest otherwise.
TEST(Broadcast, SymbolsAreCheckedWhenTheNestRuns) {
  Graph graph;
  const Dim n = Dim::OfSymbol(graph.symbols->AddInput("n", {0, 0}));
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {n}));
  const ValueId y = graph.AddInput("y", Type::Tensor(DataType::kF32, {2}));
  const NodeId node = graph.AddNode("Add", "add", {x, y});
  ASSERT_TRUE(InferGraph(graph).ok());
  const auto function = LowerNode(ContextOf(graph, graph.node(node)));
  ASSERT_TRUE(function.ok());
  EXPECT_EQ(loops::Verify(*function), "");
  EXPECT_NE(loops::Print(*function).find("cannot be broadcast"), std::string::npos);
}

TEST(SymbolicContents, FollowPointwiseArithmetic) {
  Graph graph;
  const Dim n = Dim::OfSymbol(graph.symbols->AddInput("n", {0, 0}, {1, 64}));
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kI64, {2}));
  graph.value(x).elements = std::vector<Dim>{n, 6};
  const ValueId two = graph.AddConstant("two", Tensor::I64({2}));
  const ValueId minus = graph.AddConstant("minus", Tensor::I64({-1}));
  const auto contents = [&](const std::string& op, std::vector<ValueId> inputs) {
    const NodeId node = graph.AddNode(op, op, std::move(inputs));
    const absl::Status status = InferNode(graph, graph.node(node));
    EXPECT_TRUE(status.ok()) << status;
    return graph.value(graph.node(node).outputs[0]).elements;
  };
  SymbolTable& s = *graph.symbols;
  using Elements = std::vector<Dim>;
  EXPECT_EQ(contents("Add", {x, two}), (Elements{s.Add(n, 2), 8}));
  EXPECT_EQ(contents("Sub", {x, two}), (Elements{s.Sub(n, 2), 4}));
  EXPECT_EQ(contents("Mul", {x, two}), (Elements{s.Mul(n, 2), 12}));
  EXPECT_EQ(contents("Div", {x, two}), (Elements{s.FloorDiv(n, 2), 3}));
  EXPECT_EQ(contents("Max", {x, two}), (Elements{s.Max(n, 2), 6}));
  EXPECT_EQ(contents("Neg", {x}), (Elements{s.Sub(0, n), -6}));
  // A size is never -1: known although the size is not.
  EXPECT_EQ(contents("Equal", {x, minus}), (Elements{0, 0}));
  const NodeId equal = graph.AddNode("Equal", "eq", {x, minus});
  ASSERT_TRUE(InferNode(graph, graph.node(equal)).ok());
  EXPECT_EQ(contents("Where", {graph.node(equal).outputs[0], two, x}), (Elements{n, 6}));
  EXPECT_EQ(contents("Equal", {x, two}), std::nullopt);
}

TEST(Runtime, DimsAreIdempotentAndTellNodesApart) {
  Graph graph;
  graph.AddNode("Relu", "a/b", {}, 1);
  graph.AddNode("Relu", "a_b", {}, 1);
  InferContext first(graph.nodes[0], {}, {Type{}}, *graph.symbols);
  InferContext second(graph.nodes[1], {}, {Type{}}, *graph.symbols);
  const Dim dim = first.RuntimeDim(0, Dim(10));
  EXPECT_EQ(first.RuntimeDim(0, Dim(10)), dim);
  EXPECT_NE(first.RuntimeDim(1, std::nullopt), dim);
  const Dim other = second.RuntimeDim(0, std::nullopt);
  EXPECT_NE(other, dim);
  EXPECT_EQ(second.RuntimeDim(0, std::nullopt), other);
  EXPECT_EQ(first.RuntimeSymbol(0), dim.symbol());
  EXPECT_EQ(second.RuntimeSymbol(0), other.symbol());
}

TEST(Reshape, ResolvesMinusOneAndZero) {
  const Tensor x = Iota({2, 3, 4});
  EXPECT_EQ(RunOp("Reshape", {x, Tensor::I64({0, -1})})[0].dims(), (Dims{2, 12}));
  EXPECT_EQ(RunOp("Reshape", {x, Tensor::I64({4, 6})})[0].dims(), (Dims{4, 6}));
  ExpectError(TryOp("Reshape", {x, Tensor::I64({-1, -1})}), "-1 twice");
  ExpectError(TryOp("Reshape", {x, Tensor::I64({5, -1})}), "do not divide");
  ExpectError(TryOp("Reshape", {x, Tensor::I64({5, 5})}), "has 25 elements, the input has 24");
}

// The sizes function of a Reshape whose shape is data: the slots, or the text of the failed check.
struct RuntimeShape {
  std::vector<int64_t> dims;
  std::string error;
};
RuntimeShape SizesAtRunTime(const std::vector<int64_t>& shape) {
  Tensor data = Iota({2, 3, 4});
  Tensor wanted = Tensor::I64(shape);
  Graph graph = OneNode("Reshape", {data, wanted});
  EXPECT_TRUE(InferGraph(graph).ok());
  const OpContext context = ContextOf(graph, graph.nodes[0]);
  const auto sizes = LowerSizes(context);
  EXPECT_TRUE(sizes.ok() && sizes->has_value()) << sizes.status();
  std::vector<int64_t> slots(static_cast<size_t>(graph.symbols->size()), -1);
  const std::vector<loops::BufferView> buffers = {{data.mutable_bytes(), data.dims()},
                                                  {wanted.mutable_bytes(), wanted.dims()}};
  const absl::Status status = loops::Interpret(**sizes, buffers, slots);
  RuntimeShape result;
  result.error = std::string(status.message());
  for (const Dim dim : context.output(0).dims) {
    result.dims.push_back(SymbolTable::ValueOf(dim, slots));
  }
  return result;
}

TEST(Reshape, ShapesFromDataSetTheirSizes) {
  EXPECT_EQ(SizesAtRunTime({4, 6}).dims, (Dims{4, 6}));
  EXPECT_EQ(SizesAtRunTime({0, -1}).dims, (Dims{2, 12}));
  EXPECT_EQ(SizesAtRunTime({-1}).dims, (Dims{24}));
  EXPECT_NE(SizesAtRunTime({-1, -1}).error.find("-1 twice"), std::string::npos);
  EXPECT_NE(SizesAtRunTime({5, 5}).error.find("does not fit"), std::string::npos);
  EXPECT_NE(SizesAtRunTime({-2, 3}).error.find("negative size"), std::string::npos);
  EXPECT_NE(SizesAtRunTime({2, 3, 4, 0}).error.find("not there"), std::string::npos);
}

// The nest of a view keeps the order of elements, whatever dims match on the left and right.
TEST(View, NestsKeepRowMajorOrder) {
  const std::vector<std::pair<Dims, Dims>> pairs = {{{2, 3, 4}, {2, 12}}, {{2, 12}, {2, 3, 4}},
                                                    {{2, 3, 4}, {6, 4}},  {{6}, {1, 2, 3}},
                                                    {{4, 6}, {3, 8}},     {{1}, {}},
                                                    {{}, {1, 1}}};
  for (const auto& [from, to] : pairs) {
    Graph graph = OneNode("Reshape", {Iota(from), Tensor::I64(to)}, {}, 1, {1});
    ASSERT_TRUE(InferGraph(graph).ok());
    const auto function = LowerNode(ContextOf(graph, graph.nodes[0]));
    ASSERT_TRUE(function.ok()) << function.status();
    EXPECT_EQ(loops::Verify(*function), "");
  }
}

}  // namespace
}  // namespace quench::ops::catalogue_test
