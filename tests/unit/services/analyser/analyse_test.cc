#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "services/analyser/analyser.h"
#include "tests/support/graphs.h"

namespace quench::analyser::analyse_test {
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
  EXPECT_EQ(report->work.parameters, 4 * 4 * 9 + 4);
  EXPECT_EQ(report->work.weight_bytes, 4 * report->work.parameters);
  EXPECT_EQ(report->work.macs, 2 * 36 * 4 * 4 * 9);
  EXPECT_EQ(report->work.macs_with_bias, report->work.macs + 36 * 4);
  EXPECT_EQ(report->macs_by_op.at("Conv"), report->work.macs);
  EXPECT_EQ(report->layers[0].work.parameters, report->work.parameters);
  EXPECT_EQ(report->layers[2].work.parameters, 0);
  EXPECT_EQ(report->operators.at("Conv"), 2);
  EXPECT_EQ(report->shared_parameters, 4 * 4 * 9);
  EXPECT_EQ(report->layers[2].shared_parameters, 4 * 4 * 9);
  EXPECT_EQ(report->work.flops, 2 * report->work.macs + 36 * 4 + 36 * 4);  // the bias, the Relu
  const int64_t inside = 4 * 4 * 16 * 16;  // along an axis 6 x 3 pairs, of which 2 hit padding
  EXPECT_EQ(report->work.macs_without_padding, 2 * inside);
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
  EXPECT_EQ(report->work.parameters, 8);
  EXPECT_EQ(report->work.weight_bytes, 4 * 8);
  EXPECT_EQ(report->buffers, 8);
  EXPECT_EQ(report->layers.at(0).work.weight_bytes, 4 * 8);
}

// y = x . dequantized(w) + dequantized(b), as a quantized module has it.
TEST(AnalyseTest, ParametersOfQuantizedModulesAreThoseOfTheLayersThatUseThem) {
  Graph graph;
  graph.name = "quantized";
  const auto number = [&](const char* name, const Tensor& tensor) {
    return graph.AddConstant(name, tensor);
  };
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kU8, {2, 8}));
  const ValueId scale = number("scale", Tensor::ScalarF32(0.5F));
  const ValueId real =
      Add(graph, "DequantizeLinear", {x, scale, number("zero", Tensor::Zeros(DataType::kU8, {}))});
  const ValueId w = number("w", Tensor::Zeros(DataType::kI8, {8, 4}));
  const ValueId weights =
      Add(graph, "DequantizeLinear", {w, number("scales", RandomTensor({4}, 1))});
  const ValueId bias = Add(
      graph, "DequantizeLinear",
      {number("b", Tensor::Zeros(DataType::kI32, {4})), number("scales2", RandomTensor({4}, 2))},
      {{"axis", int64_t{0}}});
  const ValueId turned = Add(graph, "Identity", {weights});
  graph.outputs = {Add(graph, "Gemm", {real, turned, bias}, {}, "gemm")};
  const auto report = Analyse(graph, graph);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->layers.size(), 2u);  // what makes weights of integers is none
  EXPECT_EQ(report->layers[1].node, "gemm");
  EXPECT_EQ(report->layers[1].work.parameters, 32 + 4);
  EXPECT_EQ(report->layers[1].work.weight_bytes, 32 + 16);
  EXPECT_EQ(report->work.parameters, 36);
  EXPECT_EQ(report->work.weight_bytes, 48);
  EXPECT_EQ(report->parameters_by_type, (std::map<std::string, int64_t>{{"i32", 4}, {"i8", 32}}));
  EXPECT_EQ(report->operators,
            (std::map<std::string, int64_t>{{"DequantizeLinear", 1}, {"Gemm", 1}}));
  const int64_t input = 16, dequantized = 64, output = 32;
  EXPECT_EQ(report->work.activation_bytes, dequantized + output);
  EXPECT_EQ(report->peak_activation_bytes, std::max(input + dequantized, dequantized + output));
  EXPECT_NE(ToTable(*report).find("parameters        36 (i32 4, i8 32)"), std::string::npos);
}

TEST(AnalyseTest, WeightsAreLookedInto) {
  Graph graph;
  graph.name = "weights";
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 2}));
  const ValueId w =
      graph.AddConstant("w", Tensor::Of<float>(DataType::kF32, {2, 3}, {0, 0, -1, 3, nan, 2}));
  const ValueId b = graph.AddConstant("b", Tensor::Of<float>(DataType::kF32, {3}, {nan, nan, nan}));
  graph.outputs = {Add(graph, "Gemm", {x, w, b}, {}, "fc")};
  const auto plain = Analyse(graph, graph);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_TRUE(plain->weights.empty());
  const auto report = Analyse(graph, graph, {.weight_statistics = true});
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->weights.size(), 2u);
  const WeightReport& weight = report->weights[0];
  EXPECT_EQ(weight.type, "f32[2, 3]");
  EXPECT_EQ(weight.layer, "fc");
  EXPECT_EQ(weight.zeros, 2);
  EXPECT_EQ(weight.not_finite, 1);
  EXPECT_EQ(weight.min, -1);
  EXPECT_EQ(weight.max, 3);
  EXPECT_DOUBLE_EQ(weight.mean, 0.8);
  EXPECT_DOUBLE_EQ(weight.std, std::sqrt(14.0 / 5 - 0.64));
  ASSERT_EQ(weight.histogram.size(), 20u);
  EXPECT_EQ(weight.histogram[0], 1);
  EXPECT_EQ(weight.histogram[5], 2);  // zeros lie a quarter of the way
  EXPECT_EQ(weight.histogram[15], 1);
  EXPECT_EQ(weight.histogram[19], 1);
  EXPECT_EQ(report->weights[1].not_finite, 3);
  EXPECT_TRUE(report->weights[1].histogram.empty());
  EXPECT_NE(ToTable(*report).find("2 of 9 elements are zero"), std::string::npos);
}

TEST(AnalyseTest, ValuesLiveFromTheirLayerToTheirLastReader) {
  Graph graph;
  graph.name = "lives";
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {4}));
  const ValueId unread = graph.AddInput("unread", Type::Tensor(DataType::kF32, {8}));
  const ValueId a = Add(graph, "Relu", {x}, {}, "a");
  const ValueId b = Add(graph, "Exp", {a}, {}, "b");
  const ValueId c = Add(graph, "Add", {a, b}, {}, "c");
  graph.outputs = {c, b};
  EXPECT_EQ(graph.value(unread).name, "unread");
  const auto report = Analyse(graph, graph);
  ASSERT_TRUE(report.ok()) << report.status();
  const std::map<std::string, std::pair<int, int>> expected = {
      {"x", {-1, 0}}, {"unread", {-1, -1}}, {"a", {0, 2}}, {"b", {1, 2}}, {"c", {2, 2}}};
  for (const ValueLife& value : report->values)
    EXPECT_EQ((std::pair{value.first, value.last}), expected.at(value.name)) << value.name;
  EXPECT_EQ(report->values.size(), expected.size());
  EXPECT_EQ(report->layers[0].live_bytes, 32);
  EXPECT_EQ(report->layers[1].live_bytes, 32);
  EXPECT_EQ(report->layers[2].live_bytes, 48);
  EXPECT_EQ(report->peak_activation_bytes, 48);
}

TEST(AnalyseTest, NamesAreCutInFront) {
  Graph graph;
  graph.name = "long";
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {4}));
  const std::string path = "bert.encoder.layer.11.attention.output.dense.a.long.way.";
  graph.outputs = {
      Add(graph, "Relu", {Add(graph, "Relu", {x}, {}, path + "first")}, {}, path + "second")};
  const auto report = Analyse(graph, graph);
  ASSERT_TRUE(report.ok()) << report.status();
  const std::string whole = ToTable(*report), table = whole.substr(0, whole.find("\n\n"));
  EXPECT_NE(table.find(".way.first "), std::string::npos) << table;
  EXPECT_NE(table.find(".way.second "), std::string::npos) << table;
  EXPECT_EQ(table.find("bert.encoder"), std::string::npos) << table;
}

TEST(AnalyseTest, SymbolicDimsCountAtTheSizesAskedFor) {
  const Graph graph = SharedWeights();
  const auto one = Analyse(graph, graph);
  const auto five = Analyse(graph, graph, {.sizes = {{"n", 5}}});
  ASSERT_TRUE(one.ok() && five.ok());
  EXPECT_EQ(five->work.macs, 5 * one->work.macs);
  EXPECT_EQ(five->peak_activation_bytes, 5 * one->peak_activation_bytes);
  EXPECT_EQ(five->symbol_sizes.at("n"), 5);
  EXPECT_EQ(Analyse(graph, graph, {.sizes = {{"m", 5}}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(AnalyseTest, PeakIsWhatIsAliveAtOnce) {
  const Graph graph = SharedWeights();
  const auto report = Analyse(graph, graph);
  ASSERT_TRUE(report.ok());
  const int64_t tensor = 4 * 36 * 4;
  EXPECT_EQ(report->work.activation_bytes, 3 * tensor);
  EXPECT_EQ(report->peak_activation_bytes, 2 * tensor);
}

TEST(AnalyseTest, JsonAndTableSayTheSame) {
  const Graph graph = SharedWeights();
  const auto report = Analyse(graph, graph);
  ASSERT_TRUE(report.ok());
  const nlohmann::json json = nlohmann::json::parse(ToJson(*report));
  EXPECT_EQ(json.at("macs").at("total"), report->work.macs);
  EXPECT_EQ(json.at("parameters"), 148);
  EXPECT_EQ(json.at("layers").size(), 3u);
  const std::string table = ToTable(*report);
  EXPECT_NE(table.find("parameters        148"), std::string::npos);
  EXPECT_EQ(table.find("rule "), std::string::npos);
  EXPECT_NE(ToTable(*report, {.rules = true}).find("rule "), std::string::npos);
  EXPECT_NE(table.find(report->fingerprint), std::string::npos);
}

}  // namespace
}  // namespace quench::analyser::analyse_test
