// Convolutions and products on the emulated GPU, at the borders of their blocks, against the interpreter.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>

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

// The kernel that computes the graph's last node, and its results on these inputs.
struct Outcome {
  std::string kernel, reason;
  std::vector<Tensor> outputs;
};

Outcome Ran(const Graph& graph, const std::vector<Tensor>& inputs) {
  const Compiled compiled = CompileGraph(graph, Options()).value();
  const KernelReport& last = compiled.report.kernels.back();
  return {last.kernel, last.reason,
          Artifact::Open(compiled.library()).value()->Run(inputs).value()};
}

struct Product {
  std::vector<int64_t> a, b;
  bool transposed = false;  // b is the transposition of what is multiplied
};

// Borders of blocks, chunks and steps: rows that begin anywhere, less than a chunk, and more than a block.
const std::vector<Product>& Products() {
  static const auto* const kProducts =
      new std::vector<Product>{{{1, 1}, {1, 1}},
                               {{7, 7}, {7, 7}},
                               {{64, 64}, {64, 64}},
                               {{65, 65}, {65, 65}},
                               {{130, 130}, {130, 130}},
                               {{1, 130}, {130, 64}},
                               {{130, 1}, {1, 7}},
                               {{64, 7}, {7, 130}},
                               {{7, 64}, {64, 65}},
                               {{66, 68}, {68, 66}},  // pieces of 4 bytes of halves
                               {{2, 3, 9, 33}, {2, 3, 33, 20}},
                               {{3, 70, 24}, {24, 16}},  // one right side for all
                               {{70, 24}, {4, 24, 16}},  // one left side
                               {{2, 1, 5, 24}, {2, 1, 24, 72}},
                               {{7, 64}, {65, 64}, true},
                               {{65, 30}, {70, 30}, true},
                               {{2, 3, 20, 40}, {2, 3, 50, 40}, true}};
  return *kProducts;
}

Graph ProductGraph(const Product& product, DataType type, bool constant) {
  Graph graph;
  const auto dims = [](const std::vector<int64_t>& all) {
    return std::vector<Dim>(all.begin(), all.end());
  };
  const ValueId a = graph.AddInput("a", Type::Tensor(type, dims(product.a)));
  ValueId b = constant ? graph.AddConstant("b", HalfValues(type, product.b, 5))
                       : graph.AddInput("b", Type::Tensor(type, dims(product.b)));
  if (product.transposed) {
    std::vector<int64_t> perm(product.b.size());
    std::iota(perm.begin(), perm.end(), 0);
    std::swap(perm[perm.size() - 2], perm[perm.size() - 1]);
    b = Node1(graph, "Transpose", {b}, {{"perm", perm}});
  }
  graph.outputs = {Node1(graph, "Relu", {Node1(graph, "MatMul", {a, b})})};
  Infer(graph);
  return graph;
}

std::string TextOf(const Product& product, DataType type) {
  return fmt::format("{} [{}] x [{}]{}", DataTypeName(type), fmt::join(product.a, ", "),
                     fmt::join(product.b, ", "), product.transposed ? " transposed" : "");
}

class GpuProductTypes : public GpuProductTest, public ::testing::WithParamInterface<DataType> {};

TEST_P(GpuProductTypes, ActivationsAtTheBordersOfBlocks) {
  const DataType type = GetParam();
  for (const Product& product : Products()) {
    SCOPED_TRACE(TextOf(product, type));
    const Graph graph = ProductGraph(product, type, false);
    const std::vector<Tensor> inputs = WholeInputs(graph, type);
    const Outcome outcome = Ran(graph, inputs);
    EXPECT_EQ(outcome.kernel, "gpu_product");
    // f16 and bf16 round the sums, as the interpreter does.
    EXPECT_EQ(RelativeError(outcome.outputs[0], ops::Evaluate(graph, inputs).value()[0]), 0);
  }
}

TEST_P(GpuProductTypes, ConstantsWhoseRowsAreNoWholeChunks) {
  const DataType type = GetParam();
  for (const Product& product : Products()) {
    if (product.b.size() > 2 || product.transposed) continue;
    SCOPED_TRACE(TextOf(product, type));
    Graph graph = ProductGraph(product, type, true);
    UseWholeNumbers(graph, type);
    const std::vector<Tensor> inputs = WholeInputs(graph, type);
    const Outcome outcome = Ran(graph, inputs);
    EXPECT_EQ(outcome.kernel, "gpu_product");
    EXPECT_EQ(RelativeError(outcome.outputs[0], ops::Evaluate(graph, inputs).value()[0]), 0);
  }
}

TEST_P(GpuProductTypes, LayersAreThoseOfTheInterpreter) {
  const DataType type = GetParam();
  for (const HalfLayer& layer : HalfLayers()) {
    if (layer.name == "depthwise, in parts" || layer.name == "long rows") continue;
    SCOPED_TRACE(layer.name);
    const Graph graph = HalfGraph(layer, type);
    const std::vector<Tensor> inputs = RandomInputs(InputsOf(graph), 3).value();
    const Outcome outcome = Ran(graph, inputs);
    const double most = type == DataType::kF32 ? 1e-5 : 3 * HalfEpsilon(type);
    EXPECT_LE(RelativeError(outcome.outputs[0], ops::Evaluate(graph, inputs).value()[0]), most)
        << outcome.kernel;
  }
}

// Sizes that only a run tells.
TEST_P(GpuProductTypes, OneLibraryForAllSizes) {
  const DataType type = GetParam();
  Graph graph;
  const auto size = [&](const std::string& name, int input, int axis) {
    return Dim::OfSymbol(graph.symbols->AddInput(name, {input, axis}));
  };
  const Dim batch = size("batch", 0, 0), m = size("m", 0, 1), k = size("k", 0, 2),
            n = size("n", 1, 2);
  const ValueId a = graph.AddInput("a", Type::Tensor(type, {batch, m, k}));
  const ValueId b = graph.AddInput("b", Type::Tensor(type, {batch, k, n}));
  const ValueId c = graph.AddInput("c", Type::Tensor(type, {n, k}));
  graph.outputs = {Node1(graph, "MatMul", {a, b}),
                   Node1(graph, "MatMul", {a, Node1(graph, "Transpose", {c})})};
  Infer(graph);
  const Compiled compiled = CompileGraph(graph, Options()).value();
  for (const KernelReport& kernel : compiled.report.kernels) {
    if (kernel.op == "MatMul") EXPECT_EQ(kernel.kernel, "gpu_product");
  }
  const std::unique_ptr<Artifact> artifact = Artifact::Open(compiled.library()).value();
  for (const auto& [of_batch, of_m, of_k, of_n] : std::vector<std::array<int64_t, 4>>{
           {1, 1, 1, 1}, {2, 65, 7, 70}, {3, 7, 130, 64}, {1, 130, 64, 65}, {2, 3, 48, 24}}) {
    const std::vector<Tensor> inputs =
        RandomInputs(InputsOf(graph), 3,
                     {{"batch", of_batch}, {"m", of_m}, {"k", of_k}, {"n", of_n}})
            .value();
    const std::vector<Tensor> outputs = artifact->Run(inputs).value();
    const std::vector<Tensor> expected = ops::Evaluate(graph, inputs).value();
    const double most = type == DataType::kF32 ? 1e-5 : 3 * HalfEpsilon(type);
    for (size_t i = 0; i < outputs.size(); ++i)
      EXPECT_LE(RelativeError(outputs[i], expected[i]), most) << of_m << " " << of_k << " " << of_n;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GpuProductTypes,
                         ::testing::Values(DataType::kF32, DataType::kF16, DataType::kBF16),
                         [](const auto& each) { return std::string(DataTypeName(each.param)); });

// Its operand is read twice, in two orders.
TEST_F(GpuProductTest, AnOperandThatIsAlsoTheRightSide) {
  Graph graph;
  const ValueId a = graph.AddInput("a", Type::Tensor(DataType::kF32, {24, 24}));
  const ValueId squared = Node1(graph, "MatMul", {a, a});
  graph.outputs = {Node1(graph, "Add", {squared, a})};
  Infer(graph);
  const std::vector<Tensor> inputs = WholeInputs(graph, DataType::kF32);
  const Outcome outcome = Ran(graph, inputs);
  EXPECT_EQ(RelativeError(outcome.outputs[0], ops::Evaluate(graph, inputs).value()[0]), 0);
}

TEST_F(GpuProductTest, GemmOfTwoActivationsWithItsBias) {
  for (const int64_t transposed : {0, 1}) {
    Graph graph;
    const ValueId a = graph.AddInput("a", Type::Tensor(DataType::kF32, {33, 20}));
    const ValueId b = graph.AddInput(
        "b", Type::Tensor(DataType::kF32,
                          transposed != 0 ? std::vector<Dim>{40, 20} : std::vector<Dim>{20, 40}));
    const ValueId c = graph.AddConstant("c", Values({40}, 9));
    graph.outputs = {Node1(graph, "Gemm", {a, b, c}, {{"transB", transposed}})};
    Infer(graph);
    const std::vector<Tensor> inputs = RandomInputs(InputsOf(graph), 3).value();
    const Outcome outcome = Ran(graph, inputs);
    EXPECT_EQ(outcome.kernel, "gpu_product");
    EXPECT_LE(RelativeError(outcome.outputs[0], ops::Evaluate(graph, inputs).value()[0]), 1e-5);
  }
}

// A constant of one element, as a value and as a number of each channel, beside a tensor.
TEST_F(GpuProductTest, EpiloguesOfAllKindsOfOperands) {
  Graph graph;
  const ValueId a = graph.AddInput("a", Type::Tensor(DataType::kF32, {33, 20}));
  const ValueId r = graph.AddInput("r", Type::Tensor(DataType::kF32, {33, 40}));
  ValueId y = Node1(graph, "MatMul", {a, graph.AddConstant("w", Values({20, 40}, 3))});
  y = Node1(graph, "Mul", {y, graph.AddConstant("scale", Values({1}, 11))});
  y = Node1(graph, "Add", {y, graph.AddConstant("shift", Values({1, 40}, 13))});
  graph.outputs = {Node1(graph, "Add", {y, r})};
  Infer(graph);
  const std::vector<Tensor> inputs = RandomInputs(InputsOf(graph), 3).value();
  const Outcome outcome = Ran(graph, inputs);
  EXPECT_EQ(outcome.kernel, "gpu_product");
  EXPECT_LE(RelativeError(outcome.outputs[0], ops::Evaluate(graph, inputs).value()[0]), 1e-5);
}

// Memory of values whose sizes only the run tells is the host's.
TEST_F(GpuProductTest, SizesOfTheRunAreForTheHost) {
  Graph graph;
  const ValueId size = graph.AddInput("size", Type::Tensor(DataType::kI64, {2}));
  const ValueId a = Node1(graph, "ConstantOfShape", {size});
  const ValueId ones = Node1(graph, "Add", {a, graph.AddConstant("one", Tensor::ScalarF32(1))});
  graph.outputs = {Node1(graph, "MatMul", {ones, graph.AddConstant("w", Values({64, 32}, 5))})};
  Infer(graph);
  const std::vector<Tensor> inputs = {Tensor::I64({5, 64})};
  const Outcome outcome = Ran(graph, inputs);
  EXPECT_LE(RelativeError(outcome.outputs[0], ops::Evaluate(graph, inputs).value()[0]), 1e-5);
}

// Groups are products side by side.
TEST_F(GpuProductTest, GroupsOfWholeChunks) {
  for (const DataType type : {DataType::kF32, DataType::kF16}) {
    for (const auto& [channels, results, groups, kernel] : std::vector<std::array<int64_t, 4>>{
             {32, 48, 2, 3}, {32, 72, 4, 1}, {40, 10, 5, 3}, {256, 256, 32, 3}, {12, 12, 2, 3}}) {
      SCOPED_TRACE(fmt::format("{} {} {} {}", DataTypeName(type), channels, results, groups));
      HalfLayer layer{"grouped",
                      "",
                      {2, channels, 6, 7},
                      {results, channels / groups, kernel, kernel},
                      {{"group", groups}, {"pads", std::vector<int64_t>(4, kernel / 2)}}};
      Graph graph = HalfGraph(layer, type);
      UseWholeNumbers(graph, type);
      const std::vector<Tensor> inputs = WholeInputs(graph, type);
      const Outcome outcome = Ran(graph, inputs);
      const int64_t chunk = type == DataType::kF32 ? 4 : 8;
      EXPECT_EQ(outcome.kernel == "gpu_product", channels / groups % chunk == 0) << outcome.kernel;
      EXPECT_EQ(RelativeError(outcome.outputs[0], ops::Evaluate(graph, inputs).value()[0]), 0);
    }
  }
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
