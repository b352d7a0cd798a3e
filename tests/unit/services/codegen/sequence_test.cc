// Recurrent layers over sequences of different lengths.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "common/ops/evaluate.h"
#include "tests/unit/services/codegen/byte_layers.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen::sequence_test {
namespace {

constexpr int64_t kTime = 19, kBatch = 3, kWidth = 40, kHidden = 32;

// Small, so that a step does not enlarge what the steps before it rounded.
Tensor Weights(const std::vector<int64_t>& dims, uint32_t seed) {
  Tensor weights = Values(dims, seed);
  auto* values = reinterpret_cast<float*>(weights.mutable_bytes());
  for (int64_t i = 0; i < weights.size(); ++i) values[i] *= 0.2F;
  return weights;
}

// A layer of `steps` steps; 0: of the run's.
Graph Layer(const std::string& op, int64_t gates, int64_t steps) {
  Graph graph;
  const Dim time =
      steps > 0 ? Dim(steps) : Dim::OfSymbol(graph.symbols->AddInput("time", {0, 0}, {1, 64}));
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {time, kBatch, kWidth}));
  const ValueId lengths = graph.AddInput("lengths", Type::Tensor(DataType::kI32, {kBatch}));
  const ValueId w = graph.AddConstant("w", Weights({2, gates * kHidden, kWidth}, 3));
  const ValueId r = graph.AddConstant("r", Weights({2, gates * kHidden, kHidden}, 5));
  const ValueId b = graph.AddConstant("b", Values({2, 2 * gates * kHidden}, 7));
  const NodeId layer =
      graph.AddNode(op, "layer", {x, w, r, b, lengths}, 2, {{"direction", "bidirectional"}});
  graph.outputs = graph.node(layer).outputs;
  Infer(graph);
  return graph;
}

// Steps beyond the longest sequence are not even looked at.
TEST(SequenceTest, StepsThatNoSequenceHasAreNotComputed) {
  for (const auto& [op, gates] :
       {std::pair<std::string, int64_t>{"LSTM", 4}, {"GRU", 3}, {"RNN", 1}}) {
    const Graph graph = Layer(op, gates, kTime);
    const std::vector<std::vector<int32_t>> cases = {{7, 2, 5}, {0, 0, 0}, {kTime, 1, 0}};
    for (const std::vector<int32_t>& lengths : cases) {
      Tensor x = Values({kTime, kBatch, kWidth}, 11);
      const int32_t longest = *std::max_element(lengths.begin(), lengths.end());
      auto* values = reinterpret_cast<float*>(x.mutable_bytes());
      for (int64_t i = longest * kBatch * kWidth; i < x.size(); ++i)
        values[i] = std::numeric_limits<float>::quiet_NaN();
      const std::vector<Tensor> inputs = {x, Tensor::Of(DataType::kI32, {kBatch}, lengths)};
      for (const int level : {0, 1, 2, 3}) ExpectSame(graph, inputs, level);
    }
    const absl::StatusOr<Compiled> compiled = CompileGraph(graph);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    int skipping = 0;
    for (const KernelReport& kernel : compiled->report.kernels)
      skipping += kernel.reason.find("steps in use") != std::string::npos ? 1 : 0;
    EXPECT_EQ(skipping, 1) << op;
  }
}

TEST(SequenceTest, OfAnyTime) {
  const Graph graph = Layer("GRU", 3, 0);
  const std::vector<Tensor> inputs = {
      Values({9, kBatch, kWidth}, 11),
      Tensor::Of(DataType::kI32, {kBatch}, std::vector<int32_t>{4, 6, 1})};
  for (const int level : {0, 1, 2, 3}) ExpectSame(graph, inputs, level);
}

TEST(SequenceTest, LengthsOutOfRangeAreRefused) {
  const absl::StatusOr<Compiled> compiled = CompileGraph(Layer("LSTM", 4, kTime));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const Tensor x = Values({kTime, kBatch, kWidth}, 11);
  for (const int32_t wrong :
       {-1, static_cast<int32_t>(kTime) + 1, std::numeric_limits<int32_t>::min(),
        std::numeric_limits<int32_t>::max()}) {
    const std::vector<Tensor> inputs = {
        x, Tensor::Of(DataType::kI32, {kBatch}, std::vector<int32_t>{3, wrong, 2})};
    const auto artifact = Artifact::Open(compiled->library(), 1);
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    const auto outcome = (*artifact)->Run(inputs);
    ASSERT_FALSE(outcome.ok()) << wrong;
    EXPECT_NE(outcome.status().ToString().find("sequence length is out of range"),
              std::string::npos)
        << outcome.status();
  }
}

}  // namespace
}  // namespace quench::codegen::sequence_test
