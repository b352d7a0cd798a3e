#include "services/analyser/verify.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/passes/pass.h"
#include "services/analyser/verify_rewrites.h"
#include "services/codegen/codegen.h"
#include "tests/support/graphs.h"

namespace quench::analyser::verify_test {
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

absl::Status Build(const Graph& graph, int opt_level, const std::filesystem::path& library,
                   const StepContext& context = {}) {
  codegen::CompileOptions options;
  options.opt_level = opt_level;
  options.taps = codegen::Taps::kRunningCode;
  std::filesystem::path header = library;
  header.replace_extension(".h");
  return codegen::Compile(graph, options, library, header, context).status();
}

absl::Status BuildTwin(const Graph& graph, const std::filesystem::path& library,
                       const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const Graph passed, passes::RunPipeline(graph, {}, context));
  return Build(passed, 3, library, context);
}

absl::Status BuildReference(const Graph& graph, const std::filesystem::path& library,
                            const StepContext& context) {
  return Build(graph, 0, library, context);
}

class VerifyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = TempDir::Create();
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_ = std::make_unique<TempDir>(*std::move(dir));
    library_ = dir_->path() / "model.so";
    ASSERT_TRUE(Build(Network(2), 3, library_).ok());
    options_.build_twin = BuildTwin;
    options_.build_reference = BuildReference;
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
    EXPECT_TRUE(report->passed) << oracle << "\n" << ToTable(*report, 3);
    EXPECT_EQ(report->kernels.oracle, oracle);
    EXPECT_GE(report->kernels.layers.values.size(),
              2u);  // values inside a fused group are not tapped
    EXPECT_EQ(report->kernels.layers.first, "");
  }
}

// Types of tokens: a table of two rows, which only 0 and 1 index.
TEST_F(VerifyTest, InputsMayBeIndicesOfSmallTables) {
  Graph graph;
  graph.name = "types";
  const ValueId ids = graph.AddInput("ids", Type::Tensor(DataType::kI64, {64}));
  graph.outputs = {
      Add(graph, "Gather", {graph.AddConstant("table", RandomTensor({2, 8}, 1)), ids}, {}, "look")};
  ASSERT_TRUE(Build(graph, 3, library_).ok());
  for (const char* oracle : {"interpreter", "reference"}) {
    options_.oracle = oracle;
    const auto report = Verify(graph, library_, options_);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->passed) << oracle << "\n" << ToTable(*report, 3);
  }
}

// One row of a table is wrong: the indices are from all of it.
TEST_F(VerifyTest, IndicesReachTheWholeTable) {
  const auto graph = [](float last) {
    Graph looked_up;
    const ValueId ids = looked_up.AddInput("ids", Type::Tensor(DataType::kI64, {32}));
    Tensor table = RandomTensor({64, 2}, 1);
    reinterpret_cast<float*>(table.mutable_bytes())[127] = last;
    looked_up.outputs = {
        Add(looked_up, "Gather", {looked_up.AddConstant("table", table), ids}, {}, "look")};
    return looked_up;
  };
  ASSERT_TRUE(Build(graph(2), 3, library_).ok());
  const auto report = Verify(graph(1), library_, options_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->passed);
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

// The oracle applies every rewrite of a quantized model that compilation applies: there is no
// rounding that only one of them has.
TEST_F(VerifyTest, IntegersAreTheSameToTheLastBit) {
  const auto passed = passes::RunPipeline(QuantizedTransposed(), {}, {});
  ASSERT_TRUE(passed.ok()) << passed.status();
  ASSERT_TRUE(Build(*passed, 3, library_).ok());
  options_.tolerance = 0;
  for (const char* oracle : {"interpreter", "reference"}) {
    options_.oracle = oracle;
    const auto report = Verify(QuantizedTransposed(), library_, options_);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->passed) << oracle << "\n" << ToTable(*report, 3);
  }
}

// x -> bytes -> convolution -> bytes -> convolution -> bytes -> y, with a step of `scale` between the
// two.
Graph TwoQuantizedLayers(float scale, int weights = 37) {
  Graph graph;
  const ValueId zero = graph.AddConstant("zero", Tensor::Zeros(DataType::kI8, {}));
  const auto quantized = [&](ValueId value, float step, const std::string& name) {
    const ValueId s = graph.AddConstant("step", Tensor::ScalarF32(step));
    const ValueId q = Add(graph, "QuantizeLinear", {value, s, zero}, {}, name);
    return Add(graph, "DequantizeLinear", {q, s, zero}, {}, name + ".real");
  };
  const auto layer = [&](ValueId value, int of_weights, const std::string& name) {
    Tensor kernel = Tensor::Zeros(DataType::kI8, {4, 4, 3, 3});
    for (int64_t i = 0; i < kernel.size(); ++i)
      kernel.mutable_bytes()[i] = static_cast<std::byte>((i * of_weights % 251) - 125);
    const ValueId step = graph.AddConstant("w.step", Tensor::ScalarF32(0.0061F));
    const ValueId w = Add(graph, "DequantizeLinear", {graph.AddConstant("w", kernel), step, zero});
    return Add(graph, "Conv", {value, w}, {}, name);
  };
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 4, 8, 8}));
  ValueId y = quantized(x, 0.031F, "q.x");
  y = quantized(layer(y, 37, "first"), scale, "q.middle");
  y = quantized(layer(y, weights, "second"), 0.21F, "q.last");
  graph.outputs = {Add(graph, "Relu", {y}, {}, "y")};
  return graph;
}

class RewritesTest : public VerifyTest {
 protected:
  // The model's rewrites, by a library of `rewritten`.
  RewritesReport Check(const Graph& model, const Graph& rewritten) {
    EXPECT_TRUE(Build(rewritten, 3, library_).ok());
    auto twin = *Artifact::Open(library_);
    const Graph passed = *passes::RunCodegenPasses(rewritten, {}, {});
    auto check = RewriteCheck::Create(model, passed, options_, twin.get());
    EXPECT_TRUE(check.ok()) << check.status();
    const std::vector<Tensor> inputs = *RandomInputs(twin->inputs(), 1);
    const absl::Status added = check->Add(inputs, *twin->Run(inputs), {});
    EXPECT_TRUE(added.ok()) << added;
    return check->Finish();
  }
};

TEST_F(RewritesTest, GroupsComputeWhatTheModelSays) {
  const RewritesReport report = Check(TwoQuantizedLayers(0.2F), TwoQuantizedLayers(0.2F));
  EXPECT_TRUE(report.checked);
  EXPECT_TRUE(report.passed);
  EXPECT_EQ(report.groups, 3);
  EXPECT_EQ(report.elements, 4 * (64 + 36 + 16));
  EXPECT_GT(report.outputs.at(0).sqnr_db, 40);
}

// A pass that gets a scale wrong by 1 %: kernels compute the wrong graph to the last bit.
TEST_F(RewritesTest, AWrongRewriteIsCaughtWhereKernelsAreRight) {
  const Graph wrong = TwoQuantizedLayers(0.202F);
  const RewritesReport report = Check(TwoQuantizedLayers(0.2F), wrong);
  EXPECT_FALSE(report.passed);
  // The middle is rounded in other steps; what is read from there is in other steps than the model's.
  ASSERT_FALSE(report.failures.empty());
  const GroupFailure& failure = report.failures[0];
  EXPECT_EQ(failure.node, "q.middle");
  EXPECT_GT(failure.wrong, 0);
  EXPECT_EQ(failure.elements, 4 * 36);
  EXPECT_GT(std::abs(static_cast<double>(failure.actual) - failure.expected), 0.5);
  const auto kernels = Verify(wrong, library_, options_);
  ASSERT_TRUE(kernels.ok()) << kernels.status();
  EXPECT_TRUE(kernels->kernels.passed);
}

TEST_F(RewritesTest, OfFloatsOutputsAreHeldAgainstTheModel) {
  EXPECT_TRUE(Check(Network(2), Network(2)).passed);
  const RewritesReport report = Check(Network(2), Network(3));
  EXPECT_FALSE(report.quantized);
  EXPECT_FALSE(report.passed);
  EXPECT_LT(report.outputs.at(0).sqnr_db, 20);
}

TEST_F(RewritesTest, WithoutATwinGroupsAreNotChecked) {
  const Graph graph = TwoQuantizedLayers(0.2F);
  ASSERT_TRUE(BuildTwin(graph, library_, {}).ok());
  options_.build_twin = nullptr;
  const auto report = Verify(graph, library_, options_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->rewrites.checked);
  EXPECT_FALSE(report->rewrites.passed);
  EXPECT_TRUE(report->passed);
  EXPECT_NE(ToTable(*report, 3).find("not checked: "), std::string::npos);
}

// The interpreter has no say where level-0 code stands in for it, and the text says so.
TEST_F(RewritesTest, TheTextNamesBothOracles) {
  const Graph graph = TwoQuantizedLayers(0.2F);
  ASSERT_TRUE(BuildTwin(graph, library_, {}).ok());
  options_.oracle = "reference";
  const auto report = Verify(graph, library_, options_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->passed);
  const std::string text = ToTable(*report, 3);
  EXPECT_NE(text.find("level 0, in place of the interpreter: verified"), std::string::npos) << text;
  EXPECT_NE(text.find("Q/DQ form by the interpreter: verified"), std::string::npos) << text;
}

// Layers of an integer library are its integers; the first one that is wrong is found.
TEST_F(VerifyTest, LayersAreThoseOfTheCodeThatRuns) {
  options_.per_layer = true;
  ASSERT_TRUE(BuildTwin(TwoQuantizedLayers(0.2F, 41), library_, {}).ok());
  options_.build_twin = [](const Graph&, const std::filesystem::path& library,
                           const StepContext& context) {
    return BuildTwin(TwoQuantizedLayers(0.2F, 41), library, context);
  };
  const auto report = Verify(TwoQuantizedLayers(0.2F), library_, options_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->passed);
  EXPECT_FALSE(report->kernels.passed);
  const LayersReport& layers = report->kernels.layers;
  ASSERT_GE(layers.values.size(), 3u);
  EXPECT_EQ(layers.values[0].name, "q.x");
  EXPECT_EQ(layers.values[0].type, DataType::kI8);
  EXPECT_EQ(layers.values[0].tolerance, 0);
  EXPECT_TRUE(layers.values[1].passed());
  EXPECT_EQ(layers.values[1].name, "q.middle");
  EXPECT_EQ(layers.first, layers.values[2].name);
}

TEST_F(VerifyTest, NoLayerToCompareIsAFailure) {
  options_.per_layer = true;
  options_.build_twin = [](const Graph& graph, const std::filesystem::path& library,
                           const StepContext& context) {
    Graph renamed = graph;
    for (Value& value : renamed.values) value.name = "other." + value.name;
    return BuildTwin(renamed, library, context);
  };
  const auto report = Verify(Network(2), library_, options_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->kernels.layers.values.size(), 0u);
  EXPECT_GE(report->kernels.layers.without_counterpart.size(), 2u);
  EXPECT_FALSE(report->kernels.passed);
  EXPECT_FALSE(report->passed);
  EXPECT_NE(ToTable(*report, 3).find("no layer could be compared"), std::string::npos);
}

// f16 inside: f32 at the end has come from it.
Graph HalfNetwork() {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {4, 64}));
  const auto half = [&](ValueId value) {
    return Add(graph, "Cast", {value}, {{"to", static_cast<int64_t>(DataType::kF16)}});
  };
  ValueId y = half(x);
  for (int i = 0; i < 4; ++i) {
    Tensor weights = RandomTensor({64, 64}, static_cast<uint64_t>(i));
    // As networks have them: a layer hands on the errors of the one before, and does not multiply them.
    auto* values = reinterpret_cast<float*>(weights.mutable_bytes());
    std::for_each(values, values + weights.size(), [](float& value) { value /= 4; });
    y = Add(graph, "MatMul", {y, half(graph.AddConstant("w", std::move(weights)))});
    y = Add(graph, "Tanh", {y});
  }
  graph.outputs = {Add(graph, "Cast", {y}, {{"to", static_cast<int64_t>(DataType::kF32)}}, "y")};
  return graph;
}

TEST_F(VerifyTest, ToleranceFollowsTheCoarsestTypeOnTheWay) {
  const Graph graph = HalfNetwork();
  ASSERT_TRUE(BuildTwin(graph, library_, {}).ok());
  const auto report = Verify(graph, library_, options_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->passed) << ToTable(*report, 3);
  const ValueError& output = report->kernels.outputs.at(0);
  EXPECT_EQ(output.type, DataType::kF16);
  EXPECT_DOUBLE_EQ(output.tolerance, 16.0 / 1024);
  EXPECT_NE(ToTable(*report, 3).find("0.0156 (f16)"), std::string::npos);
  options_.tolerance = 1e-9;
  const auto strict = Verify(graph, library_, options_);
  ASSERT_TRUE(strict.ok()) << strict.status();
  EXPECT_DOUBLE_EQ(strict->kernels.outputs.at(0).tolerance, 1e-9);
}

// h = x w, y = h / sqrt(mean(h h) + 1e-5): by f32, or with all of it stored as f16, as a compiler does
// that takes the squares for values like any other.
Graph NormByHand(bool halves) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {2, 16}));
  const auto stored = [&](ValueId value) {
    if (!halves) return value;
    return Add(graph, "Cast", {value}, {{"to", static_cast<int64_t>(DataType::kF16)}}, "half");
  };
  const ValueId w = stored(graph.AddConstant("w", RandomTensor({16, 16}, 1)));
  const ValueId h = Add(graph, "MatMul", {stored(x), w}, {}, "h");
  const ValueId squares = Add(graph, "Mul", {h, h}, {}, "squares");
  const ValueId mean =
      Add(graph, "ReduceMean", {squares, graph.AddConstant("axis", Tensor::I64({-1}))}, {}, "mean");
  const ValueId epsilon = stored(graph.AddConstant("epsilon", Tensor::ScalarF32(1e-3F)));
  const ValueId root =
      Add(graph, "Sqrt", {Add(graph, "Add", {mean, epsilon}, {}, "sum")}, {}, "root");
  ValueId y = Add(graph, "Div", {h, root}, {}, halves ? "narrow" : "y");
  if (halves) y = Add(graph, "Cast", {y}, {{"to", static_cast<int64_t>(DataType::kF32)}}, "y");
  graph.outputs = {y};
  return graph;
}

TEST_F(VerifyTest, HalvesThatOverflowAreFound) {
  options_.passes.store_as = DataType::kF16;
  options_.build_twin = [](const Graph&, const std::filesystem::path& library,
                           const StepContext& context) {
    return Build(NormByHand(true), 3, library, context);
  };
  ASSERT_TRUE(Build(NormByHand(true), 3, library_).ok());
  const auto report = Verify(NormByHand(false), library_, options_);
  ASSERT_TRUE(report.ok()) << report.status();
  const std::string text = ToTable(*report, 3);
  EXPECT_TRUE(report->kernels.passed) << text;  // values near 1 have squares near 1
  EXPECT_TRUE(report->rewrites.passed) << text;
  EXPECT_FALSE(report->passed) << text;
  ASSERT_EQ(report->magnitudes.size(), 1U);
  const MagnitudeReport& magnitudes = report->magnitudes[0];
  EXPECT_TRUE(magnitudes.checked);
  EXPECT_FALSE(magnitudes.passed);
  EXPECT_EQ(magnitudes.value, "h");
  EXPECT_GT(magnitudes.exponent, 8);
  EXPECT_GE(magnitudes.magnitude, 6550.4);
  EXPECT_LE(magnitudes.magnitude, 65504 / 2);
  EXPECT_NE(text.find("magnitudes  f16: inputs times 2^"), std::string::npos) << text;
  EXPECT_NE(ToJson(*report, 3).find("\"inputs_times\""), std::string::npos);

  const Graph right = *passes::RunPipeline(NormByHand(false), options_.passes, {});
  ASSERT_TRUE(Build(right, 3, library_).ok());
  const auto verified = Verify(NormByHand(false), library_, options_);
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_TRUE(verified->passed) << ToTable(*verified, 3);
  EXPECT_TRUE(verified->magnitudes.at(0).passed);
}

// Inputs as wide as samples were: it overflows, or it does not.
TEST_F(VerifyTest, RangesSayHowWideInputsAre) {
  options_.passes.store_as = DataType::kF16;
  options_.build_twin = nullptr;
  ASSERT_TRUE(Build(NormByHand(true), 3, library_).ok());
  for (const double width : {4.0, 4000.0}) {
    options_.ranges = {{"x", {-width, width}}, {"h", {0, 1}}};
    const auto report = Verify(NormByHand(false), library_, options_);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->passed, width < 10) << ToTable(*report, 3);
    EXPECT_TRUE(report->magnitudes.at(0).given);
    EXPECT_EQ(report->magnitudes.at(0).exponent, 0);
  }
  options_.ranges = {{"other", {0, 1}}};
  EXPECT_FALSE(Verify(NormByHand(false), library_, options_).ok());
}

// e^x is infinite in f32 from x = 89 on: inputs stop below that.
TEST_F(VerifyTest, TheModelStaysFinite) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {64}));
  const ValueId y = Add(graph, "Neg", {x}, {}, "y");
  graph.outputs = {Add(graph, "Exp", {y}, {}, "z")};
  options_.passes.store_as = DataType::kF16;
  ASSERT_TRUE(Build(*passes::RunPipeline(graph, options_.passes, {}), 3, library_).ok());
  const auto report = Verify(graph, library_, options_);
  ASSERT_TRUE(report.ok()) << report.status();
  for (const MagnitudeReport& each : report->magnitudes) {
    EXPECT_TRUE(each.checked);
    EXPECT_GT(each.magnitude, 10);
    EXPECT_LT(each.magnitude, 2 * 89);
  }
  EXPECT_TRUE(report->passed) << ToTable(*report, 3);
}

TEST_F(VerifyTest, IntegersAreReachedByTheirScales) {
  // A thousand times the steps: the inputs of the first samples are all 0 there.
  Graph graph = TwoQuantizedLayers(0.2F);
  for (Value& value : graph.values) {
    if (!value.name.starts_with("step")) continue;
    const auto step = static_cast<float>(1000 * value.constant->tensor.FloatAt(0));
    value.constant = std::make_shared<const Constant>(Constant{Tensor::ScalarF32(step), "", {}});
  }
  ASSERT_TRUE(BuildTwin(graph, library_, {}).ok());
  const auto report = Verify(graph, library_, options_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->passed) << ToTable(*report, 3);
  ASSERT_EQ(report->magnitudes.size(), 1U);
  const MagnitudeReport& magnitudes = report->magnitudes[0];
  EXPECT_EQ(magnitudes.type, DataType::kI8);
  EXPECT_GE(magnitudes.exponent, 10);
  EXPECT_GE(magnitudes.magnitude, 0.9 * magnitudes.limit);
  EXPECT_EQ(report->rewrites.elements, 4 * 4 * (64 + 36 + 16));  // the fourth sample is this one
}

TEST_F(VerifyTest, OtherWeightsAreAMismatch) {
  const auto report = Verify(Network(3), library_, options_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->passed);
  EXPECT_GT(report->kernels.outputs.at(0).error, 1e-4);
}

TEST_F(VerifyTest, AnotherInterfaceIsRefused) {
  Graph graph = Network(2);
  graph.value(graph.inputs[0]).name = "renamed";
  const auto report = Verify(graph, library_, options_);
  ASSERT_FALSE(report.ok());
  EXPECT_NE(MessageOf(report.status()).find("`renamed`"), std::string::npos);
}

}  // namespace
}  // namespace quench::analyser::verify_test
