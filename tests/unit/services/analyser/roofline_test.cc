#include "services/analyser/roofline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/support/graphs.h"

namespace quench::analyser::roofline_test {
namespace {

using ::quench::testing::Add;
using ::quench::testing::RandomTensor;

// A product, its weights once more, a view and a choice of rows.
Graph Layers() {
  Graph graph;
  graph.name = "layers";
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {4, 100}));
  const ValueId w = graph.AddConstant("w", RandomTensor({100, 100}, 1));
  const ValueId a = Add(graph, "MatMul", {x, w}, {}, "first");
  const ValueId b = Add(graph, "MatMul", {a, w}, {}, "again");
  const ValueId c =
      Add(graph, "Reshape",
          {b, graph.AddConstant("shape", Tensor::Of<int64_t>(DataType::kI64, {2}, {20, 20}))}, {},
          "view");
  const ValueId i = graph.AddInput("i", Type::Tensor(DataType::kI64, {1}));
  graph.outputs = {Add(graph, "Gather", {c, i}, {}, "rows")};
  return graph;
}

TEST(RooflineTest, BytesThatALayerMoves) {
  const Graph graph = Layers();
  const auto report = Analyse(graph, graph);
  ASSERT_TRUE(report.ok()) << report.status();
  const std::vector<LayerReport>& layers = report->layers;
  ASSERT_EQ(layers.size(), 4U);
  EXPECT_EQ(layers[0].moved_bytes, 4 * (400 + 10000 + 400));
  EXPECT_EQ(layers[1].moved_bytes, layers[0].moved_bytes);  // shared weights are read again
  EXPECT_EQ(layers[2].moved_bytes, 0);
  EXPECT_EQ(layers[3].moved_bytes, 4 * (20 + 20));  // a row, not all 20
  EXPECT_EQ(report->moved_bytes, 2 * layers[0].moved_bytes + 160);
  EXPECT_FALSE(report->ceilings);
  EXPECT_EQ(layers[0].bound, "");
  EXPECT_EQ(layers[0].reads, (std::vector<int>{0}));
  EXPECT_EQ(report->values[static_cast<size_t>(layers[3].reads.at(0))].first, 2);
}

TEST(RooflineTest, TheLongerTimeBounds) {
  const Graph graph = Layers();
  // 80,000 operations on 43,200 bytes: 1.85 operations a byte.
  const Ceilings slow{"slow", "a test", 0.001, 1}, fast{"fast", "a test", 1000, 1};
  const auto computing = Analyse(graph, graph, {.ceilings = slow});
  const auto moving = Analyse(graph, graph, {.ceilings = fast});
  ASSERT_TRUE(computing.ok() && moving.ok());
  EXPECT_EQ(computing->layers[0].bound, "compute");
  EXPECT_DOUBLE_EQ(computing->layers[0].predicted_seconds, 80000 / 1e6);
  EXPECT_EQ(moving->layers[0].bound, "memory");
  EXPECT_DOUBLE_EQ(moving->layers[0].predicted_seconds, 43200 / 1e9);
  EXPECT_EQ(moving->layers[2].bound, "");
  EXPECT_DOUBLE_EQ(moving->predicted_seconds, (2 * 43200 + 160) / 1e9);
  const std::string table = ToTable(*moving, {.listing = "roofline"});
  EXPECT_NE(table.find("fast: 1000.0 GFLOP/s, 1.0 GB/s"), std::string::npos) << table;
  EXPECT_NE(table.find("3 by memory"), std::string::npos) << table;
  const auto json = nlohmann::json::parse(ToJson(*moving));
  EXPECT_EQ(json["layers"][0]["bound"], "memory");
  EXPECT_NEAR(json["layers"][0]["arithmetic_intensity"], 80000 / 43200.0, 1e-12);
  EXPECT_EQ(json["ceilings"]["gflops"], 1000);
}

TEST(RooflineTest, CeilingsAreAboveZero) {
  EXPECT_TRUE(CheckCeilings({"", "", 1, 1}).ok());
  EXPECT_EQ(CheckCeilings({"", "", 0, 1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckCeilings({"", "", 1, std::nan("")}).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quench::analyser::roofline_test
