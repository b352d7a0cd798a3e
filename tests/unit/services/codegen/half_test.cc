// f16 and bf16 in memory, f32 in registers: what micro-kernels compute of them on every CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "common/passes/pass.h"
#include "tests/unit/services/codegen/compile_support.h"
#include "tests/unit/services/codegen/half_layers.h"

namespace quench::codegen::half_test {
namespace {

class HalfTest : public ::testing::TestWithParam<DataType> {};

TEST_P(HalfTest, MicroKernelsTakeEveryLayerOnEveryCpu) {
  const DataType type = GetParam();
  for (const HalfLayer& layer : HalfLayers()) {
    const Graph graph = HalfGraph(layer, type);
    const std::vector<Tensor> inputs = RandomInputs(InputsOf(graph), 3).value();
    const std::vector<Tensor> expected = ops::Evaluate(graph, inputs).value();
    ForEachBuild(graph, {0, 3}, [&](const Compiled& compiled, int level, const std::string& where) {
      const std::string what = fmt::format("{} {}, {}", DataTypeName(type), layer.name, where);
      ForEachRun(compiled, inputs, [&](const std::vector<Tensor>& outputs, const std::string& run) {
        ASSERT_EQ(outputs[0].dtype(), type) << what;
        EXPECT_LE(RelativeError(outputs[0], expected[0]), HalfTolerance(compiled, type))
            << what << ", " << run;
      });
      if (level < 3) return;
      EXPECT_EQ(compiled.report.kernels.back().kernel, layer.kernel) << what;
    });
  }
}

// A wrong weight, channel or pixel would not show in sums of random numbers that round: whole
// numbers do not round.
TEST_P(HalfTest, WholeNumbersAreExact) {
  const DataType type = GetParam();
  for (HalfLayer layer : HalfLayers()) {
    if (layer.name == "long rows" || layer.attributes.contains("alpha")) continue;
    Graph graph = HalfGraph(layer, type);
    UseWholeNumbers(graph, type);
    const std::vector<Tensor> inputs = WholeInputs(graph, type);
    const std::vector<Tensor> expected = ops::Evaluate(graph, inputs).value();
    ForEachBuild(graph, {3}, [&](const Compiled& compiled, int, const std::string& where) {
      ForEachRun(compiled, inputs, [&](const std::vector<Tensor>& outputs, const std::string& run) {
        EXPECT_EQ(RelativeError(outputs[0], expected[0]), 0)
            << DataTypeName(type) << " " << layer.name << ", " << where << ", " << run;
      });
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Types, HalfTest, ::testing::Values(DataType::kF16, DataType::kBF16),
                         [](const auto& each) { return std::string(DataTypeName(each.param)); });

// On CPUs with an instruction for it. First layers, which gather few channels, products of two
// computed sides, and sums of odd length are widened.
TEST(HalfKernels, PairsAreMultipliedAsTheyAre) {
  const std::map<std::string, std::vector<DataType>> taken = {
      {"x86-64-v4-vnni", {}},
      {"x86-64-v4-bf16", {DataType::kBF16}},
      {"x86-64-v4-fp16", {DataType::kF16}},  // its products of bf16 are slower than those of f32
      {"aarch64-dotprod", {}},
      {"aarch64-fp16", {DataType::kF16}},
      {"aarch64-bf16", {DataType::kF16, DataType::kBF16}}};
  for (const auto& [target, types] : taken) {
    for (const DataType type : {DataType::kF16, DataType::kBF16}) {
      for (const HalfLayer& layer : HalfLayers()) {
        if (layer.kernel == "depthwise") continue;
        const Graph graph = HalfGraph(layer, type);
        CompileOptions options;
        options.target = target;
        const bool odd = layer.op != "Conv" && layer.x.back() % 2 != 0;
        const bool widened = std::ranges::find(types, type) == types.end() ||
                             layer.name == "first layer" || !layer.computed_w.empty() ||
                             layer.attributes.contains("alpha") || odd;
        const auto reason = [&] { return PlannedKernels(graph, options).value().back().reason; };
        const std::string pairs = fmt::format("{} in pairs", DataTypeName(type));
        EXPECT_EQ(reason().find(pairs) == std::string::npos, widened)
            << target << ", " << layer.name << ": " << reason();
        options.half_sums = false;
        if (type != DataType::kF16 || widened) continue;
        EXPECT_EQ(reason().find(pairs), std::string::npos) << target << ": " << reason();
      }
    }
  }
}

// On CPUs that add f16 in f16, and on the others.
TEST(HalfKernels, LongSumsOfHalvesAreExact) {
  const Graph graph = LongHalfSums();
  const std::vector<Tensor> inputs = LongHalfInputs(graph);
  const std::vector<Tensor> expected = ops::Evaluate(graph, inputs).value();
  ForEachBuild(graph, {3}, [&](const Compiled& compiled, int, const std::string& where) {
    ForEachRun(compiled, inputs, [&](const std::vector<Tensor>& outputs, const std::string& run) {
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(RelativeError(outputs[i], expected[i]), 0)
            << graph.nodes[i].op << " " << i << ", " << where << ", " << run;
      }
    });
  });
}

// Equal shapes of other types must not share a function.
TEST(HalfKernels, TypesDoNotShareCode) {
  Graph graph;
  std::vector<ValueId> outputs;
  for (const DataType type : {DataType::kF32, DataType::kF16, DataType::kBF16}) {
    const std::string name(DataTypeName(type));
    const ValueId x = graph.AddInput("x_" + name, Type::Tensor(type, {1, 16, 4, 4}));
    const ValueId w = graph.AddConstant("w_" + name, HalfValues(type, {16, 16, 3, 3}, 5));
    outputs.push_back(Node1(graph, "Conv", {x, w}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}}));
    const ValueId a = graph.AddInput("a_" + name, Type::Tensor(type, {4, 16}));
    outputs.push_back(
        Node1(graph, "MatMul", {a, graph.AddConstant("m_" + name, HalfValues(type, {16, 16}, 9))}));
  }
  graph.outputs = outputs;
  Infer(graph);
  const Compiled compiled = CompileGraph(graph).value();
  const std::vector<Tensor> inputs = RandomInputs(InputsOf(graph), 3).value();
  const std::vector<Tensor> expected = ops::Evaluate(graph, inputs).value();
  const std::vector<Tensor> actual =
      Artifact::Open(compiled.library()).value()->Run(inputs).value();
  for (size_t i = 0; i < expected.size(); ++i) {
    const DataType type = expected[i].dtype();
    const double most = type == DataType::kF32 ? 1e-5 : HalfTolerance(compiled, type);
    EXPECT_LE(RelativeError(actual[i], expected[i]), most) << i;
  }
}

// A network whose weights and activations --float16 halves.
TEST(StoreFloat16, HalvesWeightsAndNamesWhatStays) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 16, 8, 8}));
  const ValueId c = Node1(graph, "Conv", {x, graph.AddConstant("w", Values({64, 16, 3, 3}, 5))});
  const ValueId f = Node1(graph, "Flatten", {Node1(graph, "Relu", {c})});
  const ValueId g = Node1(graph, "MatMul", {f, graph.AddConstant("m", Values({64 * 36, 40}, 7))});
  Tensor large = Values({40}, 9);
  reinterpret_cast<float*>(large.mutable_bytes())[3] = 1e6F;
  const ValueId h = Node1(graph, "Add", {g, graph.AddConstant("large", large)});
  graph.outputs = {Node1(graph, "Softmax", {Node1(graph, "Tanh", {h})})};
  Infer(graph);
  passes::PassOptions options;
  options.store_as = DataType::kF16;
  CompileOptions compile;
  compile.passes = options;
  const Graph narrow = passes::RunPipeline(graph, options, {}).value();
  const Compiled half = CompileGraph(narrow, compile).value();
  const Compiled full = CompileGraph(graph).value();
  EXPECT_LT(static_cast<double>(half.report.weight_bytes),
            0.52 * static_cast<double>(full.report.weight_bytes));
  std::vector<std::string> kept;
  for (const passes::KeptFloat32& each : half.report.kept_float32) kept.push_back(each.op);
  EXPECT_EQ(kept, (std::vector<std::string>{"Add", "Tanh", "Softmax"}));
  EXPECT_NE(half.report.kept_float32[0].reason.find("`large` has 1e+06"), std::string::npos)
      << half.report.kept_float32[0].reason;

  const std::vector<Tensor> inputs = RandomInputs(InputsOf(graph), 3).value();
  const auto run = [&](const Compiled& compiled) {
    return Artifact::Open(compiled.library()).value()->Run(inputs).value()[0];
  };
  EXPECT_LE(RelativeError(run(half), run(full)), 4e-3);
}

// Values that came near the end of f16's range on samples stay f32.
TEST(StoreFloat16, StatisticsKeepLargeValues) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {4, 8}));
  const ValueId y = Node1(graph, "Relu", {x});
  graph.outputs = {Node1(graph, "Neg", {y})};
  Infer(graph);
  passes::PassOptions options;
  options.store_as = DataType::kF16;
  const std::string name = graph.value(y).name;
  for (const double magnitude : {65504 / 4.0 + 1, std::nan(""), 16000.0}) {
    options.magnitudes[name] = magnitude;
    const Graph result = passes::RunPipeline(graph, options, {}).value();
    const size_t kept = passes::KeptInFloat32(result, options).size();
    EXPECT_EQ(kept, magnitude == 16000 ? 0U : 2U) << magnitude;
  }
}

TEST(SlowNests, NestsWithManyMultiplicationsAreNamed) {
  Graph graph;  // f64 has no micro-kernel
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF64, {8, 64}));
  const ValueId w = graph.AddInput("w", Type::Tensor(DataType::kF64, {64, 64}));
  graph.outputs = {Node1(graph, "MatMul", {x, w})};
  Infer(graph);
  const Compiled compiled = CompileGraph(graph).value();
  EXPECT_NE(compiled.report.kernels[0].slow.find("100 % of all multiplications"), std::string::npos)
      << compiled.report.kernels[0].slow;
}

}  // namespace
}  // namespace quench::codegen::half_test
