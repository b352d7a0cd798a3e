#include "services/analyser/nodes.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "services/analyser/partition.h"
#include "tests/support/graphs.h"

namespace quench::analyser::nodes_test {
namespace {

using ::quench::testing::Add;
using ::quench::testing::RandomTensor;

// A convolution on a symbolic batch, and an If whose branches have a node each.
Graph WithBranches() {
  Graph graph;
  graph.name = "branches";
  const SymbolId n = graph.symbols->AddInput("n", {1, 8});
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {Dim::OfSymbol(n), 2, 6, 6}));
  const ValueId flag = graph.AddInput("flag", Type::Tensor(DataType::kBool, {}));
  const ValueId w = graph.AddConstant("w", RandomTensor({4, 2, 3, 3}, 1));
  const ValueId y = Add(graph, "Conv", {x, w}, {{"strides", std::vector<int64_t>{2, 1}}}, "conv");
  graph.node(graph.value(y).producer).origin = "/features/conv/Conv";
  std::map<std::string, Attribute> branches;
  for (const char* name : {"then_branch", "else_branch"}) {
    auto body = std::make_shared<Graph>();
    body->symbols = graph.symbols;
    const ValueId inside = body->AddInput("inside", graph.value(y).type);
    body->outputs = {Add(*body, "Relu", {inside}, {}, "relu")};
    branches[name] = GraphPtr(body);
  }
  graph.outputs = {Add(graph, "If", {flag, y}, branches, "choice")};
  return graph;
}

TEST(NodesTest, NodesOfAllGraphsHaveTheirValuesAndAttributes) {
  const Graph graph = WithBranches();
  const auto facts = Introspect(graph, {.sizes = {{"n", 3}}});
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->graph_count, 3);
  EXPECT_EQ(facts->subgraph_count, 2);
  EXPECT_EQ(facts->operators,
            (std::map<std::string, int64_t>{{"Conv", 1}, {"If", 1}, {"Relu", 2}}));
  EXPECT_TRUE(facts->is_dynamic);
  EXPECT_FALSE(facts->is_quantized);
  ASSERT_EQ(facts->nodes.size(), 4u);
  const NodeFacts& conv = facts->nodes[0];
  EXPECT_EQ(conv.origin, "/features/conv/Conv");
  ASSERT_EQ(conv.inputs.size(), 2u);
  EXPECT_EQ(conv.inputs[0].type, "f32[n, 2, 6, 6]");
  EXPECT_EQ(conv.inputs[0].bytes, 3 * 2 * 36 * 4);
  EXPECT_FALSE(conv.inputs[0].constant);
  EXPECT_TRUE(conv.inputs[1].constant);
  EXPECT_EQ(conv.attributes.at("strides"), "[2,1]");
  EXPECT_EQ(facts->nodes[2].graph, "main/choice.else_branch");
  const nlohmann::json json = nlohmann::json::parse(ToJson(*facts));
  EXPECT_EQ(json.at("nodes").size(), 4u);
  EXPECT_EQ(json.at("nodes")[0].at("attributes").at("strides"), (std::vector<int>{2, 1}));
  EXPECT_EQ(json.at("input_count"), 2);
  EXPECT_NE(ToTable(*facts).find("Conv  conv (from /features/conv/Conv)"), std::string::npos);
}

TEST(NodesTest, PatternsChooseNodesAndMustMatch) {
  const Graph graph = WithBranches();
  const auto ops = Introspect(graph, {.ops = {"Re*", "Conv"}});
  ASSERT_TRUE(ops.ok()) << ops.status();
  EXPECT_EQ(ops->nodes.size(), 3u);
  EXPECT_EQ(ops->operators.size(), 3u);  // of the whole module
  const auto names = Introspect(graph, {.names = {"/features/*"}});
  ASSERT_TRUE(names.ok()) << names.status();
  ASSERT_EQ(names->nodes.size(), 1u);
  EXPECT_EQ(names->nodes[0].name, "conv");
  const auto both = Introspect(graph, {.ops = {"Conx"}, .names = {"nobody"}});
  EXPECT_EQ(both.status().code(), absl::StatusCode::kNotFound);
  const std::string message(both.status().message());
  EXPECT_NE(message.find("no node has an operator `Conx`; there are Conv, If, Relu"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("no node is named `nobody`"), std::string::npos) << message;
}

TEST(NodesTest, ModulesThatQuantizeSayIt) {
  Graph graph;
  graph.name = "quantizes";
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {4}));
  graph.outputs = {Add(graph, "QuantizeLinear",
                       {x, graph.AddConstant("s", Tensor::ScalarF32(0.5F)),
                        graph.AddConstant("z", Tensor::Zeros(DataType::kI8, {}))})};
  const auto facts = Introspect(graph, {});
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_TRUE(facts->is_quantized);
  EXPECT_FALSE(facts->is_dynamic);
}

TEST(NodesTest, PartsForABackendAreSubgraphs) {
  Graph graph;
  graph.name = "parts";
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {2, 4}));
  graph.outputs = {Add(graph, "MatMul", {x, graph.AddConstant("w", RandomTensor({4, 4}, 1))})};
  EXPECT_TRUE(Introspect(graph, {})->partition_backends.empty());
  const auto backend = FindBackend("tensorrt");
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto cut = PartitionGraph(graph, *backend, {});
  ASSERT_TRUE(cut.ok()) << cut.status();
  const auto facts = Introspect(cut->graph, {});
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->partition_backends, std::vector<std::string>{"tensorrt"});
  EXPECT_EQ(facts->graph_count, 2);
  EXPECT_FALSE(facts->is_quantized);
  EXPECT_EQ(facts->nodes.back().op, "MatMul");
}

}  // namespace
}  // namespace quench::analyser::nodes_test
