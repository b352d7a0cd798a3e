// Regions that cost more than they gain.
#include "services/cli/precision_refine.h"

#include <gtest/gtest.h>

#include "tests/support/graphs.h"

namespace quench::cli::precision_refine_test {
namespace {

using ::quench::testing::Add;
using ::quench::testing::RandomTensor;

constexpr Precision kF32 = Precision::kF32, kBF16 = Precision::kBF16, kInt8 = Precision::kInt8;

Assignment Types(const std::vector<Precision>& layers, Precision others) {
  Assignment types;
  types.layers = layers;
  types.reasons.resize(layers.size());
  types.others = others;
  return types;
}

PrecisionLayer Named(const std::string& name) {
  PrecisionLayer layer;
  layer.members = layer.products = {name};
  return layer;
}

TEST(PrecisionRefineTest, NeighboursAreReachedThroughOtherOperators) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 4, 8, 8}));
  const ValueId w = graph.AddConstant("w", RandomTensor({4, 4, 1, 1}, 1));
  const ValueId a = Add(graph, "Conv", {x, w}, {}, "a");
  const ValueId relu = Add(graph, "Relu", {a}, {}, "relu");
  const ValueId b = Add(graph, "Conv", {relu, w}, {}, "b");
  const ValueId sum = Add(graph, "Add", {b, relu}, {}, "sum");
  graph.outputs = {Add(graph, "Conv", {sum, w}, {}, "c")};
  const std::vector<PrecisionLayer> layers = {Named("a"), Named("b"), Named("c")};
  using Set = std::set<size_t>;
  EXPECT_EQ(Neighbours(graph, layers), (std::vector<Set>{{1, 2}, {0, 2}, {0, 1}}));
}

TEST(PrecisionRefineTest, KernelsWithoutALayerCountForTheOneBefore) {
  const std::vector<PrecisionLayer> layers = {Named("a"), Named("b")};
  EXPECT_EQ(LayerTimes(
                layers,
                std::vector<TimedKernel>{{"x.cast", 1}, {"a+relu", 2}, {"relu.cast", 4}, {"b", 8}}),
            (std::vector<double>{7, 8}));
}

// A chain of four: b gains 2 and costs c 5; d gains.
TEST(PrecisionRefineTest, RegionsThatDoNotGainGoBack) {
  const std::vector<std::set<size_t>> chain = {{1}, {0, 2}, {1, 3}, {2}};
  const Assignment base = Types({kBF16, kBF16, kBF16, kBF16}, kBF16);
  const Assignment mixed = Types({kBF16, kF32, kBF16, kInt8}, kBF16);
  const std::vector<double> before = {10, 10, 10, 10}, after = {10, 8, 15, 3};
  const Assignment refined = Refined(mixed, base, chain, before, after);
  EXPECT_EQ(refined.layers, (std::vector<Precision>{kBF16, kBF16, kBF16, kInt8}));
}

// Inside a region one layer may lose what the region gains.
TEST(PrecisionRefineTest, ARegionIsKeptAsAWhole) {
  const std::vector<std::set<size_t>> chain = {{1}, {0, 2}, {1}};
  const Assignment base = Types({kBF16, kBF16, kBF16}, kBF16);
  const Assignment mixed = Types({kBF16, kInt8, kInt8}, kBF16);
  const std::vector<double> before = {10, 10, 10};
  EXPECT_EQ(Refined(mixed, base, chain, before, std::vector<double>{11, 11, 5}), mixed);
  EXPECT_EQ(Refined(mixed, base, chain, before, std::vector<double>{11, 11, 9}), base);
}

}  // namespace
}  // namespace quench::cli::precision_refine_test
