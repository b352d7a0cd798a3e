// Attention in the blocks of a GPU, on the emulated device, against the interpreter.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "common/ops/evaluate.h"
#include "services/codegen/kernels/catalogue.h"
#include "services/codegen/targets/resolve.h"
#include "tests/unit/services/codegen/attention_cases.h"
#include "tests/unit/services/codegen/half_layers.h"

namespace quench::codegen::attention_gpu_test {
namespace {

constexpr char kEmulated[] = "cuda -arch=emulated -host=x86-64-v2";
constexpr float kInfinity = std::numeric_limits<float>::infinity();

double ToleranceOf(DataType type) { return type == DataType::kF32 ? 1e-5 : 4 * HalfEpsilon(type); }

// The kernel copies chunks of 16 bytes.
bool IsSupported(const AttentionCase& c) {
  const int64_t unit = c.type == DataType::kF32 ? 4 : 8;
  return c.size % unit == 0 && c.value_size % unit == 0;
}

absl::StatusOr<Compiled> CompileForGpu(const Graph& graph) {
  CompileOptions options;
  options.target = kEmulated;
  return CompileGraph(graph, options);
}

int CountAttention(const Compiled& compiled) {
  int count = 0;
  for (const KernelReport& report : compiled.report.kernels)
    count += report.kernel == "gpu_attention" ? 1 : 0;
  return count;
}

void ExpectRight(const Compiled& compiled, const BuiltAttention& built, double tolerance,
                 const std::string& what) {
  const absl::StatusOr<std::vector<Tensor>> expected = ops::Evaluate(built.graph, built.inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ForEachRun(compiled, built.inputs,
             [&](const std::vector<Tensor>& actual, const std::string& run) {
               for (size_t i = 0; i < actual.size(); ++i)
                 ExpectNear(actual[i], (*expected)[i], tolerance, what + ", " + run);
             });
}

class AttentionGpuTest : public testing::TestWithParam<AttentionCase> {
 protected:
  static void SetUpTestSuite() { setenv("QUENCH_CUDA_DRIVER", QUENCH_EMULATED_DRIVER, 1); }
};

TEST_P(AttentionGpuTest, EqualsTheOperators) {
  const AttentionCase& c = GetParam();
  const BuiltAttention built = BuildAttention(c);
  const absl::StatusOr<Compiled> compiled = CompileForGpu(built.graph);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(CountAttention(*compiled), IsSupported(c) ? 1 : 0);
  ExpectRight(*compiled, built, ToleranceOf(c.type), "");
}

std::vector<AttentionCase> AllCases() {
  std::vector<AttentionCase> cases = AttentionCases();
  for (AttentionCase c : HalfAttentionCases()) {
    c.name = "half_" + c.name;
    cases.push_back(c);
  }
  for (const DataType type : {DataType::kF32, DataType::kF16}) {
    cases.push_back({.name = fmt::format("widest_{}", DataTypeName(type)),
                     .batch = 1,
                     .heads = 2,
                     .kv_heads = 1,
                     .steps = 40,
                     .keys = 70,
                     .size = 256,
                     .value_size = 256,
                     .type = type});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionGpuTest, testing::ValuesIn(AllCases()),
                         [](const auto& test) { return test.param.name; });

// Sizes at the borders of tiles, in one library for all numbers of queries and keys.
class AttentionSizesTest : public AttentionGpuTest {};

TEST_P(AttentionSizesTest, EqualTheOperators) {
  AttentionCase c = GetParam();
  absl::StatusOr<Compiled> compiled = CompileForGpu(BuildAttention(c).graph);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(CountAttention(*compiled), 1);
  const auto artifact = Artifact::Open(compiled->library(), 1);
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  for (const auto& [steps, keys] : {std::pair(1, 1),
                                    {1, 5},
                                    {1, 300},
                                    {7, 5},
                                    {7, 127},
                                    {16, 64},
                                    {64, 1},
                                    {64, 127},
                                    {130, 5},
                                    {130, 300}}) {
    c.steps = steps;
    c.keys = keys;
    if (!c.mask.empty()) c.mask = {c.batch, 1, steps, keys};
    const BuiltAttention built = BuildAttention(c);
    const absl::StatusOr<std::vector<Tensor>> expected = ops::Evaluate(built.graph, built.inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const absl::StatusOr<std::vector<Tensor>> actual = (*artifact)->Run(built.inputs);
    ASSERT_TRUE(actual.ok()) << actual.status();
    ExpectNear((*actual)[0], (*expected)[0], ToleranceOf(c.type),
               fmt::format("{} steps, {} keys", steps, keys));
  }
}

std::vector<AttentionCase> CasesOfSizes() {
  std::vector<AttentionCase> cases;
  int number = 0;
  for (const DataType type : {DataType::kF32, DataType::kF16, DataType::kBF16}) {
    for (const auto& [size, value_size] : {std::pair(8, 8), {64, 64}, {80, 72}, {128, 128}}) {
      AttentionCase c{.name = fmt::format("{}_{}", DataTypeName(type), size),
                      .batch = 2,
                      .heads = 2,
                      .kv_heads = 1,
                      .steps = 37,
                      .keys = 41,
                      .size = size,
                      .value_size = value_size,
                      .folded = number % 2 == 0,
                      .symbolic = true,
                      .type = type};
      if (number % 3 == 1) c.mask = {2, 1, 37, 41};
      c.bool_mask = number % 2 == 0;
      c.causal = number % 3 == 2;
      ++number;
      cases.push_back(c);
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionSizesTest, testing::ValuesIn(CasesOfSizes()),
                         [](const auto& test) { return test.param.name; });

// Candidates of the kernel for a GPU.
void ExpectPlans(const std::string& arch, const AttentionCase& c, size_t count,
                 int64_t most_shared) {
  CompileOptions options;
  options.target = "cuda -arch=" + arch;
  const Target target = ResolveTarget(options.target).value().back();
  const absl::StatusOr<Graph> graph = GroupGraph(BuildAttention(c).graph, options);
  ASSERT_TRUE(graph.ok()) << graph.status();
  SymbolTable symbols = *graph->symbols;
  std::vector<Candidate> candidates;
  for (const Node& node : graph->nodes) {
    const KernelRequest request{*graph, node, *target.device, {}, symbols};
    Propose(GpuAttentionKernel(), request, candidates);
  }
  ASSERT_EQ(candidates.size(), count) << arch << ", " << c.name;
  for (const Candidate& candidate : candidates) {
    EXPECT_LE(candidate.shared_bytes, most_shared) << arch << ", " << c.name;
    const std::string text = candidate.code->Text(symbols);
    const absl::StatusOr<std::string> read = candidate.kernel->reread(text, symbols);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, text);
  }
}

TEST_F(AttentionGpuTest, PlansFitTheGpu) {
  AttentionCase c{.name = "f32", .steps = 300, .keys = 300, .size = 64, .value_size = 64};
  c.mask = {2, 1, 300, 300};
  c.symbolic = true;
  const auto expect = [&](size_t on_60, size_t on_75, size_t on_80) {
    ExpectPlans("sm_60", c, on_60, 48 << 10);
    ExpectPlans("sm_75", c, on_75, 64 << 10);
    ExpectPlans("sm_80", c, on_80, 99 << 10);
  };
  expect(1, 1, 1);
  c = {.name = "wide f32", .steps = 300, .keys = 300, .size = 256, .value_size = 256};
  expect(0, 1, 1);
  c = {.name = "f16", .steps = 40, .size = 128, .value_size = 192, .type = DataType::kF16};
  expect(0, 1, 1);
  c = {.name = "too wide", .steps = 40, .size = 128, .value_size = 264, .type = DataType::kF16};
  expect(0, 0, 0);
  c = {.name = "bf16", .steps = 40, .size = 128, .value_size = 128, .type = DataType::kBF16};
  expect(0, 0, 1);
  c = {.name = "odd", .steps = 40, .size = 20, .value_size = 16, .type = DataType::kF16};
  expect(0, 0, 0);
}

TEST_F(AttentionGpuTest, NoKeys) {
  for (const int64_t steps : {int64_t{2}, int64_t{20}}) {
    const AttentionCase c{
        .name = "", .steps = steps, .keys = 0, .symbolic = true, .products = true};
    const BuiltAttention built = BuildAttention(c);
    const absl::StatusOr<Compiled> compiled = CompileForGpu(built.graph);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ExpectRight(*compiled, built, 0, fmt::format("{} steps", steps));
  }
}

// For queries that may attend to nothing, Attention gives 0 and Softmax NaN; masks of the lowest float, as exporters
// have them, leave all keys equal.
TEST_F(AttentionGpuTest, ScoresThatAreNotFinite) {
  for (const bool products : {false, true}) {
    for (const int64_t steps : {int64_t{3}, int64_t{20}}) {
      AttentionCase c{.name = "",
                      .batch = 1,
                      .heads = 2,
                      .kv_heads = 2,
                      .steps = steps,
                      .keys = 20,
                      .mask = {steps, 20},
                      .products = products};
      BuiltAttention built = BuildAttention(c);
      auto* mask = reinterpret_cast<float*>(built.inputs[3].mutable_bytes());
      for (int64_t j = 0; j < 20; ++j) mask[20 + j] = -kInfinity;
      for (int64_t j = 0; j < 20; j += 2) mask[j] = -kInfinity;
      for (int64_t j = 0; j < 20; ++j) mask[40 + j] = std::numeric_limits<float>::lowest();
      auto* query = reinterpret_cast<float*>(built.inputs[0].mutable_bytes());
      query[0] = std::numeric_limits<float>::quiet_NaN();
      query[16 + 9] = kInfinity;
      const absl::StatusOr<Compiled> compiled = CompileForGpu(built.graph);
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      EXPECT_EQ(CountAttention(*compiled), 1);
      ExpectRight(*compiled, built, 1e-5, fmt::format("{} steps", steps));
    }
  }
}

}  // namespace
}  // namespace quench::codegen::attention_gpu_test
