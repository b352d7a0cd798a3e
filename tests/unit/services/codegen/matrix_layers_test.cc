// Layers in matrix registers, or in matrices in memory where this CPU has none: the numbers of the interpreter.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <regex>
#include <set>
#include <tuple>

#include "common/ops/evaluate.h"
#include "services/codegen/targets/host_cpu.h"
#include "services/codegen/targets/resolve.h"
#include "tests/unit/services/codegen/byte_layers.h"
#include "tests/unit/services/codegen/compile_support.h"
#include "tests/unit/services/codegen/half_layers.h"
#include "tests/unit/services/codegen/matrix_targets.h"

namespace quench::codegen::matrix_layers_test {
namespace {

// Compiles the graph for each target, and compares each run with `expected`: relative to the largest, 0 for bits.
void ExpectOnAllTargets(const Graph& graph, const std::vector<Tensor>& inputs,
                        const std::vector<Tensor>& expected, double tolerance) {
  for (const std::string& target : MatrixTargets()) {
    CompileOptions options;
    options.target = target;
    const absl::StatusOr<Compiled> compiled = CompileGraph(graph, options);
    ASSERT_TRUE(compiled.ok()) << target << ": " << compiled.status();
    // Where registers are real, other forms may be faster.
    if (target != "x86-64-v4-amx") {
      EXPECT_TRUE(InMatrices(compiled->report))
          << target << ": " << compiled->report.kernels.back().reason;
    }
    ForEachRun(*compiled, inputs, [&](const std::vector<Tensor>& outputs, const std::string& run) {
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_LE(RelativeError(outputs[i], expected[i]), tolerance) << target << ", " << run;
    });
  }
}

using Ints = std::vector<int64_t>;

// Shapes that tiles, panels, bands and blocks of channels tell apart.
std::vector<HalfLayer> Layers() {
  const Ints padded = {1, 1, 1, 1};
  return {
      {"49 pixels", "conv", {1, 64, 7, 7}, {96, 64, 1, 1}, {}},
      {"one pixel", "conv", {1, 64, 1, 1}, {64, 64, 1, 1}, {}},
      {"two rows of seven", "conv", {1, 64, 7, 7}, {64, 64, 3, 3}, {{"pads", padded}}},
      {"strided pixels",
       "conv",
       {1, 96, 14, 14},
       {64, 96, 1, 1},
       {{"strides", Ints{2, 2}}},
       "Conv",
       true,
       true},
      {"few channels", "conv", {1, 24, 9, 33}, {20, 24, 3, 3}, {}},
      {"first layer",
       "conv",
       {2, 3, 35, 30},
       {40, 3, 7, 7},
       {{"pads", Ints{3, 3, 3, 3}}, {"strides", Ints{2, 2}}}},
      {"bands", "conv", {1, 32, 60, 50}, {32, 32, 3, 3}, {{"pads", padded}}, "Conv", true, true},
      {"dilated", "conv", {1, 40, 12, 40}, {64, 40, 3, 3}, {{"dilations", Ints{2, 2}}}},
      {"wide taps", "conv", {1, 32, 4, 60}, {32, 32, 1, 7}, {}},
      {"two images", "conv", {2, 32, 6, 50}, {48, 32, 3, 3}, {{"pads", padded}}},
      {"33 rows", "matmul", {33, 96}, {96, 200}, {}, "MatMul", false, true},
      {"one row", "matmul", {1, 768}, {768, 100}, {}, "MatMul", false},
      {"17 rows, short", "matmul", {17, 8}, {8, 16}, {}, "MatMul", false},
      {"steps of 12", "matmul", {40, 48}, {48, 33}, {}, "MatMul", false, true},
      {"gemm", "matmul", {20, 64}, {70, 64}, {{"transB", int64_t{1}}}, "Gemm"},
  };
}

TEST(MatrixLayers, HalvesHaveTheInterpretersNumbers) {
  for (const HalfLayer& layer : Layers()) {
    SCOPED_TRACE(layer.name);
    const Graph graph = HalfGraph(layer, DataType::kBF16);
    const std::vector<Tensor> inputs = RandomInputs(InputsOf(graph), 3).value();
    ExpectOnAllTargets(graph, inputs, ops::Evaluate(graph, inputs).value(),
                       3 * HalfEpsilon(DataType::kBF16));
  }
}

// A wrong weight, channel or pixel would not show in sums that round.
TEST(MatrixLayers, WholeNumbersAreExact) {
  for (const DataType type : {DataType::kBF16, DataType::kF16}) {
    for (const HalfLayer& layer : Layers()) {
      SCOPED_TRACE(fmt::format("{} {}", DataTypeName(type), layer.name));
      Graph graph = HalfGraph(layer, type);
      UseWholeNumbers(graph, type);
      const std::vector<Tensor> inputs = WholeInputs(graph, type);
      ExpectOnAllTargets(graph, inputs, ops::Evaluate(graph, inputs).value(), 0);
    }
  }
}

// Widths, rows and batches that are known only at run time, less and more than a tile.
TEST(MatrixLayers, SizesOfTheRun) {
  Graph graph;
  const Dim size = Dim::OfSymbol(graph.symbols->AddInput("size", {0, 2}, {1, 100}));
  const DataType type = DataType::kBF16;
  const ValueId x = graph.AddInput("x", Type::Tensor(type, {1, 32, size, size}));
  const ValueId rows = graph.AddInput("rows", Type::Tensor(type, {size, 64}));
  const std::vector<int64_t> pads(4, 1);
  const ValueId y =
      Node1(graph, "Conv", {x, graph.AddConstant("w", HalfValues(type, {40, 32, 3, 3}, 5))},
            {{"pads", pads}});
  const ValueId residual =
      Node1(graph, "Add", {y, graph.AddInput("residual", Type::Tensor(type, {1, 40, size, size}))});
  const ValueId z =
      Node1(graph, "Conv", {residual, graph.AddConstant("v", HalfValues(type, {32, 40, 1, 1}, 7))});
  const ValueId product =
      Node1(graph, "MatMul", {rows, graph.AddConstant("m", HalfValues(type, {64, 48}, 9))});
  graph.outputs = {z, product};
  Infer(graph);
  for (const std::string& target : MatrixTargets()) {
    CompileOptions options;
    options.target = target;
    const Compiled compiled = CompileGraph(graph, options).value();
    for (const KernelReport& kernel : compiled.report.kernels) {
      if (target != "x86-64-v4-amx" && kernel.kernel != "scheduled")
        EXPECT_NE(kernel.reason.find("matrices of"), std::string::npos) << kernel.reason;
    }
    for (const int64_t n : {1, 2, 7, 15, 16, 17, 31, 32, 33, 50}) {
      const std::vector<Tensor> inputs = {HalfValues(type, {1, 32, n, n}, 3),
                                          HalfValues(type, {n, 64}, 4),
                                          HalfValues(type, {1, 40, n, n}, 5)};
      const std::vector<Tensor> expected = ops::Evaluate(graph, inputs).value();
      ForEachRun(compiled, inputs, [&](const std::vector<Tensor>& outputs, const std::string& run) {
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_LE(RelativeError(outputs[i], expected[i]), 3 * HalfEpsilon(type))
              << target << ", size " << n << ", " << run << ", output " << i;
        }
      });
    }
  }
}

// Registers of no rows would be a fault.
TEST(MatrixLayers, NoRows) {
  Graph graph;
  const Dim rows = Dim::OfSymbol(graph.symbols->AddInput("rows", {0, 0}, {0, 100}));
  const DataType type = DataType::kBF16;
  const ValueId x = graph.AddInput("x", Type::Tensor(type, {rows, 64}));
  graph.outputs = {
      Node1(graph, "MatMul", {x, graph.AddConstant("m", HalfValues(type, {64, 48}, 9))})};
  Infer(graph);
  for (const std::string& target : MatrixTargets()) {
    CompileOptions options;
    options.target = target;
    const Compiled compiled = CompileGraph(graph, options).value();
    EXPECT_TRUE(InMatrices(compiled.report)) << target;
    for (const int64_t n : {0, 1}) {
      const std::vector<Tensor> inputs = {HalfValues(type, {n, 64}, 3)};
      const std::vector<Tensor> expected = ops::Evaluate(graph, inputs).value();
      const auto actual = Artifact::Open(compiled.library()).value()->Run(inputs).value();
      EXPECT_EQ(actual[0].dims(), expected[0].dims()) << target;
    }
  }
}

// The code of a product of this type for a target, as text; it need not run here.
std::string Disassembly(const std::string& target, DataType type) {
  Graph graph;
  if (type == DataType::kU8) {
    graph = ByteGraph({.name = "product", .op = "MatMul", .x = {5, 64}, .w = {64, 40}});
  } else {
    const ValueId x = graph.AddInput("x", Type::Tensor(type, {40, 64}));
    graph.outputs = {
        Node1(graph, "MatMul", {x, graph.AddConstant("w", HalfValues(type, {64, 48}, 9))})};
    Infer(graph);
  }
  CompileOptions options;
  options.target = target;
  options.half_sums = false;
  const Compiled compiled = CompileGraph(graph, options).value();
  EXPECT_TRUE(InMatrices(compiled.report)) << target;
  std::string text;
  std::FILE* const pipe =
      ::popen(("objdump -d --no-show-raw-insn " + compiled.library().string()).c_str(), "r");
  for (std::array<char, 4096> part{}; std::fgets(part.data(), part.size(), pipe) != nullptr;)
    text += part.data();
  EXPECT_EQ(::pclose(pipe), 0);
  return text;
}

// Registers get their shapes before products, and are given back after them.
TEST(MatrixLayers, CodeHasTheInstructions) {
  const std::string granite = "llvm -mtriple=x86_64-linux-gnu -mcpu=graniterapids";
  for (const auto& [target, type, instruction] :
       {std::tuple<std::string, DataType, std::string>{"x86-64-v4-amx", DataType::kBF16,
                                                       "tdpbf16ps"},
        {"x86-64-v4-amx", DataType::kU8, "tdpbusd"},
        {granite, DataType::kF16, "tdpfp16ps"}}) {
    const std::string text = Disassembly(target, type);
    const size_t product = text.find(instruction);
    ASSERT_NE(product, std::string::npos) << instruction;
    EXPECT_LT(text.rfind("ldtilecfg", product), product) << instruction;
    EXPECT_NE(text.find("tilerelease", product), std::string::npos) << instruction;
  }
}

// The registers that an instruction names, in its last operand or its first.
std::set<std::string> RegistersOf(const std::string& text, const std::string& pattern) {
  std::set<std::string> registers;
  const std::regex regex(pattern);
  for (std::sregex_iterator found(text.begin(), text.end(), regex), end; found != end; ++found)
    registers.insert((*found)[1]);
  return registers;
}

// A store waits if the last one is long ago: one of the registers that hold pixels is stored, too, though nothing
// reads it.
TEST(MatrixLayers, RegistersAreStoredInTime) {
  const std::string text = Disassembly("x86-64-v4-amx", DataType::kBF16);
  const auto loaded = RegistersOf(text, "tileloadd .*,%(tmm[0-7])");
  const auto stored = RegistersOf(text, "tilestored %(tmm[0-7])");
  std::vector<std::string> both;
  std::ranges::set_intersection(loaded, stored, std::back_inserter(both));
  EXPECT_EQ(both.size(), 1) << text;
}

// Constant weights in a byte, one group, and whole words of channels.
bool MustBeMatrices(const ByteLayer& layer) {
  const bool conv = layer.op == "Conv";
  const int64_t k = layer.w[conv || layer.op == "Gemm" ? 1 : 0];
  return layer.computed == DataType::kUndefined && layer.weights != Weights::kFar &&
         !layer.attributes.contains("group") && (conv || (layer.op == "MatMul" && k % 64 == 0));
}

class MatrixByteLayers : public ::testing::TestWithParam<ByteLayer> {};

TEST_P(MatrixByteLayers, HaveTheIntegersBits) {
  const Graph graph = ByteGraph(GetParam());
  const std::vector<Tensor> inputs = ByteInputs(graph);
  const std::vector<Tensor> expected = ops::Evaluate(InIntegers(graph), inputs).value();
  for (const std::string& target : MatrixTargets()) {
    CompileOptions options;
    options.target = target;
    const absl::StatusOr<Compiled> compiled = CompileGraph(graph, options);
    ASSERT_TRUE(compiled.ok()) << target << ": " << compiled.status();
    if (MustBeMatrices(GetParam()) && target != "x86-64-v4-amx")
      EXPECT_TRUE(InMatrices(compiled->report)) << compiled->report.kernels.back().reason;
    ForEachRun(*compiled, inputs, [&](const std::vector<Tensor>& actual, const std::string& run) {
      EXPECT_EQ(RelativeError(actual[0], expected[0]), 0) << target << ", " << run;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, MatrixByteLayers, ::testing::ValuesIn(ByteLayers()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace quench::codegen::matrix_layers_test
