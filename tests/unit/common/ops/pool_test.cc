// Pooling against a plain reference over all windows, and the corner cases of ONNX by hand.
#include <gtest/gtest.h>

#include "run_op.h"

namespace quench::ops::pool_test {
namespace {

using Ints = std::vector<int64_t>;

TEST(MaxPool, PaddingNeverWins) {
  const Tensor x = F32({1, 1, 4}, {-1, -2, -3, -4});
  ExpectTensor(RunOp("MaxPool", {x}, {{"kernel_shape", Ints{2}}, {"pads", Ints{1, 1}}})[0],
               {1, 1, 5}, {-1, -1, -2, -3, -4});
  ExpectTensor(RunOp("MaxPool", {I8({1, 1, 2}, {-5, -7})}, {{"kernel_shape", Ints{2}}})[0],
               {1, 1, 1}, {-5});
}

TEST(MaxPool, IndicesCountTheWholeTensor) {
  const Tensor x = F32({1, 2, 2, 3}, {1, 5, 2, 3, 4, 6, 9, 8, 7, 1, 2, 3});
  const Attributes attributes = {{"kernel_shape", Ints{2, 2}}};
  const std::vector<Tensor> rows = RunOp("MaxPool", {x}, attributes, 2);
  ExpectTensor(rows[0], {1, 2, 1, 2}, {5, 6, 9, 8});
  ExpectTensor(rows[1], {1, 2, 1, 2}, {1, 5, 6, 7});
  EXPECT_EQ(rows[1].dtype(), DataType::kI64);
  Attributes column_major = attributes;
  column_major["storage_order"] = int64_t{1};
  ExpectTensor(RunOp("MaxPool", {x}, column_major, 2)[1], {1, 2, 1, 2}, {2, 5, 6, 8});
}

TEST(MaxPool, DilatedStridedWindows) {
  const Tensor x = Iota({1, 1, 8});
  ExpectTensor(RunOp("MaxPool", {x},
                     {{"kernel_shape", Ints{3}}, {"dilations", Ints{2}}, {"strides", Ints{2}}})[0],
               {1, 1, 2}, {4, 6});
}

TEST(Pools, CeilModeKeepsWindowsThatBeginInside) {
  const Tensor x = Iota({1, 1, 5}, 1);
  const Attributes ceil = {
      {"kernel_shape", Ints{2}}, {"strides", Ints{2}}, {"ceil_mode", int64_t{1}}};
  ExpectTensor(RunOp("MaxPool", {x}, ceil)[0], {1, 1, 3}, {2, 4, 5});
  ExpectTensor(RunOp("AveragePool", {x}, ceil)[0], {1, 1, 3}, {1.5, 3.5, 5});
  // A window that would begin in the end padding is dropped: 4 elements, pads 1 and 1, stride 3.
  const Tensor four = Iota({1, 1, 4}, 1);
  const Attributes dropped = {{"kernel_shape", Ints{1}},
                              {"strides", Ints{5}},
                              {"pads", Ints{0, 2}},
                              {"ceil_mode", int64_t{1}}};
  ExpectTensor(RunOp("MaxPool", {four}, dropped)[0], {1, 1, 1}, {1});
}

TEST(AveragePool, CountsPaddingWhenAsked) {
  const Tensor x = F32({1, 1, 3}, {3, 6, 9});
  Attributes attributes = {{"kernel_shape", Ints{2}}, {"pads", Ints{1, 1}}};
  ExpectTensor(RunOp("AveragePool", {x}, attributes)[0], {1, 1, 4}, {3, 4.5, 7.5, 9});
  attributes["count_include_pad"] = int64_t{1};
  ExpectTensor(RunOp("AveragePool", {x}, attributes)[0], {1, 1, 4}, {1.5, 4.5, 7.5, 4.5});
  // Ceil mode: positions beyond the end padding do not count.
  const Attributes ceil = {{"kernel_shape", Ints{3}},
                           {"strides", Ints{2}},
                           {"pads", Ints{0, 1}},
                           {"ceil_mode", int64_t{1}},
                           {"count_include_pad", int64_t{1}}};
  ExpectTensor(RunOp("AveragePool", {F32({1, 1, 5}, {1, 2, 3, 4, 5})}, ceil)[0], {1, 1, 3},
               {2, 4, 2.5});
}

TEST(AveragePool, AutoPadIsSymbolicToo) {
  Graph graph;
  const Dim width = Dim::OfSymbol(graph.symbols->AddInput("w", {0, 2}));
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 1, width}));
  const NodeId node = graph.AddNode(
      "AveragePool", "pool", {x}, 1,
      {{"kernel_shape", Ints{3}}, {"strides", Ints{2}}, {"auto_pad", std::string("SAME_UPPER")}});
  graph.outputs = graph.node(node).outputs;
  ASSERT_TRUE(InferGraph(graph).ok());
  const OpContext context = ContextOf(graph, graph.node(node));
  const auto function = LowerNode(context);
  ASSERT_TRUE(function.ok()) << function.status();
  EXPECT_EQ(loops::Verify(*function), "");
  const std::vector<Tensor> inputs = {F32({1, 1, 5}, {1, 2, 3, 4, 5})};
  const auto results = Evaluate(graph, inputs);
  ASSERT_TRUE(results.ok()) << results.status();
  // SAME pads 1 and 1: windows {1, 2}, {2, 3, 4}, {4, 5}.
  ExpectTensor((*results)[0], {1, 1, 3}, {1.5, 3, 4.5});
}

TEST(LpPool, NormsOfEveryOrder) {
  const Tensor x = F32({1, 1, 2}, {-3, 4});
  const auto run = [&](int64_t p) {
    return RunOp("LpPool", {x}, {{"kernel_shape", Ints{2}}, {"p", p}})[0];
  };
  ExpectTensor(run(1), {1, 1, 1}, {7});
  ExpectTensor(run(2), {1, 1, 1}, {5});
  ExpectTensor(run(3), {1, 1, 1}, {std::cbrt(27.0 + 64.0)}, 1e-5);
  ExpectError(TryOp("LpPool", {x}, {{"kernel_shape", Ints{2}}, {"p", int64_t{0}}}), "p is 0");
}

TEST(GlobalPools, ReduceTheSpatialDims) {
  const Tensor x = F32({1, 2, 2, 2}, {1, 2, 3, 4, -1, -2, -3, -4});
  ExpectTensor(RunOp("GlobalAveragePool", {x})[0], {1, 2, 1, 1}, {2.5, -2.5});
  ExpectTensor(RunOp("GlobalMaxPool", {x})[0], {1, 2, 1, 1}, {4, -1});
  ExpectTensor(RunOp("GlobalLpPool", {x}, {{"p", int64_t{1}}})[0], {1, 2, 1, 1}, {10, 10});
}

TEST(Pools, KernelShapeIsRequired) {
  ExpectError(TryOp("MaxPool", {Iota({1, 1, 4})}), "`kernel_shape` is missing");
  ExpectError(TryOp("MaxPool", {Iota({1, 1, 4})}, {{"kernel_shape", Ints{9}}}),
              "does not fit an input of 4");
}

}  // namespace
}  // namespace quench::ops::pool_test
