// Depthwise convolutions on the emulated GPU, against the interpreter.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "common/ops/evaluate.h"
#include "tests/unit/services/codegen/compile_support.h"
#include "tests/unit/services/codegen/half_layers.h"

namespace quench::codegen::gpu_depthwise_test {
namespace {

using Ints = std::vector<int64_t>;

class GpuDepthwiseTest : public ::testing::TestWithParam<DataType> {
 protected:
  static void SetUpTestSuite() { setenv("QUENCH_CUDA_DRIVER", QUENCH_EMULATED_DRIVER, 1); }
};

// The results of the graph, one of whose nodes this kernel computes.
std::vector<Tensor> Ran(const Graph& graph, const std::vector<Tensor>& inputs,
                        const std::string& kernel) {
  CompileOptions options;
  options.target = "cuda -arch=emulated -host=x86-64-v2";
  const Compiled compiled = CompileGraph(graph, options).value();
  EXPECT_TRUE(std::ranges::any_of(compiled.report.kernels, [&](const KernelReport& each) {
    return each.kernel == kernel;
  })) << compiled.report.kernels.back().kernel;
  return Artifact::Open(compiled.library()).value()->Run(inputs).value();
}

struct Layer {
  Ints x, kernel;
  std::map<std::string, Attribute> attributes;
};

// Borders on all sides, tiles that the last pixels do not fill, and few pixels.
const std::vector<Layer>& Layers() {
  static const auto* const kLayers = new std::vector<Layer>{
      {{1, 64, 30, 31}, {3, 3}, {{"pads", Ints{1, 1, 1, 1}}}},
      {{2, 32, 33, 32}, {3, 3}, {{"pads", Ints{0, 1, 1, 0}}, {"strides", Ints{2, 2}}}},
      {{1, 64, 29, 30}, {5, 5}, {{"pads", Ints{2, 2, 2, 2}}, {"strides", Ints{1, 2}}}},
      {{1, 32, 40, 37}, {3, 3}, {{"pads", Ints{2, 2, 2, 2}}, {"dilations", Ints{2, 2}}}},
      {{1, 1024, 70, 70}, {1, 3}, {}},
      {{2, 40, 700}, {3}, {{"pads", Ints{1, 1}}}}};
  return *kLayers;
}

TEST_P(GpuDepthwiseTest, WholeNumbersAreExact) {
  for (const Layer& layer : Layers()) {
    SCOPED_TRACE(fmt::format("{} x {}", layer.x[1], layer.x[2]));
    HalfLayer half{"depthwise", "", layer.x, {layer.x[1], 1}, layer.attributes};
    half.w.insert(half.w.end(), layer.kernel.begin(), layer.kernel.end());
    half.attributes["group"] = layer.x[1];
    Graph graph = HalfGraph(half, GetParam());
    UseWholeNumbers(graph, GetParam());
    const std::vector<Tensor> inputs = WholeInputs(graph, GetParam());
    const std::vector<Tensor> outputs = Ran(graph, inputs, "gpu_depthwise");
    EXPECT_EQ(RelativeError(outputs[0], ops::Evaluate(graph, inputs).value()[0]), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GpuDepthwiseTest,
                         ::testing::Values(DataType::kF32, DataType::kF16, DataType::kBF16),
                         [](const auto& each) { return std::string(DataTypeName(each.param)); });

// Borders are zero points.
TEST_F(GpuDepthwiseTest, BytesAreTheInterpreters) {
  for (const DataType type : {DataType::kU8, DataType::kI8}) {
    for (const int zero : {0, 100}) {
      Graph graph;
      const auto number = [&](const std::string& name, float value) {
        return graph.AddConstant(name, Tensor::ScalarF32(value));
      };
      const ValueId x = graph.AddInput("x", Type::Tensor(type, {1, 128, 61, 60}));
      std::vector<int8_t> weights(128 * 9);
      for (size_t i = 0; i < weights.size(); ++i)
        weights[i] = static_cast<int8_t>(static_cast<int>(i * 37 % 255) - 127);
      const ValueId w = graph.AddConstant("w", Tensor::Of(DataType::kI8, {128, 1, 3, 3}, weights));
      const Tensor zeros = type == DataType::kU8
                               ? Tensor::Of(type, {}, std::vector{static_cast<uint8_t>(zero)})
                               : Tensor::Of(type, {}, std::vector{static_cast<int8_t>(zero)});
      const ValueId zero_x = graph.AddConstant("zero", zeros);
      const ValueId zero_w =
          graph.AddConstant("zero_w", Tensor::Of(DataType::kI8, {}, std::vector<int8_t>{0}));
      graph.outputs = {
          Node1(graph, "QLinearConv",
                {x, number("scale_x", 0.02F), zero_x, w, number("scale_w", 0.01F), zero_w,
                 number("scale_y", 0.5F), zero_x},
                {{"group", int64_t{128}}, {"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{1, 2}}})};
      Infer(graph);
      const std::vector<Tensor> inputs = RandomInputs(InputsOf(graph), 3).value();
      const std::vector<Tensor> outputs = Ran(graph, inputs, "gpu_depthwise");
      EXPECT_EQ(RelativeError(outputs[0], ops::Evaluate(graph, inputs).value()[0]), 0);
    }
  }
}

// Threads cannot read 16 bytes of these at a time.
TEST_F(GpuDepthwiseTest, OddNumbersOfChannelsAreNests) {
  const HalfLayer layer{"depthwise", "", {1, 35, 20, 20}, {35, 1, 3, 3}, {{"group", int64_t{35}}}};
  Graph graph = HalfGraph(layer, DataType::kF32);
  UseWholeNumbers(graph, DataType::kF32);
  const std::vector<Tensor> inputs = WholeInputs(graph, DataType::kF32);
  const std::vector<Tensor> outputs = Ran(graph, inputs, "scheduled");
  EXPECT_EQ(RelativeError(outputs[0], ops::Evaluate(graph, inputs).value()[0]), 0);
}

}  // namespace
}  // namespace quench::codegen::gpu_depthwise_test
