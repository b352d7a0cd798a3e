#include <algorithm>
#include <set>
#include <tuple>

#include "common/base/status.h"
#include "tests/unit/common/passes/pass_test_util.h"

namespace quench::passes::pipeline_test {
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

// As formats with channels last are imported: each layer between Transposes of its own.
TEST(PipelineTest, BatchNormsFoldWhereTransposesStoodBefore) {
  ValueId x;
  Graph graph = ImageGraph(&x);
  const std::vector<int64_t> last = {0, 2, 3, 1}, first = {0, 3, 1, 2};
  ValueId y = Add(graph, "Conv", {x, graph.AddConstant("w", RandomTensor({4, 3, 3, 3}, 5))});
  y = Add(graph, "Transpose", {y}, {{"perm", last}});
  y = Add(graph, "Transpose", {y}, {{"perm", first}});
  std::vector<ValueId> inputs = {y};
  for (const char* name : {"scale", "shift", "mean"})
    inputs.push_back(graph.AddConstant(name, RandomTensor({4}, 6)));
  inputs.push_back(graph.AddConstant(
      "variance", Tensor::Of(DataType::kF32, {4}, std::vector<float>{1, 2, 0.5, 3})));
  y = Add(graph, "BatchNormalization", inputs);
  graph.outputs = {Add(graph, "Transpose", {y}, {{"perm", last}})};
  const auto after = RunPipeline(graph, {}, {});
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(CountOps(*after, "BatchNormalization"), 0);
  EXPECT_LE(Difference(graph, *after), 1e-5);
}

TEST(PipelineTest, EveryPassCanBeSwitchedOff) {
  PassOptions options;
  for (const PassSwitch& each : AllPassSwitches()) options.disabled.insert(std::string(each.name));
  const auto after = RunPipeline(ConvNorm(), options, {});
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->nodes.size(), 4u);
}

TEST(PipelineTest, EveryPassHasASwitchAndEverySwitchAPass) {
  std::set<std::string_view> switches, used;
  for (const PassSwitch& each : AllPassSwitches()) switches.insert(each.name);
  for (const PassInfo& pass : AllPasses()) used.insert(pass.disabled_by);
  EXPECT_EQ(switches, used);
}

TEST(PipelineTest, AGroupHasOneSwitch) {
  PassOptions options;
  options.disabled = {"integer_arithmetic"};
  std::string seen;
  options.on_pass = [&](std::string_view pass, const Graph&) { seen += std::string(pass) + " "; };
  ASSERT_TRUE(RunCodegenPasses(ConvNorm(), options, {}).ok());
  EXPECT_EQ(seen, "recurrent_products attention pointwise_tables widen_integers fuse_groups ");
  const auto names = CodegenSwitches();
  EXPECT_EQ(std::count(names.begin(), names.end(), "integer_arithmetic"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "requantize"), 0);
}

TEST(PipelineTest, StopsAfterAPassAndReportsEachOnTheWay) {
  PassOptions options;
  options.stop_after = "fold_constants";
  std::vector<std::string> seen;
  options.on_pass = [&](std::string_view pass, const Graph&) { seen.emplace_back(pass); };
  ASSERT_TRUE(RunPipeline(ConvNorm(), options, {}).ok());
  EXPECT_EQ(seen.back(), "fold_constants");
}

// Codegen's passes are not part of it, unless they are asked for.
TEST(PipelineTest, GoesOnToCodegensPassesIfAsked) {
  for (const char* name : {"", "sink_dequantize", "requantize", "fold_dequantized",
                           "pointwise_tables", "widen_integers", "fuse_groups"}) {
    PassOptions options;
    options.stop_after = name;
    std::vector<std::string> seen;
    options.on_pass = [&](std::string_view pass, const Graph&) { seen.emplace_back(pass); };
    ASSERT_TRUE(RunPipeline(ConvNorm(), options, {}).ok());
    EXPECT_EQ(seen.back(), *name == 0 ? "dead_code" : name);
  }
}

// The passes that run depend on the level, and on whether the model's values are to stay.
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
  const std::string integers =
      "recurrent_products sink_dequantize average_integers cancel_quantize signed_weights "
      "integer_products weight_only_products requantize attention fold_dequantized "
      "pointwise_tables ";
  EXPECT_EQ(seen(3, false), integers + "byte_activations widen_integers fuse_groups");
  EXPECT_EQ(seen(0, false), integers + "byte_activations widen_integers");
  EXPECT_EQ(seen(2, true), "fold_dequantized widen_integers");
}

TEST(PipelineTest, UnknownNamesListTheKnownOnes) {
  PassOptions options;
  options.disabled = {"fold_constant"};
  const auto result = RunPipeline(ConvNorm(), options, {});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(MessageOf(result.status()).find("fold_constants"), std::string::npos);
}

// A group is skipped as a whole, and is no place to stop.
TEST(PipelineTest, NamesToSkipAndToStopAfterDiffer) {
  for (const auto& [skip, stop, problem] :
       {std::tuple("requantize", "", "to skip"),
        std::tuple("", "integer_arithmetic", "to stop after")}) {
    PassOptions options;
    if (*skip != 0) options.disabled = {skip};
    options.stop_after = stop;
    const auto result = RunPipeline(ConvNorm(), options, {});
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(MessageOf(result.status()).find(problem), std::string::npos) << result.status();
  }
}

TEST(PipelineTest, CancellationEndsIt) {
  StepContext context;
  context.cancel_token()->Cancel();
  EXPECT_EQ(RunPipeline(ConvNorm(), {}, context).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace quench::passes::pipeline_test
