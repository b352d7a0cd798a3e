#include <tuple>

#include "common/ops/op.h"
#include "tests/unit/common/passes/pass_test_util.h"

namespace quench::passes::fold_batch_norms_test {
namespace {

std::vector<ValueId> NormParameters(Graph& graph, int64_t channels) {
  Tensor variance = RandomTensor({channels}, 13);
  float* data = reinterpret_cast<float*>(variance.mutable_bytes());
  for (int64_t c = 0; c < channels; ++c) data[c] = 0.5f + data[c] * data[c];
  return {graph.AddConstant("scale", RandomTensor({channels}, 10)),
          graph.AddConstant("bias", RandomTensor({channels}, 11)),
          graph.AddConstant("mean", RandomTensor({channels}, 12)),
          graph.AddConstant("variance", std::move(variance))};
}

ValueId AddNorm(Graph& graph, ValueId x, int64_t channels) {
  std::vector<ValueId> inputs = {x};
  for (const ValueId id : NormParameters(graph, channels)) inputs.push_back(id);
  return Add(graph, "BatchNormalization", inputs);
}

TEST(FoldBatchNormsTest, IntoConvWithAndWithoutBias) {
  for (const bool bias : {false, true}) {
    ValueId x;
    Graph graph = ImageGraph(&x);
    std::vector<ValueId> inputs = {x, graph.AddConstant("w", RandomTensor({4, 3, 3, 3}, 5))};
    if (bias) inputs.push_back(graph.AddConstant("b", RandomTensor({4}, 6)));
    graph.outputs = {AddNorm(graph, Add(graph, "Conv", inputs), 4)};
    const Graph after = After("fold_batch_norms", graph);
    ASSERT_EQ(after.nodes.size(), 1u);
    EXPECT_EQ(after.nodes[0].op, "Conv");
    EXPECT_EQ(after.value(after.outputs[0]).name, graph.value(graph.outputs[0]).name);
  }
}

TEST(FoldBatchNormsTest, IntoGroupedConvTranspose) {
  ValueId x;
  Graph graph = ImageGraph(&x, {1, 4, 5, 5});
  const ValueId w = graph.AddConstant("w", RandomTensor({4, 3, 2, 2}, 5));
  graph.outputs = {AddNorm(graph, Add(graph, "ConvTranspose", {x, w}, {{"group", int64_t{2}}}), 6)};
  EXPECT_EQ(CountOps(After("fold_batch_norms", graph), "BatchNormalization"), 0);
}

TEST(FoldBatchNormsTest, IntoGemmBothWaysAround) {
  for (const int64_t transposed : {int64_t{0}, int64_t{1}}) {
    ValueId x;
    Graph graph = ImageGraph(&x, {2, 3});
    const ValueId w = graph.AddConstant(
        "w", RandomTensor(transposed ? std::vector<int64_t>{5, 3} : std::vector<int64_t>{3, 5}, 5));
    graph.outputs = {AddNorm(graph, Add(graph, "Gemm", {x, w}, {{"transB", transposed}}), 5)};
    EXPECT_EQ(After("fold_batch_norms", graph).nodes.size(), 1u);
  }
}

TEST(FoldBatchNormsTest, ScalesAndShiftsFollowingAConv) {
  ValueId x;
  Graph graph = ImageGraph(&x);
  ValueId y = Add(graph, "Conv", {x, graph.AddConstant("w", RandomTensor({4, 3, 3, 3}, 5))});
  y = Add(graph, "Mul", {y, graph.AddConstant("k", RandomTensor({4, 1, 1}, 6))});
  y = Add(graph, "Add", {graph.AddConstant("t", RandomTensor({1, 4, 1, 1}, 7)), y});
  y = Add(graph, "Sub", {y, graph.AddConstant("s", RandomTensor({1}, 8))});
  graph.outputs = {y};
  EXPECT_EQ(After("fold_batch_norms", graph).nodes.size(), 1u);
}

TEST(FoldBatchNormsTest, LeavesWhatItMayNotFold) {
  ValueId x;
  Graph graph = ImageGraph(&x);
  const ValueId conv =
      Add(graph, "Conv", {x, graph.AddConstant("w", RandomTensor({4, 3, 3, 3}, 5))});
  // A second user sees the value before the norm; a scale along the width is not per channel; c / x
  // is not affine.
  graph.outputs = {AddNorm(graph, conv, 4),
                   Add(graph, "Mul", {conv, graph.AddConstant("k", RandomTensor({4}, 6))}),
                   Add(graph, "Div", {graph.AddConstant("d", RandomTensor({1}, 7)), conv})};
  EXPECT_EQ(After("fold_batch_norms", graph).nodes.size(), 4u);
}

// f16 weights stay f16, unless what is folded does not fit.
// A batch norm of an input or of a Relu, whose mean is so many deviations from 0.
Graph NormAlone(float far, bool of_input) {
  ValueId x;
  Graph graph = ImageGraph(&x);
  const auto constant = [&](const char* name, float value) {
    return graph.AddConstant(name, Tensor::Of(DataType::kF32, {3}, std::vector<float>(3, value)));
  };
  const ValueId y = of_input ? x : Add(graph, "Relu", {x});
  graph.outputs = {Add(graph, "BatchNormalization",
                       {y, constant("scale", 1.5F), constant("bias", 0.5F),
                        constant("mean", 2 * far), constant("variance", 4)})};
  EXPECT_TRUE(ops::InferGraph(graph).ok());
  return graph;
}

TEST(ScaleBatchNormsTest, MeansFarFromZeroDoNotBear16Bits) {
  for (const auto& [far, of_input, store_as, later, scaled] :
       {std::tuple<float, bool, DataType, bool, bool>{100, false, DataType::kF32, false, true},
        {100, true, DataType::kF32, false, true},
        {100, false, DataType::kF32, true, false},
        {100, false, DataType::kBF16, false, false},
        {3, false, DataType::kBF16, false, true},
        {3, false, DataType::kF16, true, true},
        {3, true, DataType::kF16, false, false}}) {
    PassOptions options;
    options.store_as = store_as;
    options.narrows_later = later;
    const Graph after = After("scale_batch_norms", NormAlone(far, of_input), options);
    EXPECT_EQ(CountOps(after, "BatchNormalization"), scaled ? 0 : 1) << far << of_input << later;
    EXPECT_EQ(CountOps(after, "Mul"), scaled ? 1 : 0);
  }
}

TEST(FoldBatchNormsTest, OfHalves) {
  for (const auto& [scale, nodes] : {std::pair{2.0F, 1U}, {1e5F, 2U}}) {
    Graph graph;
    const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF16, {1, 3, 5, 5}));
    const Tensor weight = RandomTensor({4, 3, 3, 3}, 5);
    const ValueId w =
        graph.AddConstant("w", Tensor::Floats(DataType::kF16, weight.dims(), weight.as<float>()));
    const ValueId y = Add(graph, "Conv", {x, w});
    const std::vector<float> by(4, scale);  // 1e5 is infinite in f16
    const ValueId k = graph.AddConstant("k", Tensor::Floats(DataType::kF16, {1, 4, 1, 1}, by));
    graph.outputs = {Add(graph, "Mul", {y, k})};
    const Graph after = RunPass(*FindPass("fold_batch_norms"), graph, {}, {}).value();
    EXPECT_EQ(after.nodes.size(), nodes) << scale;
    EXPECT_EQ(after.value(after.nodes[0].inputs[1]).type.dtype, DataType::kF16);
    if (nodes > 1) continue;
    const Tensor& folded = after.value(after.nodes[0].inputs[1]).constant->tensor;
    EXPECT_EQ(folded.FloatAt(7), 2 * graph.value(w).constant->tensor.FloatAt(7));
  }
}

}  // namespace
}  // namespace quench::passes::fold_batch_norms_test
