#include "services/analyser/partition.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "common/ir/hash.h"
#include "common/ir/verify.h"
#include "common/ops/op.h"
#include "common/passes/pass.h"
#include "tests/support/graphs.h"
#include "tests/support/matchers.h"

namespace quench::analyser::partition_test {
namespace {

using ::quench::testing::Add;
using ::quench::testing::CountOps;
using ::quench::testing::Difference;
using ::quench::testing::HasSubstr;
using ::quench::testing::RandomTensor;

constexpr PartitionOptions kPlain = {.remove_no_mac_subgraphs = false,
                                     .simplify_batch_matmul = false,
                                     .simplify_scalar_add = false,
                                     .remove_stacks = false};

Backend Runs(const std::string& list) { return BackendOf("list", list).value(); }

// A graph of additions (which the backend runs) and products (which it does not), drawn at random.
Graph RandomGraph(uint64_t seed, int nodes) {
  std::mt19937_64 random(seed);
  Graph graph;
  graph.name = "random";
  std::vector<ValueId> values = {graph.AddInput("x", Type::Tensor(DataType::kF32, {3}))};
  std::vector<bool> read(1, true);
  for (int i = 0; i < nodes; ++i) {
    const auto pick = [&] { return values[random() % values.size()]; };
    values.push_back(Add(graph, random() % 5 < 3 ? "Add" : "Mul", {pick(), pick()}));
  }
  const std::vector<int> uses = graph.UseCounts();
  for (const ValueId id : values) {
    if (uses[static_cast<size_t>(id)] == 0) graph.outputs.push_back(id);
  }
  return graph;
}

// Whether the parts, each taken as one node, form no cycle. part[i] < 0: node i by itself.
bool IsAcyclic(const Graph& graph, const std::vector<int>& part) {
  const size_t count = graph.nodes.size();
  const auto group = [&](size_t i) {
    return part[i] < 0 ? count + i : static_cast<size_t>(part[i]);
  };
  std::vector<std::set<size_t>> next(2 * count);
  for (size_t i = 0; i < count; ++i) {
    for (const ValueId id : graph.nodes[i].inputs) {
      const NodeId from = graph.value(id).producer;
      if (from != kNone && group(static_cast<size_t>(from)) != group(i))
        next[group(static_cast<size_t>(from))].insert(group(i));
    }
  }
  std::vector<int> state(2 * count, 0);
  const std::function<bool(size_t)> visit = [&](size_t at) {
    if (state[at] != 0) return state[at] == 2;
    state[at] = 1;
    for (const size_t to : next[at]) {
      if (!visit(to)) return false;
    }
    state[at] = 2;
    return true;
  };
  for (size_t at = 0; at < next.size(); ++at) {
    if (!visit(at)) return false;
  }
  return true;
}

// The fewest parts, by trying every way to put the nodes that the backend runs into parts.
int FewestParts(const Graph& graph) {
  std::vector<size_t> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op == "Add") nodes.push_back(i);
  }
  std::vector<int> part(graph.nodes.size(), -1);
  int fewest = static_cast<int>(nodes.size());
  const std::function<void(size_t, int)> place = [&](size_t at, int used) {
    if (used >= fewest) return;
    if (at == nodes.size()) {
      if (IsAcyclic(graph, part)) fewest = used;
      return;
    }
    for (int to = 0; to <= used; ++to) {
      part[nodes[at]] = to;
      place(at + 1, std::max(used, to + 1));
    }
    part[nodes[at]] = -1;
  };
  place(0, 0);
  return fewest;
}

TEST(PartitionTest, ThereAreAsFewPartsAsCanBe) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Graph graph = RandomGraph(seed, 3 + static_cast<int>(seed % 9));
    const Partitioned result = PartitionGraph(graph, Runs("Add"), kPlain).value();
    EXPECT_EQ(static_cast<int>(result.report.parts.size()), FewestParts(graph)) << seed;
    EXPECT_EQ(CountOps(result.graph, "Add"), 0) << seed;
    EXPECT_TRUE(VerifyGraph(result.graph).ok()) << seed;
    EXPECT_EQ(Difference(graph, result.graph), 0) << seed;
    const Graph whole = passes::InlinePartitions(result.graph).value();
    EXPECT_EQ(Fingerprint(whole), Fingerprint(graph)) << seed;
  }
}

// conv -> relu -> exp -> conv, and a sum that needs no multiplications.
Graph Network() {
  Graph graph;
  graph.name = "network";
  const SymbolId n = graph.symbols->AddInput("n", {0, 0});
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {Dim::OfSymbol(n), 2, 4, 4}));
  const ValueId w = graph.AddConstant("w", RandomTensor({2, 2, 1, 1}, 1));
  const ValueId first = Add(graph, "Relu", {Add(graph, "Conv", {x, w}, {}, "conv1")}, {}, "relu");
  const ValueId middle = Add(graph, "Exp", {first}, {}, "exp");
  const ValueId second = Add(graph, "Conv", {middle, w}, {}, "conv2");
  const ValueId third = Add(graph, "Exp", {second}, {}, "exp2");
  graph.outputs = {Add(graph, "Relu", {third}, {}, "relu2")};
  return graph;
}

TEST(PartitionTest, ReportsPartsAndWhatStays) {
  const Graph graph = Network();
  const Backend backend = Runs("Conv\nRelu # comments\n\n");
  const Partitioned result = PartitionGraph(graph, backend, {}).value();
  ASSERT_EQ(result.report.parts.size(), 2u);
  const PartitionPart& part = result.report.parts[0];
  EXPECT_EQ(part.name, "list_0");
  EXPECT_EQ(part.nodes, 2);
  EXPECT_EQ(part.macs, 16 * 2 * 2);
  EXPECT_EQ(part.operators, (std::map<std::string, int64_t>{{"Conv", 1}, {"Relu", 1}}));
  EXPECT_EQ(part.inputs, std::vector<std::string>{"x"});
  EXPECT_EQ(part.outputs, std::vector<std::string>{"relu"});
  ASSERT_EQ(result.report.left.size(), 3u);
  EXPECT_EQ(result.report.left[0].reason, "it is not in the list");
  EXPECT_EQ(result.report.left[2].node, "relu2");
  EXPECT_EQ(result.report.left[2].reason, "its part would have no multiplications");
  EXPECT_EQ(SubgraphNames(result.graph), (std::vector<std::string>{"list_0", "list_1"}));
  EXPECT_EQ(PartitionBackends(result.graph), std::vector<std::string>{"list"});
  EXPECT_EQ(PartitionGraph(graph, backend, {.min_nodes = 2})->report.parts.size(), 1u);
  EXPECT_EQ(PartitionGraph(graph, backend, kPlain)->report.parts.size(), 3u);
  // A second partition replaces the first.
  EXPECT_EQ(PartitionGraph(result.graph, Runs("Exp"), kPlain)->report.parts.size(), 2u);
  EXPECT_THAT(ToTable(result.report), HasSubstr("2 parts for list, 3 nodes stay"));
  EXPECT_THAT(ToJson(result.report), HasSubstr("\"subgraph_count\": 2"));
}

TEST(PartitionTest, PartsAreModulesOfTheirOwn) {
  const Partitioned result = PartitionGraph(Network(), Runs("Conv\nRelu"), {}).value();
  for (const Node& node : result.graph.nodes) {
    if (node.op != "q.partition") continue;
    const Graph part = passes::StandAlone(node).value();
    EXPECT_TRUE(VerifyGraph(part).ok());
    EXPECT_FALSE(part.value(part.inputs[0]).type.dims[0].is_static());
    EXPECT_EQ(part.value(part.outputs[0]).type.dims[0], part.value(part.inputs[0]).type.dims[0]);
    EXPECT_EQ(Difference(part, part), 0);  // it runs
  }
}

TEST(PartitionTest, PartsInBodiesGoBackToo) {
  Graph body;
  body.name = "body";
  const ValueId inner = body.AddInput("x", Type::Tensor(DataType::kF32, {3}));
  body.outputs = {Add(body, "Add", {inner, inner})};
  const auto cut =
      std::make_shared<const Graph>(PartitionGraph(body, Runs("Add"), kPlain).value().graph);
  Graph graph;
  graph.name = "outer";
  graph.symbols = cut->symbols;
  const ValueId condition = graph.AddInput("c", Type::Tensor(DataType::kBool, {}));
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {3}));
  graph.outputs = {Add(graph, "If", {condition, x}, {{"then_branch", cut}, {"else_branch", cut}})};
  EXPECT_EQ(SubgraphNames(graph).size(), 4u);  // two branches, each with a part
  const Graph whole = passes::InlinePartitions(graph).value();
  EXPECT_EQ(SubgraphNames(whole).size(), 2u);
}

TEST(PartitionTest, SimplificationsChangeNoValue) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {2, 3, 4}));
  const ValueId y = graph.AddInput("y", Type::Tensor(DataType::kF32, {2, 3, 4}));
  const ValueId axis = graph.AddConstant("axis", Tensor::I64({-3}));
  const ValueId sum = Add(graph, "Add", {x, graph.AddConstant("two", Tensor::ScalarF32(2))});
  const ValueId product =
      Add(graph, "MatMul", {y, graph.AddConstant("w", RandomTensor({1, 4, 4}, 3))});
  const ValueId stack =
      Add(graph, "Concat",
          {Add(graph, "Unsqueeze", {sum, axis}), Add(graph, "Unsqueeze", {product, axis})},
          {{"axis", int64_t{1}}});
  graph.outputs = {Add(graph, "Relu", {stack})};
  const auto [simple, changed] = SimplifyForPartition(graph, {});
  EXPECT_EQ(changed, 3);
  EXPECT_EQ(CountOps(simple, "Unsqueeze"), 0);
  EXPECT_EQ(Difference(graph, simple), 0);
  EXPECT_EQ(SimplifyForPartition(graph, kPlain).second, 0);
}

TEST(PartitionTest, EqualMatricesOfABatchBecomeOne) {
  const auto changed = [&](const std::vector<int64_t>& data, const std::vector<float>& values) {
    Graph graph;
    const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {data.begin(), data.end()}));
    const ValueId w = graph.AddConstant("w", Tensor::Of(DataType::kF32, {2, 2, 2}, values));
    graph.outputs = {Add(graph, "MatMul", {x, w})};
    const auto [simple, count] = SimplifyForPartition(graph, {});
    EXPECT_EQ(Difference(graph, simple), 0);
    return count;
  };
  const std::vector<float> equal = {1, 2, 3, 4, 1, 2, 3, 4}, other = {1, 2, 3, 4, 1, 2, 3, 5};
  EXPECT_EQ(changed({2, 3, 2}, equal), 1);
  EXPECT_EQ(changed({4, 2, 3, 2}, equal), 1);
  EXPECT_EQ(changed({2, 3, 2}, other), 0);
  EXPECT_EQ(changed({1, 3, 2}, equal), 0);  // the result has a batch that only they have
}

TEST(PartitionTest, TensorRtHasTypesAndConditions) {
  const Backend tensorrt = FindBackend("tensorrt").value();
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 2, 6, 6}));
  const ValueId d = graph.AddInput("d", Type::Tensor(DataType::kF64, {1, 2, 6, 6}));
  const std::map<std::string, Attribute> window = {{"kernel_shape", std::vector<int64_t>{2, 2}}};
  std::map<std::string, Attribute> dilated = window;
  dilated["dilations"] = std::vector<int64_t>{2, 2};
  const auto reason = [&](ValueId id) {
    return tensorrt.refuses(graph, graph.node(graph.value(id).producer));
  };
  EXPECT_EQ(reason(Add(graph, "MaxPool", {x}, window)), "");
  EXPECT_EQ(reason(Add(graph, "MaxPool", {x}, dilated)), "it has dilations");
  EXPECT_THAT(reason(Add(graph, "Relu", {d})), HasSubstr("is f64"));
  EXPECT_EQ(reason(Add(graph, "Det", {x})), "it has no such operator");
}

TEST(PartitionTest, UnknownBackendsAndOperatorsAreNamed) {
  EXPECT_THAT(std::string(FindBackend("tensorflow").status().message()),
              HasSubstr("neither one of onnxruntime, tensorrt"));
  const std::string message(BackendOf("npu", "Conv\nRelo\n\nSoftmaxx # no\n").status().message());
  EXPECT_THAT(message, HasSubstr("npu:2: operator `Relo` is not known, similar ones are `Relu`"));
  EXPECT_THAT(message, HasSubstr("npu:4: operator `Softmaxx`"));
  EXPECT_THAT(std::string(BackendOf("npu", " # nothing\n").status().message()),
              HasSubstr("lists no operator"));
}

}  // namespace
}  // namespace quench::analyser::partition_test
