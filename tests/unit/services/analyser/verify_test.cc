#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/analyser/analyser.h"
#include "services/codegen/codegen.h"
#include "tests/support/graphs.h"

namespace quench::analyser {
namespace {

using ::quench::testing::Add;
using ::quench::testing::RandomTensor;

Graph Network(uint64_t seed) {
  Graph graph;
  graph.name = "network";
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {2, 8}));
  ValueId y =
      Add(graph, "MatMul", {x, graph.AddConstant("w1", RandomTensor({8, 8}, 1))}, {}, "one");
  y = Add(graph, "Tanh", {y}, {}, "squash");
  graph.outputs = {
      Add(graph, "MatMul", {y, graph.AddConstant("w2", RandomTensor({8, 3}, seed))}, {}, "two")};
  return graph;
}

absl::Status Build(const Graph& graph, bool reference, bool taps,
                   const std::filesystem::path& library, const StepContext& context) {
  codegen::CompileOptions options;
  options.opt_level = reference ? 0 : 3;
  options.taps = taps;
  std::filesystem::path header = library;
  header.replace_extension(".h");
  return codegen::Compile(graph, options, library, header, context).status();
}

class VerifyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = TempDir::Create();
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_ = std::make_unique<TempDir>(*std::move(dir));
    library_ = dir_->path() / "model.so";
    ASSERT_TRUE(Build(Network(2), false, false, library_, {}).ok());
    options_.build = Build;
  }
  std::unique_ptr<TempDir> dir_;
  std::filesystem::path library_;
  VerifyOptions options_;
};

TEST_F(VerifyTest, PassesAgainstBothOracles) {
  for (const char* oracle : {"interpreter", "reference"}) {
    options_.oracle = oracle;
    options_.per_layer = true;
    const auto report = Verify(Network(2), library_, options_);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->passed) << oracle;
    EXPECT_EQ(report->oracle, oracle);
    EXPECT_GE(report->layers.size(), 2u);  // values inside a fused group are not tapped
    EXPECT_EQ(report->first_layer, "");
  }
}

TEST_F(VerifyTest, OtherWeightsAreAMismatch) {
  const auto report = Verify(Network(3), library_, options_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->passed);
  EXPECT_GT(report->outputs.at(0).error, options_.tolerance);
}

TEST_F(VerifyTest, AnotherInterfaceIsRefused) {
  Graph graph = Network(2);
  graph.value(graph.inputs[0]).name = "renamed";
  const auto report = Verify(graph, library_, options_);
  ASSERT_FALSE(report.ok());
  EXPECT_NE(MessageOf(report.status()).find("`renamed`"), std::string::npos);
}

}  // namespace
}  // namespace quench::analyser
