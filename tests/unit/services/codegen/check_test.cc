#include "services/codegen/check/check.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/status.h"
#include "common/ir/text.h"
#include "services/codegen/check/compare.h"
#include "services/codegen/check/part.h"
#include "services/codegen/targets/resolve.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen::check_test {
namespace {

using Extent = CheckReport::Extent;

ValueId Conv(Graph& graph, ValueId x, const std::string& name, int64_t channels, uint64_t seed) {
  const ValueId w = graph.AddConstant(name, Values({channels, channels, 3, 3}, seed));
  return Node1(graph, "Conv", {x, w}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}});
}

// Layers of several kernels and layouts. Another seed is another model of the same form: of the last
// product's weights, or of the second convolution's.
Graph Network(uint64_t product = 3, uint64_t second = 2, int64_t channels = 16, int64_t side = 12) {
  Graph graph;
  graph.symbols = std::make_shared<SymbolTable>();
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, channels, side, side}));
  ValueId y = Node1(graph, "Relu", {Conv(graph, x, "w1", channels, 1)});
  const ValueId pooled = Node1(
      graph, "MaxPool", {y},
      {{"kernel_shape", std::vector<int64_t>{3, 3}}, {"pads", std::vector<int64_t>{1, 1, 1, 1}}});
  y = Node1(graph, "Relu", {Conv(graph, pooled, "w2", channels, second)});
  y = Node1(graph, "Concat", {y, pooled}, {{"axis", int64_t{1}}});
  y = Node1(graph, "Flatten", {Node1(graph, "GlobalAveragePool", {y})});
  const ValueId w = graph.AddConstant("w3", Values({2 * channels, 40}, product));
  graph.outputs = {Node1(graph, "MatMul", {y, w})};
  Infer(graph);
  return graph;
}

CompileOptions Checked(CheckMode mode = CheckMode::kAuto) {
  CompileOptions options;
  options.check = mode;
  return options;
}

// The check's message about a library of `made` that should compute `source`.
std::string MismatchOf(const Graph& made, const Graph& source,
                       CompileOptions options = Checked(CheckMode::kFull)) {
  options.check_source = &source;
  const absl::StatusOr<Compiled> compiled = CompileGraph(made, options);
  EXPECT_EQ(compiled.status().code(), absl::StatusCode::kInternal) << compiled.status();
  return MessageOf(compiled.status());
}

std::string OutputOf(const Graph& graph, const std::string& op, int which) {
  for (const Node& node : graph.nodes) {
    if (node.op == op && which-- == 0) return graph.value(node.outputs[0]).name;
  }
  return "";
}

TEST(CheckTest, SmallModelsRunWhole) {
  for (const int level : {0, 1, 2, 3}) {
    CompileOptions options = Checked();
    options.opt_level = level;
    const absl::StatusOr<Compiled> compiled = CompileGraph(Network(), options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const CheckReport& check = compiled->report.check.value();
    EXPECT_EQ(check.extent, Extent::kWhole) << check.reason;
    EXPECT_LT(check.largest_error, 1e-5);
    EXPECT_EQ(check.groups, check.all_groups);
    EXPECT_GT(check.groups, 3);
  }
}

TEST(CheckTest, NothingIsSaidWhereNothingIsAsked) {
  const absl::StatusOr<Compiled> compiled = CompileGraph(Network());
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_FALSE(compiled->report.check.has_value());
}

// All that comes before it is read from memory of the run, in whatever layout, and found right.
TEST(CheckTest, TheValueIsNamedThatIsWrong) {
  for (const int level : {0, 2, 3}) {
    CompileOptions options = Checked(CheckMode::kFull);
    options.opt_level = level;
    const Graph source = Network(/*product=*/7);
    const std::string text = MismatchOf(Network(), source, options);
    EXPECT_NE(text.find("value `" + OutputOf(source, "MatMul", 0) + "`"), text.npos) << text;
    EXPECT_NE(text.find("MatMul, kernel "), text.npos) << text;
    EXPECT_NE(text.find("and the interpreter has"), text.npos) << text;
  }
}

TEST(CheckTest, TheFirstOfThoseIsNamed) {
  const Graph source = Network(3, /*second=*/7);
  const std::string text = MismatchOf(Network(), source);
  EXPECT_NE(text.find("value `" + OutputOf(source, "Relu", 1) + "`"), text.npos) << text;
}

TEST(CheckTest, AMismatchLeavesNoLibraryButEvidence) {
  const Graph made = Network(), source = Network(7);
  const TempDir folder = *TempDir::Create();
  CompileOptions options = Checked();
  options.check_source = &source;
  int calls = 0;
  options.on_mismatch = [&](const CheckEvidence& evidence) {
    ++calls;
    EXPECT_EQ(&evidence.graph, &source);
    EXPECT_EQ(evidence.inputs.at("x").dims(), (std::vector<int64_t>{1, 16, 12, 12}));
    EXPECT_NE(evidence.text.find("value `"), std::string::npos);
    EXPECT_NE(evidence.target.find("mtriple"), std::string::npos);
  };
  EXPECT_FALSE(Compile(made, options, folder.path() / "model.so", folder.path() / "model.h").ok());
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// 1.5 thousand million multiplications.
TEST(CheckTest, LargeModelsRunInGroups) {
  const Graph made = Network(3, 2, 64, 144), source = Network(7, 2, 64, 144);
  const absl::StatusOr<Compiled> compiled = CompileGraph(made, Checked());
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const CheckReport& check = compiled->report.check.value();
  EXPECT_EQ(check.extent, Extent::kGroups) << check.reason;
  EXPECT_LT(check.groups, check.all_groups);
  EXPECT_EQ(check.nodes.size(), static_cast<size_t>(check.groups));
  const std::string text = MismatchOf(made, source, Checked());
  EXPECT_NE(text.find("value `" + OutputOf(source, "MatMul", 0) + "`"), text.npos) << text;
}

TEST(CheckTest, OtherMachinesAreSaid) {
  for (const std::string target : {"aarch64", "x86-64"}) {
    CompileOptions options = Checked(CheckMode::kFull);
    options.target = target;
    const absl::StatusOr<Compiled> compiled = CompileGraph(Network(), options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const CheckReport& check = compiled->report.check.value();
    const bool here =
        ResolveTarget("host").value()[0].machine == ResolveTarget(target).value()[0].machine;
    EXPECT_EQ(check.extent, here ? Extent::kWhole : Extent::kNone);
    EXPECT_EQ(check.reason.find("this machine does not run it") != std::string::npos, !here);
    EXPECT_EQ(check.variant.empty(), !here || target == "aarch64");
  }
}

TEST(CheckTest, ObjectsAndArchivesAreLinkedForIt) {
  for (const Emit emit : {Emit::kObject, Emit::kArchive}) {
    CompileOptions options = Checked();
    options.emit = emit;
    const absl::StatusOr<Compiled> compiled = CompileGraph(Network(), options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_EQ(compiled->report.check->extent, Extent::kWhole);
  }
}

TEST(CheckTest, IndicesAreThoseThatTheTableHas) {
  for (const int64_t rows : {1, 2, 300}) {
    Graph graph;
    const ValueId ids = graph.AddInput("ids", Type::Tensor(DataType::kI64, {1, 20}));
    const ValueId table = graph.AddConstant("table", Values({rows, 8}, 1));
    graph.outputs = {Node1(graph, "Gather", {table, ids})};
    Infer(graph);
    const absl::StatusOr<Compiled> compiled = CompileGraph(graph, Checked());
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_EQ(compiled->report.check->extent, Extent::kWhole) << compiled->report.check->reason;
  }
}

// A sample that the model cannot take is not a mismatch.
TEST(CheckTest, SamplesThatAreRefusedAreSaid) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {20}));
  const ValueId positive = Node1(graph, "Exp", {x});
  const ValueId beyond = Node1(
      graph, "Add",
      {positive, graph.AddConstant("five", Tensor::Of(DataType::kF32, {}, std::vector<float>{5}))});
  const ValueId ids =
      Node1(graph, "Cast", {beyond}, {{"to", int64_t{7}}});  // i64, no row of the table
  const ValueId table = graph.AddConstant("table", Values({2, 8}, 1));
  graph.outputs = {Node1(graph, "Gather", {table, ids})};
  Infer(graph);
  const absl::StatusOr<Compiled> compiled = CompileGraph(graph, Checked());
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(compiled->report.check->extent, Extent::kNone);
  EXPECT_NE(compiled->report.check->reason.find("refused"), std::string::npos);
}

// Changes of the model by passes are seen, too.
TEST(CheckTest, APassThatDropsAPadIsFound) {
  const auto model = [](bool pads) {
    Graph graph;
    ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 4, 8}));
    if (pads)
      x = Node1(graph, "Pad", {x, graph.AddConstant("by", Tensor::I64({0, 1, 0, 0, -1, 0}))});
    graph.outputs = {Node1(graph, "Sigmoid", {x})};
    graph.value(graph.outputs[0]).name = "y";
    Infer(graph);
    return graph;
  };
  const std::string text = MismatchOf(model(false), model(true), Checked());
  EXPECT_NE(text.find("value `y`"), text.npos) << text;
}

// Quantized on both sides, twice.
Graph Quantized(int8_t zero, int64_t weights_seed = 1) {
  Graph graph;
  const auto scale = [&](float value) {
    return graph.AddConstant("scale", Tensor::ScalarF32(value));
  };
  const auto zero_point = [&](int8_t value) {
    return graph.AddConstant("zero", Tensor::Of(DataType::kI8, {}, std::vector<int8_t>{value}));
  };
  ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 16, 10, 10}));
  for (const int64_t layer : {0, 1}) {
    x = Node1(graph, "QuantizeLinear",
              {x, scale(0.05F), zero_point(layer == 1 ? zero : int8_t{3})});
    x = Node1(graph, "DequantizeLinear",
              {x, scale(0.05F), zero_point(layer == 1 ? zero : int8_t{3})});
    std::vector<int8_t> bytes(16 * 16 * 9);
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<int8_t>((i * 37 + static_cast<size_t>(weights_seed)) % 200 - 100);
    const ValueId w = graph.AddConstant("w", Tensor::Of(DataType::kI8, {16, 16, 3, 3}, bytes));
    const ValueId real = Node1(graph, "DequantizeLinear", {w, scale(0.01F), zero_point(0)});
    x = Node1(graph, "Conv", {x, real}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}});
    x = Node1(graph, "Relu", {x});
  }
  x = Node1(graph, "QuantizeLinear", {x, scale(0.5F), zero_point(-20)});
  graph.outputs = {Node1(graph, "DequantizeLinear", {x, scale(0.5F), zero_point(-20)})};
  Infer(graph);
  return graph;
}

TEST(CheckTest, IntegersAreThoseOfTheModel) {
  for (const int level : {0, 3}) {
    for (const std::string& target : {std::string("host"), std::string("x86-64")}) {
      CompileOptions options = Checked();
      options.opt_level = level;
      options.target = target;
      const absl::StatusOr<Compiled> compiled = CompileGraph(Quantized(-7), options);
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      const CheckReport& check = compiled->report.check.value();
      if (check.extent == Extent::kNone) continue;  // another kind of machine
      EXPECT_EQ(check.extent, Extent::kWhole) << check.reason;
    }
  }
  const Graph source = Quantized(-7, 2);
  const std::string text = MismatchOf(Quantized(-7), source, Checked());
  EXPECT_NE(text.find("before it is rounded"), text.npos) << text;
}

TEST(CheckTest, HalvesHaveTheirTolerance) {
  for (const DataType stored : {DataType::kF16, DataType::kBF16}) {
    passes::PassOptions how;
    how.store_as = stored;
    const Graph source = Network();
    const absl::StatusOr<Graph> made = passes::RunPipeline(Network(), how, {});
    ASSERT_TRUE(made.ok()) << made.status();
    CompileOptions options = Checked();
    options.passes = how;
    options.check_source = &source;
    const absl::StatusOr<Compiled> compiled = CompileGraph(*made, options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_EQ(compiled->report.check->extent, Extent::kWhole);
    const Graph other = Network(7);
    const std::string text = MismatchOf(*made, other, options);
    EXPECT_NE(text.find("value `" + OutputOf(other, "MatMul", 0) + "`"), text.npos) << text;
  }
}

TEST(CheckTest, RoundingOfHalvesDecidesHowManyElementsDiffer) {
  absl::StatusOr<Graph> source = ParseGraph(R"(quench.ir 1
module "counts" canonical {
  input %x: f32[192]
  const %c: f32[] = [1.6007578]
  %once, %first, %which, %counts = Unique(%x) {sorted = 1}
  %more = Add(%once, %c)
  %again, %first_again, %which_again, %counts_again = Unique(%more) {sorted = 1}
  output %first_again, %which_again
}
)");
  ASSERT_TRUE(source.ok()) << source.status();
  Infer(*source);
  passes::PassOptions how;
  how.store_as = DataType::kBF16;
  const absl::StatusOr<Graph> made = passes::RunPipeline(*source, how, {});
  ASSERT_TRUE(made.ok()) << made.status();
  CompileOptions options = Checked();
  options.passes = how;
  options.check_source = &*source;
  options.opt_level = 0;
  const absl::StatusOr<Compiled> compiled = CompileGraph(*made, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_GT(compiled->report.check->undecided, 0);
}

// Results near poles, where a rounding of what is read changes the sign, and as many as there are.
TEST(CheckTest, HalvesMayFallOnTheOtherSideOfAPole) {
  absl::StatusOr<Graph> source = ParseGraph(R"(quench.ir 1
module "poles" canonical {
  input %x: f32[4, 16]
  const %many: f32[] = [1000.0]
  %far = Mul(%x, %many)
  %y = Tan(%far)
  output %y
}
)");
  ASSERT_TRUE(source.ok()) << source.status();
  Infer(*source);
  passes::PassOptions how;
  how.store_as = DataType::kBF16;
  const absl::StatusOr<Graph> made = passes::RunPipeline(*source, how, {});
  ASSERT_TRUE(made.ok()) << made.status();
  CompileOptions options = Checked();
  options.passes = how;
  options.check_source = &*source;
  const absl::StatusOr<Compiled> compiled = CompileGraph(*made, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
}

TEST(CompareTest, ElementsMayBeOffByWhatRoundingMovesThem) {
  const auto of = [](std::vector<float> values) { return Tensor::Of(DataType::kF32, {3}, values); };
  const Tensor expected = of({1, 2, 4}), actual = of({1, -2, 4.5F});
  EXPECT_EQ(Compare(actual, expected, 1e-3, 0).wrong, 2);
  const std::vector<Tensor> rounded = {of({1, 2, 4.01F}), of({1, 0.5F, 4})};
  const Comparison compared = Compare(actual, expected, 1e-3, 0, rounded);
  EXPECT_EQ(compared.wrong, 1);
  EXPECT_EQ(compared.worst, 2);
}

TEST(CompareTest, WhatIsNoNumberIsWorseThanANumberWhereNoneIsExpected) {
  const Tensor numbers = Tensor::Of(DataType::kF32, {3}, std::vector<float>{1, 2, 4}),
               none = Tensor::Of(DataType::kF32, {3}, std::vector<float>{1, 2, NAN});
  EXPECT_EQ(Compare(numbers, none, 1e-3, 0).wrong, 1);
  EXPECT_EQ(Compare(numbers, none, 1e-3, 0).error, 1);
  EXPECT_EQ(Compare(none, numbers, 1e-3, 0).error, INFINITY);
}

TEST(PartTest, ReachesToWhatIsGiven) {
  const Graph graph = Network();
  const ValueId pooled = *graph.FindValue(OutputOf(graph, "MaxPool", 0));
  const ValueId end = *graph.FindValue(OutputOf(graph, "Relu", 1));
  const GraphPart part = PartBetween(graph, {pooled}, {end});
  EXPECT_EQ(part.nodes.size(), 2U);
  EXPECT_EQ(part.inputs, (std::vector<std::string>{graph.value(pooled).name}));
  const GraphPart both = PartBetween(graph, {pooled}, {end, pooled});
  EXPECT_EQ(both.graph.outputs.size(), 2U);
  EXPECT_EQ(both.inputs.size(), 2U);  // the pool's operand, and its result for others
}

}  // namespace
}  // namespace quench::codegen::check_test
