// Every operator of the catalogue becomes code for GPUs: PTX for the oldest and the newest architecture, and kernels that
// run on the emulated device, where their results are compared with the interpreter's.
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/ir/text.h"
#include "services/codegen/emit/artifact.h"
#include "services/codegen/emit/module.h"
#include "services/codegen/plan/variants.h"
#include "services/codegen/targets/resolve.h"
#include "tests/unit/services/codegen/compile_support.h"
#include "tests/unit/services/codegen/every_operator.h"

namespace quench::codegen::operators_gpu_test {
namespace {

constexpr char kEmulated[] = "cuda -arch=emulated -host=x86-64-v2";

class OperatorsGpuTest : public ::testing::Test {
 protected:
  // In the other order than elsewhere, and with a look for races between blocks.
  static void SetUpTestSuite() {
    setenv("QUENCH_CUDA_DRIVER", QUENCH_EMULATED_DRIVER, 1);
    setenv("QUENCH_EMULATED_ORDER", "reverse", 1);
    setenv("QUENCH_EMULATED_RACES", "1", 1);
  }
};

// A graph's name, for messages: that of its first node's operator.
std::string NameOf(const Graph& graph) {
  return graph.nodes.empty() ? graph.name : graph.nodes[0].op + " of `" + graph.name + "`";
}

TEST_F(OperatorsGpuTest, EachHasTheInterpretersResults) {
  int launched = 0;
  for (const Graph& graph : GraphsOfAllOperators()) {
    SCOPED_TRACE(NameOf(graph));
    CompileOptions options;
    options.target = kEmulated;
    options.check = CheckMode::kFull;
    const absl::StatusOr<Compiled> compiled = CompileGraph(graph, options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ASSERT_TRUE(compiled->report.check.has_value());
    if (graph.nodes[0].op == "q.dims") continue;  // the interpreter takes no sizes of the run
    EXPECT_TRUE(compiled->report.check->reason.empty()) << compiled->report.check->reason;
    EXPECT_EQ(compiled->report.check->variant, "cuda-emulated and x86-64-v2");
    const absl::StatusOr<std::string> plan = PlanText(graph, options, PlanStage::kProgram);
    ASSERT_TRUE(plan.ok()) << plan.status();
    launched += plan->find(" launch ") != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(launched, 150);  // others have nothing to compute, or sizes that only a run tells
}

// The arguments of a kernel have 4,352 bytes at most.
TEST_F(OperatorsGpuTest, NodesWithMoreOperandsThanArgumentsRunOnTheHost) {
  for (const int count : {390, 600}) {
    Graph graph;
    std::vector<ValueId> inputs;
    for (int i = 0; i < count; ++i)
      inputs.push_back(graph.AddInput("x" + std::to_string(i), Type::Tensor(DataType::kF32, {8})));
    graph.outputs = {Node1(graph, "Sum", inputs)};
    Infer(graph);
    CompileOptions options;
    options.target = kEmulated;
    options.check = CheckMode::kFull;
    const absl::StatusOr<Compiled> compiled = CompileGraph(graph, options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_EQ(compiled->report.check->extent, CheckReport::Extent::kWhole);
    const std::string reason = compiled->report.kernels.back().reason;
    EXPECT_EQ(reason.find("on the host") != std::string::npos, count > 400) << reason;
  }
}

// Equal code is one kernel, but a check that fails is that of its node.
TEST_F(OperatorsGpuTest, EqualKernelsHaveMessagesOfTheirOwn) {
  Graph graph;
  const ValueId data = graph.AddInput("data", Type::Tensor(DataType::kF32, {8, 4}));
  for (const std::string name : {"first", "second"}) {
    const ValueId at = graph.AddInput(name, Type::Tensor(DataType::kI64, {6}));
    graph.outputs.push_back(Node1(graph, "Gather", {data, at}));
    graph.nodes.back().name = "gather_" + name;
  }
  Infer(graph);
  CompileOptions options;
  options.target = kEmulated;
  const Compiled compiled = CompileGraph(graph, options).value();
  const std::unique_ptr<Artifact> artifact = Artifact::Open(compiled.library()).value();
  const Tensor rows = Values({8, 4}), good = Tensor::I64({0, 1, 2, 3, 4, 5}),
               bad = Tensor::I64({0, 1, 2, 3, 4, 8});
  const auto error = [&](const Tensor& first, const Tensor& second) {
    const std::vector<Tensor> inputs = {rows, first, second};
    return std::string(artifact->Run(inputs).status().message());
  };
  EXPECT_EQ(error(good, good), "");
  const std::string first = error(bad, good), second = error(good, bad);
  EXPECT_NE(first.find("gather_first"), std::string::npos) << first;
  EXPECT_NE(second.find("gather_second"), std::string::npos) << second;
}

// Sizes at and beside what threads, warps and blocks do at once, and rows too long for registers.
TEST_F(OperatorsGpuTest, RowsOfAllLengthsHaveTheInterpretersResults) {
  struct Case {
    std::string operands, node;
  };
  const std::string softmax = "Softmax(%x) {axis = -1}";
  const std::string normalised = "LayerNormalization(%x, %s) {axis = -1}";
  const Case cases[] = {
      {"input %x: f32[3, 331]", "Relu(%x)"},
      {"input %x: f16[7, 160]", "Relu(%x)"},
      {"input %x: bool[5, 413]", "Not(%x)"},
      {"input %x: i8[5, 413]\n  input %s: i8[413]", "Max(%x, %s)"},
      {"input %x: f32[12, 60]\n  input %s: f32[60]", "Mul(%x, %s)"},
      {"input %x: f32[12, 61]\n  input %s: f32[12, 1]", "Mul(%x, %s)"},
      {"input %x: f32[70, 17]", softmax},
      {"input %x: f32[9, 197]", softmax},
      {"input %x: f16[9, 200]", softmax},
      {"input %x: f32[2, 1000]", softmax},
      {"input %x: f32[3, 5002]", softmax},
      {"input %x: f32[2, 20000]", softmax},
      {"input %x: f32[9, 40, 6]", "Softmax(%x) {axis = 1}"},
      {"input %x: f32[5, 768]\n  input %s: f32[768]", normalised},
      {"input %x: bf16[5, 333]\n  input %s: bf16[333]", normalised},
      {"input %x: f32[2, 17000]\n  input %s: f32[17000]", normalised},
      {"input %x: f32[40, 7, 7, 1]", "GlobalAveragePool(%x)"},
      {"input %x: f32[2, 3, 56, 50]", "GlobalMaxPool(%x)"},
      {"input %x: f32[70003]", "ReduceSum(%x) {keepdims = 0}"},
      {"input %x: i64[2, 3, 5003]", "ReduceSum(%x, %a) {keepdims = 0}"},
      {"input %x: f32[300, 40]", "ReduceMean(%x, %b) {keepdims = 0}"},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.node + " of " + each.operands);
    absl::StatusOr<Graph> graph =
        ParseGraph("quench.ir 1\nmodule \"rows\" canonical {\n  " + each.operands +
                   "\n  const %a: i64[1] = [2]\n  const %b: i64[1] = [0]\n  %y = " + each.node +
                   "\n  output %y\n}\n");
    ASSERT_TRUE(graph.ok()) << graph.status();
    Infer(*graph);
    CompileOptions options;
    options.target = kEmulated;
    options.check = CheckMode::kFull;
    const absl::StatusOr<Compiled> compiled = CompileGraph(*graph, options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ASSERT_TRUE(compiled->report.check.has_value());
    EXPECT_TRUE(compiled->report.check->reason.empty()) << compiled->report.check->reason;
    EXPECT_EQ(compiled->report.check->variant, "cuda-emulated and x86-64-v2");
  }
}

TEST_F(OperatorsGpuTest, EachBecomesPtx) {
  for (const char* arch : {"sm_60", "sm_75", "sm_90"}) {
    const Target target =
        ResolveTarget(std::string("cuda -host=x86-64-v2 -arch=") + arch).value().back();
    for (const Graph& graph : GraphsOfAllOperators()) {
      SCOPED_TRACE(std::string(arch) + " " + NameOf(graph));
      CompileOptions options;
      options.target = std::string("cuda -host=x86-64-v2 -arch=") + arch;
      WeightTable weights;
      const absl::StatusOr<Graph> groups = GroupGraph(graph, options);
      ASSERT_TRUE(groups.ok()) << groups.status();
      const auto variants = PlanVariants(*groups, {target}, options, weights, {});
      ASSERT_TRUE(variants.ok()) << variants.status();
      const auto module = ModuleBuilder::Create(target);
      ASSERT_TRUE(module.ok()) << module.status();
      const std::vector<uint64_t> offsets(weights.entries().size() + 1, 0);
      const absl::Status emitted =
          EmitVariant(**module, variants->front().built.program, target, offsets, "variant");
      EXPECT_TRUE(emitted.ok()) << emitted;
    }
  }
}

}  // namespace
}  // namespace quench::codegen::operators_gpu_test
