#include "common/base/status.h"
#include "tests/unit/common/passes/pass_test_util.h"

namespace quench::passes {
namespace {

Graph ConvNorm() {
  ValueId x;
  Graph graph = ImageGraph(&x);
  ValueId y = Add(graph, "Conv", {x, graph.AddConstant("w", RandomTensor({4, 3, 3, 3}, 5))});
  y = Add(graph, "Dropout", {y});
  y = Add(graph, "Mul", {y, graph.AddConstant("k", RandomTensor({4, 1, 1}, 6))});
  graph.outputs = {Add(graph, "Relu", {y})};
  return graph;
}

TEST(PipelineTest, PassesWorkIntoEachOthersHands) {
  const Graph graph = ConvNorm();
  const auto after = RunPipeline(graph, {}, {});
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->nodes.size(), 2u);
  EXPECT_LE(Difference(graph, *after), 1e-5);
}

TEST(PipelineTest, EveryPassCanBeSwitchedOff) {
  PassOptions options;
  for (const PassInfo& pass : AllPasses()) options.disabled.insert(std::string(pass.name));
  const auto after = RunPipeline(ConvNorm(), options, {});
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->nodes.size(), 4u);
}

TEST(PipelineTest, StopsAfterAPassAndReportsEachOnTheWay) {
  PassOptions options;
  options.stop_after = "fold_constants";
  std::vector<std::string> seen;
  options.on_pass = [&](std::string_view pass, const Graph&) { seen.emplace_back(pass); };
  ASSERT_TRUE(RunPipeline(ConvNorm(), options, {}).ok());
  EXPECT_EQ(seen.back(), "fold_constants");
}

// Those that codegen runs are not part of it, unless they are asked for.
TEST(PipelineTest, GoesOnToCodegensPassesIfAsked) {
  for (const char* name : {"", "fold_dequantized", "integer_arithmetic", "pointwise_tables",
                           "widen_integers", "fuse_groups"}) {
    PassOptions options;
    options.stop_after = name;
    std::vector<std::string> seen;
    options.on_pass = [&](std::string_view pass, const Graph&) { seen.emplace_back(pass); };
    ASSERT_TRUE(RunPipeline(ConvNorm(), options, {}).ok());
    EXPECT_EQ(seen.back(), *name == 0 ? "dead_code" : name);
  }
}

// What runs depends on the level, and on whether the model's values are to stay.
TEST(PipelineTest, CodegenRunsItsPassesByLevelAndPurpose) {
  const auto seen = [](int level, bool keep_values) {
    PassOptions options;
    options.opt_level = level;
    options.keep_values = keep_values;
    std::string names;
    options.on_pass = [&](std::string_view pass, const Graph&) {
      names += (names.empty() ? "" : " ") + std::string(pass);
    };
    EXPECT_TRUE(RunCodegenPasses(ConvNorm(), options, {}).ok());
    return names;
  };
  const std::string integers = "recurrent_products integer_arithmetic pointwise_tables ";
  EXPECT_EQ(seen(3, false), integers + "widen_integers fuse_groups");
  EXPECT_EQ(seen(0, false), integers + "widen_integers");
  EXPECT_EQ(seen(2, true), "fold_dequantized widen_integers");
}

TEST(PipelineTest, UnknownNamesListTheKnownOnes) {
  PassOptions options;
  options.disabled = {"fold_constant"};
  const auto result = RunPipeline(ConvNorm(), options, {});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(MessageOf(result.status()).find("fold_constants"), std::string::npos);
}

TEST(PipelineTest, CancellationEndsIt) {
  StepContext context;
  context.cancel_token()->Cancel();
  EXPECT_EQ(RunPipeline(ConvNorm(), {}, context).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace quench::passes
