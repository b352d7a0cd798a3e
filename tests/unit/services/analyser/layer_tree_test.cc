#include "services/analyser/layer_tree.h"

#include <gtest/gtest.h>

#include "tests/support/graphs.h"

namespace quench::analyser::layer_tree_test {
namespace {

using ::quench::testing::Add;
using ::quench::testing::RandomTensor;

ModelReport Named(const std::vector<std::string>& names) {
  ModelReport report;
  for (const std::string& name : names) {
    LayerReport& layer = report.layers.emplace_back();
    layer.node = name;
    layer.op = "Conv";
    layer.work.macs = int64_t{1} << (report.layers.size() - 1);
    report.work += layer.work;
  }
  return report;
}

std::string Drawn(const std::vector<TreeRow>& rows) {
  std::string text;
  for (const TreeRow& row : rows)
    text += std::string(static_cast<size_t>(row.depth), '.') + row.name + "=" +
            std::to_string(row.work.macs) + "\n";
  return text;
}

TEST(LayerTreeTest, ScopesSumTheirLayersInTheOrderTheyBegin) {
  const ModelReport report =
      Named({"/features/0/conv", "/features/1/conv", "/head", "features/0/bn"});
  EXPECT_EQ(Drawn(LayerTree(report, 0)),
            ".features=11\n"
            "..0=9\n"
            "...conv=1\n"
            "...bn=8\n"
            "..1/conv=2\n"
            ".head=4\n");
  EXPECT_EQ(Drawn(LayerTree(report, 1)), ".features=11\n.head=4\n");
}

TEST(LayerTreeTest, ExportersRepeatAScopesNameInItsParts) {
  const ModelReport report =
      Named({"/layer1/layer1.0/conv1/Conv", "/layer1/layer1.0/Relu", "/layer1/layer1.1/Relu"});
  EXPECT_EQ(Drawn(LayerTree(report, 0)),
            ".layer1=7\n"
            "..0=3\n"
            "...conv1/Conv=1\n"
            "...Relu=2\n"
            "..1/Relu=4\n");
}

TEST(LayerTreeTest, LayersOfOneNameAreAllThere) {
  EXPECT_EQ(Drawn(LayerTree(Named({"a", "a", "a/b", "a/b", "", "/"}), 0)),
            ".a=1\n.a=2\n.a=12\n..b=4\n..b=8\n.=16\n./=32\n");
}

TEST(LayerTreeTest, NamesOfManyLevelsStayShallow) {
  std::string name;
  for (int i = 0; i < 100'000; ++i) name += "s/";
  const std::vector<TreeRow> rows = LayerTree(Named({name + "x", name + "y"}), 0);
  ASSERT_FALSE(rows.empty());
  for (const TreeRow& row : rows) EXPECT_LE(row.depth, 64);
}

TEST(LayerTreeTest, ColumnsAreThoseAskedFor) {
  const ModelReport report = Named({"/features/conv", "/features/relu"});
  const std::string table = LayerTable(report, {.columns = {"share", "op"}});
  EXPECT_EQ(table,
            "layer       share  op\n"
            "features  100.0 %\n"
            "  conv     33.3 %  Conv\n"
            "  relu     66.7 %  Conv\n");
}

// x -> Conv 3x3 with padding 1 at one side of the second axis only -> MaxPool that pads unevenly.
TEST(WorkTest, PaddingIsCountedApart) {
  Graph graph;
  graph.name = "padded";
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 2, 4, 5}));
  const ValueId w = graph.AddConstant("w", RandomTensor({3, 2, 3, 3}, 1));
  const ValueId y =
      Add(graph, "Conv", {x, w}, {{"pads", std::vector<int64_t>{1, 0, 1, 1}}}, "conv");
  graph.outputs = {Add(
      graph, "MaxPool", {y},
      {{"kernel_shape", std::vector<int64_t>{2, 2}}, {"pads", std::vector<int64_t>{0, 0, 1, 1}}},
      "pool")};
  const auto report = Analyse(graph, graph);
  ASSERT_TRUE(report.ok()) << report.status();
  const LayerReport &conv = report->layers.at(0), &pool = report->layers.at(1);
  EXPECT_EQ(conv.kernel, "3x3");
  EXPECT_EQ(conv.kind, "convolution");
  // Output 4 x 4. Along the first axis 3 * 4 - 2 pairs of output and kernel hit the input, along
  // the second 3 * 4 - 1.
  EXPECT_EQ(conv.work.macs, 3 * 2 * 12 * 12);
  EXPECT_EQ(conv.work.macs_without_padding, 3 * 2 * 10 * 11);
  EXPECT_EQ(conv.work.flops, 2 * conv.work.macs);
  EXPECT_EQ(pool.kind, "pooling");
  EXPECT_EQ(pool.work.operations, 3 * 4 * 4);
  EXPECT_EQ(pool.work.operations_with_padding, 3 * 5 * 5);
  EXPECT_EQ(report->nested_activation_bytes,
            report->work.activation_bytes + 4 * (3 * 5 * 5 + 3 * 4 * 4));
}

}  // namespace
}  // namespace quench::analyser::layer_tree_test
