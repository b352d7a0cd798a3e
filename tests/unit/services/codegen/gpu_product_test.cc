// Convolutions and products on the emulated GPU, at the borders of their blocks, against the interpreter.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "common/ops/evaluate.h"
#include "tests/unit/services/codegen/compile_support.h"
#include "tests/unit/services/codegen/half_layers.h"

namespace quench::codegen::gpu_product_test {
namespace {

constexpr char kEmulated[] = "cuda -arch=emulated -host=x86-64-v2";

class GpuProductTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("QUENCH_CUDA_DRIVER", QUENCH_EMULATED_DRIVER, 1); }
};

CompileOptions Options(bool tf32 = false) {
  CompileOptions options;
  options.target = kEmulated;
  options.tf32 = tf32;
  return options;
}

Tensor RoundedToTf32(const Tensor& tensor) {
  std::vector<uint32_t> words(tensor.as<uint32_t>().begin(), tensor.as<uint32_t>().end());
  for (uint32_t& word : words) word = (word + 0x1000) & ~uint32_t{0x1FFF};
  return Tensor::Of(DataType::kF32, tensor.dims(), words);
}

// A product and a convolution with weights that are not whole, then a result that is too small to be one sum.
Graph Tf32Layers(bool rounded) {
  Graph graph;
  const auto weights = [&](std::vector<int64_t> dims, uint64_t seed) {
    const Tensor values = Values(std::move(dims), seed);
    return graph.AddConstant("w" + std::to_string(seed), rounded ? RoundedToTf32(values) : values);
  };
  const ValueId a = graph.AddInput("a", Type::Tensor(DataType::kF32, {70, 68}));
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 36, 17, 15}));
  graph.outputs = {Node1(graph, "MatMul", {a, weights({68, 33}, 3)}),
                   Node1(graph, "Conv", {x, weights({72, 36, 3, 3}, 5)},
                         {{"pads", std::vector<int64_t>{1, 1, 1, 1}}})};
  Infer(graph);
  return graph;
}

TEST_F(GpuProductTest, Tf32IsTheProductOfRoundedNumbers) {
  const Graph graph = Tf32Layers(false);
  const std::vector<Tensor> inputs = RandomInputs(InputsOf(graph), 3).value();
  std::vector<Tensor> rounded;
  for (const Tensor& input : inputs) rounded.push_back(RoundedToTf32(input));
  const std::vector<Tensor> exact = ops::Evaluate(graph, inputs).value();
  const std::vector<Tensor> expected = ops::Evaluate(Tf32Layers(true), rounded).value();
  CompileOptions options = Options(true);
  options.check = CheckMode::kFull;
  const Compiled compiled = CompileGraph(graph, options).value();
  for (const KernelReport& kernel : compiled.report.kernels)
    EXPECT_NE(kernel.reason.find("tf32 in tensor cores"), std::string::npos) << kernel.reason;
  EXPECT_GT(compiled.report.check->largest_error, 1e-5);
  ForEachRun(compiled, inputs, [&](const std::vector<Tensor>& outputs, const std::string& where) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_LE(RelativeError(outputs[i], expected[i]), 1e-6) << where;
      EXPECT_LE(RelativeError(outputs[i], exact[i]), 0x1p-8) << where;
      EXPECT_GT(RelativeError(outputs[i], exact[i]), 1e-5) << where;
    }
  });
}

TEST_F(GpuProductTest, NotANumberAndInfinityStayWhatTheyAreInTf32) {
  Graph graph;
  const ValueId a = graph.AddInput("a", Type::Tensor(DataType::kF32, {3, 4}));
  const std::vector<float> ones(16, 1);
  const Tensor w = Tensor::Floats(DataType::kF32, {4, 4}, ones);
  graph.outputs = {Node1(graph, "MatMul", {a, graph.AddConstant("w", w)})};
  Infer(graph);
  std::vector<float> values(12);
  values[0] = std::bit_cast<float>(0x7FFFFFFFU);
  values[4] = std::numeric_limits<float>::infinity();
  values[8] = -2.5F;
  const Tensor input = Tensor::Floats(DataType::kF32, {3, 4}, values);
  const Compiled compiled = CompileGraph(graph, Options(true)).value();
  ForEachRun(compiled, {input}, [&](const std::vector<Tensor>& outputs, const std::string&) {
    EXPECT_TRUE(std::isnan(outputs[0].FloatAt(0)));
    EXPECT_TRUE(std::isinf(outputs[0].FloatAt(4)));
    EXPECT_EQ(outputs[0].FloatAt(8), -2.5);
  });
}

// Where there is no TF32, the option changes nothing but the UUID.
TEST(GpuProductTargets, OthersMultiplyF32) {
  const Graph graph = Tf32Layers(false);
  for (const char* target : {"x86-64-v3", "cuda -arch=sm_75 -host=x86-64-v2"}) {
    CompileOptions options;
    options.target = target;
    const auto plain = PlanText(graph, options, PlanStage::kProgram);
    options.tf32 = true;
    EXPECT_EQ(PlanText(graph, options, PlanStage::kProgram).value(), plain.value());
  }
}

}  // namespace
}  // namespace quench::codegen::gpu_product_test
