#include "services/codegen/trials.h"

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/status.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen::trials_test {
namespace {

using ::quench::testing::HasSubstr;

TEST(TrialsTest, RunInTurnFiveTimesAtLeastAfterOneThatDoesNotCount) {
  std::string order;
  const auto rounds =
      RunInTurn(2, 0, "tests",
                [&](size_t i, bool counts) {
                  order += static_cast<char>((counts ? 'A' : 'a') + static_cast<char>(i));
                  return absl::OkStatus();
                },
                {});
  ASSERT_TRUE(rounds.ok()) << rounds.status();
  EXPECT_EQ(*rounds, 5);
  EXPECT_EQ(order, "abABABABABAB");
  const auto failed =
      RunInTurn(1, 0, "tests", [](size_t, bool) { return absl::InternalError("no run"); }, {});
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kInternal);
}

TEST(TrialsTest, LowerQuartile) {
  EXPECT_EQ(LowerQuartile({8, 1, 7, 2, 6, 3, 5, 4}), 3);
  EXPECT_EQ(LowerQuartile({4}), 4);
}

TEST(TrialsTest, TargetsThatCannotBeTimedAreRefused) {
  CompileOptions options;
  EXPECT_TRUE(CheckTrialTarget(options, "a test").ok());
  options.target = "x86-64";
  EXPECT_THAT(
      MessageOf(CheckTrialTarget(options, "a test")),
      HasSubstr("a test measures on this machine, and target `x86-64` has code for 3 kinds"));
}

TEST(TrialsTest, ABuildRunsAndLeavesNoFile) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 8}));
  graph.outputs = {Node1(graph, "Relu", {x})};
  Infer(graph);
  const TempDir folder = *TempDir::Create();
  const auto trial = BuildTrial(graph, {}, folder.path(), "relu", "a test", {});
  ASSERT_TRUE(trial.ok()) << trial.status();
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "relu.so"));
  const auto inputs = TypicalInputs(graph, *trial->artifact);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  ASSERT_EQ(inputs->size(), 1u);
  EXPECT_EQ((*inputs)[0].dims(), (std::vector<int64_t>{1, 8}));
  EXPECT_TRUE(trial->artifact->Time(*inputs).ok());
}

// Random lengths would be 0 and 1, and a layer that skips its steps takes no time.
TEST(TrialsTest, SequencesAreTimedWhole) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {7, 2, 3}));
  const ValueId lengths = graph.AddInput("lengths", Type::Tensor(DataType::kI32, {2}));
  const NodeId node = graph.AddNode("LSTM", "lstm",
                                    {x, graph.AddConstant("w", Values({1, 16, 3}, 1)),
                                     graph.AddConstant("r", Values({1, 16, 4}, 2)), kNone, lengths},
                                    1);
  graph.outputs = graph.node(node).outputs;
  Infer(graph);
  const TempDir folder = *TempDir::Create();
  const auto trial = BuildTrial(graph, {}, folder.path(), "lstm", "a test", {});
  ASSERT_TRUE(trial.ok()) << trial.status();
  const auto inputs = TypicalInputs(graph, *trial->artifact);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_EQ((*inputs)[1].FloatAt(0), 7);
  EXPECT_EQ((*inputs)[1].FloatAt(1), 7);
}

}  // namespace
}  // namespace quench::codegen::trials_test
