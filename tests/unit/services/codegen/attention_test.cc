// Attention in tiles, of the operator and of the products that exporters write, against the interpreter
// of the graph as it was.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/ops/evaluate.h"
#include "tests/unit/services/codegen/attention_cases.h"
#include "tests/unit/services/codegen/half_layers.h"
#include "tests/unit/services/codegen/matrix_targets.h"

namespace quench::codegen::attention_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

int CountAttention(const Compiled& compiled) {
  int count = 0;
  for (const KernelReport& report : compiled.report.kernels)
    count += report.kernel == "attention" ? 1 : 0;
  return count;
}

void ExpectClose(const Graph& graph, const std::vector<Tensor>& inputs, double tolerance) {
  const absl::StatusOr<std::vector<Tensor>> expected = ops::Evaluate(graph, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ForEachBuild(graph, {0}, [&](const Compiled& compiled, int level, const std::string& build) {
    EXPECT_EQ(CountAttention(compiled), level >= 2 ? 1 : 0) << build;
    ForEachRun(compiled, inputs, [&](const std::vector<Tensor>& actual, const std::string& run) {
      for (size_t output = 0; output < actual.size(); ++output) {
        ExpectNear(actual[output], (*expected)[output], tolerance,
                   fmt::format("{}, {}, output {}", build, run, output));
      }
    });
  });
}

class AttentionTest : public testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionTest, EqualsTheOperators) {
  const BuiltAttention built = BuildAttention(GetParam());
  const DataType type = GetParam().type;
  ExpectClose(built.graph, built.inputs, type == DataType::kF32 ? 1e-5 : 4 * HalfEpsilon(type));
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionTest, testing::ValuesIn(AttentionCases()),
                         [](const auto& test) { return test.param.name; });

// The same in halves, where the target multiplies matrices of them.
class AttentionInMatrices : public testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionInMatrices, EqualsTheOperators) {
  const AttentionCase& c = GetParam();
  const BuiltAttention built = BuildAttention(c);
  const absl::StatusOr<std::vector<Tensor>> expected = ops::Evaluate(built.graph, built.inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const std::string& target : MatrixTargets()) {
    CompileOptions options;
    options.target = target;
    const absl::StatusOr<Compiled> compiled = CompileGraph(built.graph, options);
    ASSERT_TRUE(compiled.ok()) << target << ": " << compiled.status();
    ForEachRun(*compiled, built.inputs,
               [&](const std::vector<Tensor>& actual, const std::string& run) {
                 for (size_t i = 0; i < actual.size(); ++i) {
                   ExpectNear(actual[i], (*expected)[i], 4 * HalfEpsilon(c.type),
                              fmt::format("{}, {}, output {}", target, run, i));
                 }
               });
    // Registers of 16 words of keys and values; words are of two numbers.
    const bool emulated = target.ends_with("-emulate-matrices");
    if (emulated && c.steps > 4 && c.size % 2 == 0 && c.value_size % 16 == 0)
      EXPECT_TRUE(InMatrices(compiled->report)) << target;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionInMatrices, testing::ValuesIn(HalfAttentionCases()),
                         [](const auto& test) { return test.param.name; });

// Products over no keys are 0, one by one and in tiles.
TEST(AttentionTest, NoKeys) {
  for (const int64_t steps : {int64_t{2}, int64_t{20}}) {
    const AttentionCase c{
        .name = "", .steps = steps, .keys = 0, .symbolic = true, .products = true};
    const BuiltAttention built = BuildAttention(c);
    ExpectClose(built.graph, built.inputs, 0);
  }
}

// For queries that may attend to nothing, Attention gives 0 and Softmax NaN; with masks that shut
// out single keys, infinities and NaN come out where the operators have them.
TEST(AttentionTest, ScoresThatAreNotFinite) {
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
      auto* query = reinterpret_cast<float*>(built.inputs[0].mutable_bytes());
      query[2 * 16] = std::numeric_limits<float>::quiet_NaN();
      query[2 * 16 + 9] = kInfinity;
      ExpectClose(built.graph, built.inputs, 1e-5);
    }
  }
}

// Query i is at past + i, however many keys are new; and lengths that are too few are refused.
TEST(AttentionTest, WhatTypesDoNotTellIsLeftToTheOperator) {
  AttentionCase c{.name = "", .steps = 2, .keys = 4, .causal = true, .past = 3};
  const BuiltAttention built = BuildAttention(c);
  for (const int level : {0, 3}) ExpectSame(built.graph, built.inputs, level);

  AttentionCase lengths{.name = "", .steps = 2, .keys = 9, .folded = false, .lengths = {5, 7}};
  BuiltAttention other = BuildAttention(lengths);
  Graph& graph = other.graph;
  graph.value(graph.inputs[3]).type.dims = {
      Dim::OfSymbol(graph.symbols->AddInput("n", {3, 0}, {1, 9}))};
  Infer(graph);
  ExpectSame(graph, other.inputs, 3);
  const absl::StatusOr<Compiled> compiled = CompileGraph(graph);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(CountAttention(*compiled), 0);
  other.inputs[3] = Tensor::I64({5});
  EXPECT_FALSE(Artifact::Open(compiled->library(), 1).value()->Run(other.inputs).ok());
}

// Values behind the lengths may be anything.
TEST(AttentionTest, KeysOutOfReachAreNotRead) {
  for (const int64_t steps : {int64_t{1}, int64_t{20}}) {
    AttentionCase c{.name = "", .steps = steps, .keys = 50, .folded = false, .lengths = {30, 21}};
    BuiltAttention built = BuildAttention(c);
    for (const size_t i : {1U, 2U}) {
      auto* values = reinterpret_cast<float*>(built.inputs[i].mutable_bytes());
      for (int64_t n = 0; n < 2; ++n) {
        for (int64_t h = 0; h < 4; ++h) {
          for (int64_t j = c.lengths[static_cast<size_t>(n)]; j < 50; ++j)
            std::fill_n(values + ((n * 4 + h) * 50 + j) * 8, 8, std::nanf(""));
        }
      }
    }
    const absl::StatusOr<Compiled> compiled = CompileGraph(built.graph);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ForEachRun(*compiled, built.inputs,
               [&](const std::vector<Tensor>& actual, const std::string& run) {
                 for (int64_t i = 0; i < actual[0].size(); ++i)
                   ASSERT_TRUE(std::isfinite(actual[0].FloatAt(i))) << run << ": element " << i;
               });
  }
}

}  // namespace
}  // namespace quench::codegen::attention_test
