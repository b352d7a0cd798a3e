#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/passes/pass.h"
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
  options.taps = taps ? codegen::Taps::kModelValues : codegen::Taps::kNone;
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

// Types of tokens: a table of two rows, which only 0 and 1 index.
TEST_F(VerifyTest, InputsMayBeIndicesOfSmallTables) {
  Graph graph;
  graph.name = "types";
  const ValueId ids = graph.AddInput("ids", Type::Tensor(DataType::kI64, {64}));
  graph.outputs = {
      Add(graph, "Gather", {graph.AddConstant("table", RandomTensor({2, 8}, 1)), ids}, {}, "look")};
  ASSERT_TRUE(Build(graph, false, false, library_, {}).ok());
  for (const char* oracle : {"interpreter", "reference"}) {
    options_.oracle = oracle;
    const auto report = Verify(graph, library_, options_);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->passed) << oracle;
  }
}

// x and a kernel of bytes -> ConvTranspose -> bytes. Sums in these scales often lie half way between two.
Graph QuantizedTransposed() {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 4, 5, 5}));
  const ValueId zero = graph.AddConstant("zero", Tensor::Zeros(DataType::kI8, {}));
  const auto scale = [&](const std::string& name, float value) {
    return graph.AddConstant(name, Tensor::ScalarF32(value));
  };
  const ValueId sx = scale("sx", 0.05F), sy = scale("sy", 0.03F);
  Tensor kernel = Tensor::Zeros(DataType::kI8, {4, 3, 4, 4});
  for (int64_t i = 0; i < kernel.size(); ++i)
    kernel.mutable_bytes()[i] = static_cast<std::byte>(i * 37 % 251);
  const ValueId q = Add(graph, "QuantizeLinear", {x, sx, zero});
  const ValueId real = Add(graph, "DequantizeLinear", {q, sx, zero});
  const ValueId w =
      Add(graph, "DequantizeLinear", {graph.AddConstant("w", kernel), scale("sw", 0.01F), zero});
  const ValueId y = Add(
      graph, "ConvTranspose", {real, w},
      {{"strides", std::vector<int64_t>{2, 2}}, {"pads", std::vector<int64_t>{1, 1, 1, 1}}}, "up");
  const ValueId bytes = Add(graph, "QuantizeLinear", {y, sy, zero});
  graph.outputs = {Add(graph, "DequantizeLinear", {bytes, sy, zero})};
  return graph;
}

// What compilation makes of a quantized model, the oracle makes of it too: there is no rounding that
// only one of them has.
TEST_F(VerifyTest, IntegersAreTheSameToTheLastBit) {
  const auto passed = passes::RunPipeline(QuantizedTransposed(), {}, {});
  ASSERT_TRUE(passed.ok()) << passed.status();
  ASSERT_TRUE(Build(*passed, false, false, library_, {}).ok());
  options_.tolerance = 0;
  for (const char* oracle : {"interpreter", "reference"}) {
    options_.oracle = oracle;
    const auto report = Verify(QuantizedTransposed(), library_, options_);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->passed) << oracle;
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
