// Layers in the kernels of builds.
#include "services/cli/precision_layers.h"

#include <gtest/gtest.h>

#include "tests/support/graphs.h"

namespace quench::cli::precision_layers_test {
namespace {

using ::quench::testing::Add;
using ::quench::testing::RandomTensor;

// x -> c1 -> relu -> c2 -> y
Graph TwoConvolutions() {
  Graph graph;
  ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 4, 8, 8}));
  for (const char* name : {"c1", "c2"}) {
    const ValueId w = graph.AddConstant(std::string(name) + ".w", RandomTensor({4, 4, 1, 1}, 1));
    x = Add(graph, "Conv", {x, w}, {}, name);
    if (graph.nodes.size() == 1) x = Add(graph, "Relu", {x}, {}, "relu");
  }
  graph.outputs = {x};
  return graph;
}

TEST(PrecisionLayersTest, TimesAreThoseOfKernelsNamedAfterALayer) {
  const std::vector<PrecisionLayer> layers =
      FindLayers(TwoConvolutions(),
                 {{Precision::kF32, {{"c1+relu", 10}, {"c2", 20}}},
                  {Precision::kBF16, {{"x.bf16.cast", 1}, {"c1", 4}, {"relu", 2}, {"c2", 8}}}});
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].name, "c1");
  EXPECT_EQ(layers[0].op, "Conv");
  EXPECT_EQ(layers[0].members, (std::vector<std::string>{"c1", "relu"}));
  EXPECT_EQ(layers[0].products, std::vector<std::string>{"c1"});
  EXPECT_EQ(layers[0].microseconds.at(Precision::kF32), 10);
  EXPECT_EQ(layers[0].microseconds.at(Precision::kBF16), 4);
  EXPECT_EQ(layers[1].microseconds.at(Precision::kBF16), 8);
  EXPECT_FALSE(layers[1].microseconds.contains(Precision::kInt8));
}

// One kernel for both, in one of the builds: they cannot have two types.
TEST(PrecisionLayersTest, ProductsOfOneKernelAreOneLayer) {
  const std::vector<PrecisionLayer> layers = FindLayers(
      TwoConvolutions(),
      {{Precision::kF32, {{"c1+relu", 10}, {"c2", 20}}}, {Precision::kF16, {{"c1+relu+c2", 9}}}});
  ASSERT_EQ(layers.size(), 1u);
  EXPECT_EQ(layers[0].products, (std::vector<std::string>{"c1", "c2"}));
  EXPECT_EQ(layers[0].microseconds.at(Precision::kF32), 30);
  EXPECT_EQ(layers[0].microseconds.at(Precision::kF16), 9);
}

// As attention, which is named after its last product.
TEST(PrecisionLayersTest, AProductWithoutAKernelBelongsToItsReader) {
  const std::vector<PrecisionLayer> layers =
      FindLayers(TwoConvolutions(), {{Precision::kF32, {{"c2", 20}}}});
  ASSERT_EQ(layers.size(), 1u);
  EXPECT_EQ(layers[0].name, "c1");
  EXPECT_EQ(layers[0].members, (std::vector<std::string>{"c1", "c2", "relu"}));
  EXPECT_EQ(layers[0].microseconds.at(Precision::kF32), 20);
}

TEST(PrecisionLayersTest, UnknownKernelsAreNobodys) {
  const std::vector<PrecisionLayer> layers =
      FindLayers(TwoConvolutions(), {{Precision::kF32, {{"renamed", 20}}}});
  ASSERT_EQ(layers.size(), 1u);
  EXPECT_TRUE(layers[0].microseconds.empty());
}

}  // namespace
}  // namespace quench::cli::precision_layers_test
