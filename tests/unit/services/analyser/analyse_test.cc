#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "services/analyser/analyser.h"
#include "tests/support/graphs.h"

namespace quench::analyser {
namespace {

using ::quench::testing::Add;
using ::quench::testing::RandomTensor;

// Two convolutions that share a weight, on a symbolic batch.
Graph SharedWeights() {
  Graph graph;
  graph.name = "shared";
  const SymbolId n = graph.symbols->AddInput("n", {0, 0});
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {Dim::OfSymbol(n), 4, 6, 6}));
  const ValueId w = graph.AddConstant("w", RandomTensor({4, 4, 3, 3}, 1));
  const ValueId b = graph.AddConstant("b", RandomTensor({4}, 2));
  const std::map<std::string, Attribute> pads = {{"pads", std::vector<int64_t>{1, 1, 1, 1}}};
  const ValueId y = Add(graph, "Conv", {x, w, b}, pads, "first");
  graph.outputs = {Add(graph, "Conv", {Add(graph, "Relu", {y}), w}, pads, "second")};
  return graph;
}

TEST(AnalyseTest, CountsSharedWeightsOnceAndMacsTwice) {
  const Graph graph = SharedWeights();
  const auto report = Analyse(graph, graph);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->parameters, 4 * 4 * 9 + 4);
  EXPECT_EQ(report->weight_bytes, 4 * report->parameters);
  EXPECT_EQ(report->macs, 2 * 36 * 4 * 4 * 9);
  EXPECT_EQ(report->macs_with_bias, report->macs + 36 * 4);
  EXPECT_EQ(report->macs_by_op.at("Conv"), report->macs);
  EXPECT_EQ(report->layers[0].parameters, report->parameters);
  EXPECT_EQ(report->layers[2].parameters, 0);
  EXPECT_EQ(report->operators.at("Conv"), 2);
}

TEST(AnalyseTest, StatisticsAndSettingsAreNotParameters) {
  Graph graph;
  graph.name = "norm";
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 4, 6, 6}));
  std::vector<ValueId> inputs = {x};
  for (const char* name : {"scale", "bias", "mean", "variance"})
    inputs.push_back(graph.AddConstant(name, RandomTensor({4}, inputs.size())));
  const ValueId y = Add(graph, "BatchNormalization", inputs);
  graph.outputs = {Add(graph, "Clip",
                       {y, graph.AddConstant("low", Tensor::ScalarF32(0)),
                        graph.AddConstant("high", Tensor::ScalarF32(6))})};
  const auto report = Analyse(graph, graph);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->parameters, 8);
  EXPECT_EQ(report->weight_bytes, 4 * 18);
}

TEST(AnalyseTest, SymbolicDimsCountAtTheSizesAskedFor) {
  const Graph graph = SharedWeights();
  const auto one = Analyse(graph, graph);
  const auto five = Analyse(graph, graph, {{"n", 5}});
  ASSERT_TRUE(one.ok() && five.ok());
  EXPECT_EQ(five->macs, 5 * one->macs);
  EXPECT_EQ(five->peak_activation_bytes, 5 * one->peak_activation_bytes);
  EXPECT_EQ(five->symbol_sizes.at("n"), 5);
  EXPECT_EQ(Analyse(graph, graph, {{"m", 5}}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(AnalyseTest, PeakIsWhatIsAliveAtOnce) {
  const Graph graph = SharedWeights();
  const auto report = Analyse(graph, graph);
  ASSERT_TRUE(report.ok());
  const int64_t tensor = 4 * 36 * 4;
  EXPECT_EQ(report->activation_bytes, 3 * tensor);
  EXPECT_EQ(report->peak_activation_bytes, 2 * tensor);
}

TEST(AnalyseTest, JsonAndTableSayTheSame) {
  const Graph graph = SharedWeights();
  const auto report = Analyse(graph, graph);
  ASSERT_TRUE(report.ok());
  const nlohmann::json json = nlohmann::json::parse(ToJson(*report));
  EXPECT_EQ(json.at("macs").at("total"), report->macs);
  EXPECT_EQ(json.at("parameters"), 148);
  EXPECT_EQ(json.at("layers").size(), 3u);
  const std::string table = ToTable(*report);
  EXPECT_NE(table.find("parameters        148"), std::string::npos);
  EXPECT_NE(table.find("rule "), std::string::npos);
  EXPECT_NE(table.find(report->fingerprint), std::string::npos);
}

}  // namespace
}  // namespace quench::analyser
