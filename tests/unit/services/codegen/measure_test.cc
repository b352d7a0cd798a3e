#include "services/codegen/measure.h"

#include <gtest/gtest.h>

#include <set>

#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen::measure_test {
namespace {

// Two layers that several kernels compete for, and a product.
Graph SmallNetwork(Dim batch = 1) {
  Graph graph;
  graph.symbols = std::make_shared<SymbolTable>();
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {batch, 16, 12, 12}));
  ValueId y = x;
  for (const char* name : {"w1", "w2"}) {
    const ValueId w = graph.AddConstant(name, Values({16, 16, 3, 3}, name[1]));
    y = Node1(graph, "Conv", {y, w}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}});
    y = Node1(graph, "Relu", {y});
  }
  y = Node1(graph, "GlobalAveragePool", {y});
  y = Node1(graph, "Flatten", {y});
  graph.outputs = {Node1(graph, "MatMul", {y, graph.AddConstant("w3", Values({16, 40}, 3))})};
  Infer(graph);
  return graph;
}

CompileOptions AtRank(int rank) {
  CompileOptions options;
  options.opt_level = 4;
  options.measured = MeasuredChoice{rank, {}};
  options.max_size = 8;
  return options;
}

std::vector<std::string> CandidatesOf(const CompileReport& report) {
  std::vector<std::string> names;
  for (const KernelReport& kernel : report.kernels) names.push_back(kernel.candidate);
  return names;
}

// The node that several kernels compete for in both builds, in words of both.
std::pair<std::string, std::string> FirstDifference(const CompileReport& a,
                                                    const CompileReport& b) {
  for (size_t i = 0; i < a.kernels.size() && i < b.kernels.size(); ++i) {
    if (a.kernels[i].candidate != b.kernels[i].candidate)
      return {a.kernels[i].candidate, b.kernels[i].candidate};
  }
  return {};
}

TEST(MeasureTest, EachRankIsAnotherBuildOfTheSameModel) {
  const Graph graph = SmallNetwork();
  std::set<std::vector<std::string>> builds;
  for (int rank = 0; rank < 4; ++rank) {
    const absl::StatusOr<Compiled> compiled = CompileGraph(graph, AtRank(rank));
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    builds.insert(CandidatesOf(compiled->report));
    const auto artifact = *Artifact::Open(compiled->library());
    const std::vector<Tensor> inputs = *RandomInputs(artifact->inputs(), 1);
    const std::vector<Tensor> expected = *ops::Evaluate(graph, inputs),
                              got = *artifact->Run(inputs);
    ASSERT_EQ(got.size(), 1U);
    // Outputs are up to 300, and the machine decides which Winograd tile a rank has.
    EXPECT_LE(RelativeError(got[0], expected[0]), 1e-5) << "rank " << rank;
  }
  EXPECT_GE(builds.size(), 3U);
}

TEST(MeasureTest, TheFastestByMoreThanNoiseIsTaken) {
  const Graph graph = SmallNetwork();
  const CompileReport first = CompileGraph(graph, AtRank(0))->report;
  const auto [predicted, other] = FirstDifference(first, CompileGraph(graph, AtRank(1))->report);
  ASSERT_NE(predicted, other);
  const auto choose = [&](double of_predicted, double of_other) {
    CompileOptions options = AtRank(-1);
    options.measured->microseconds = {{predicted, of_predicted}, {other, of_other}};
    return FirstDifference(first, CompileGraph(graph, options)->report);
  };
  EXPECT_EQ(choose(10, 8).second, other);
  EXPECT_EQ(choose(10, 9.8).second, "");  // within noise
  EXPECT_EQ(choose(8, 10).second, "");
}

TEST(MeasureTest, LibrariesOfMeasuredKernelsRunAndSayWhatWasMeasured) {
  CompileOptions options;
  options.opt_level = 4;
  options.tune_seconds = 5;  // for two builds at least, at a machine that has other work
  Graph graph = SmallNetwork();
  const TempDir folder = *TempDir::Create();
  std::set<std::string> stages;
  const StepContext context(std::make_shared<CancelToken>(),
                            [&](const Progress& progress) { stages.insert(progress.stage); });
  const absl::StatusOr<CompileReport> report = CompileMeasured(
      graph, options, folder.path() / "model.so", folder.path() / "model.h", context);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->measurement.has_value());
  EXPECT_GE(report->measurement->builds, 2);
  EXPECT_GE(report->measurement->rounds, 5);
  EXPECT_GT(report->measurement->predicted_choice_ms, 0);
  EXPECT_LE(report->measurement->measured_choice_ms, report->measurement->predicted_choice_ms);
  EXPECT_TRUE(stages.contains("measure"));
  const auto artifact = *Artifact::Open(folder.path() / "model.so");
  EXPECT_TRUE(artifact->Run(*RandomInputs(artifact->inputs(), 1)).ok());
  int files = 0;  // the library and its header: no build that was measured is left
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(folder.path()))
    ++files;
  EXPECT_EQ(files, 2);
}

TEST(MeasureTest, SymbolicSizesAreMeasuredAtUsualOnes) {
  Graph graph;
  graph.symbols = std::make_shared<SymbolTable>();
  const Dim rows = Dim::OfSymbol(graph.symbols->AddInput("rows", {0, 0}, {3, 9}));
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {rows, 24}));
  graph.outputs = {Node1(graph, "MatMul", {x, graph.AddConstant("w", Values({24, 40}))})};
  Infer(graph);
  CompileOptions options;
  options.opt_level = 4;
  options.tune_seconds = 1;
  const TempDir folder = *TempDir::Create();
  const absl::StatusOr<CompileReport> report =
      CompileMeasured(graph, options, folder.path() / "model.so", folder.path() / "model.h");
  EXPECT_TRUE(report.ok()) << report.status();
}

TEST(MeasureTest, WhatCannotBeMeasuredIsASentence) {
  const Graph graph = SmallNetwork();
  const TempDir folder = *TempDir::Create();
  const auto refused = [&](CompileOptions options) {
    const absl::Status status =
        CompileMeasured(graph, options, folder.path() / "model.so", folder.path() / "model.h")
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    return MessageOf(status);
  };
  CompileOptions options;
  options.opt_level = 4;
  options.target = "x86-64";
  EXPECT_NE(refused(options).find("3 kinds of CPU"), std::string::npos);
  options.target = "raspberry-pi/5";
  EXPECT_NE(refused(options).find("does not run:"), std::string::npos);
  options = {};
  options.opt_level = 4;
  options.tune_seconds = 0.5;
  EXPECT_NE(refused(options).find("must be 1 to 3600"), std::string::npos);
  options = {};
  options.measured = MeasuredChoice{};
  EXPECT_NE(refused(options).find("opt level 4"), std::string::npos);
}

TEST(MeasureTest, CancellingLeavesNothing) {
  CompileOptions options;
  options.opt_level = 4;
  const TempDir folder = *TempDir::Create();
  const StepContext context;
  context.cancel_token()->Cancel();
  EXPECT_EQ(CompileMeasured(SmallNetwork(), options, folder.path() / "model.so",
                            folder.path() / "model.h", context)
                .status()
                .code(),
            absl::StatusCode::kCancelled);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace quench::codegen::measure_test
