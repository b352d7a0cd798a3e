// Switches and the search on them.
#include "services/quantizer/select.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/verify.h"
#include "common/ops/evaluate.h"
#include "services/codegen/codegen.h"
#include "services/quantizer/quantize.h"
#include "services/quantizer/selection_file.h"
#include "services/quantizer/switches.h"
#include "tests/support/graphs.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/quantizer/support.h"

namespace quench::quantizer::select_test {
namespace {

using ::quench::testing::HasSubstr;
using ::quench::testing::RandomInputsFor;
using ::quench::testing::RandomTensor;

Graph Switched(const Graph& graph, const Statistics* statistics, QuantizeOptions options = {}) {
  options.switches = true;
  const auto result = Quantize(graph, statistics, options);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? result->graph : graph;
}

std::vector<Tensor> Outputs(const Graph& graph, std::vector<Tensor> inputs,
                            const std::vector<uint8_t>& on = {}) {
  if (!on.empty()) {
    Tensor switches = Tensor::Zeros(DataType::kBool, {static_cast<int64_t>(on.size())});
    for (size_t k = 0; k < on.size(); ++k) switches.mutable_bytes()[k] = std::byte{on[k]};
    inputs.push_back(switches);
  }
  const auto outputs = ops::Evaluate(graph, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? *outputs : std::vector<Tensor>();
}

void ExpectEqual(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].dims(), b[i].dims());
    EXPECT_EQ(a[i].as<float>().size(), b[i].as<float>().size());
    EXPECT_TRUE(
        std::equal(a[i].as<float>().begin(), a[i].as<float>().end(), b[i].as<float>().begin()));
  }
}

class SwitchesTest : public ::testing::TestWithParam<RangeSource> {};

// Each of the eight settings computes, bit for bit, what a module does in which the others are kept
// in float; ranges of both are the same where nothing shares a scale.
TEST_P(SwitchesTest, EverySettingIsAModule) {
  const Graph graph = ResidualNetwork();
  const Statistics statistics = Seen(graph);
  QuantizeOptions options;
  options.source = GetParam();
  const Graph switched = Switched(graph, &statistics, options);
  EXPECT_TRUE(VerifyGraph(switched).ok()) << VerifyGraph(switched);
  const std::vector<std::string> layers = SwitchedLayers(switched);
  ASSERT_EQ(layers, (std::vector<std::string>{"c1", "c2", "fc"}));
  EXPECT_EQ(switched.value(switched.outputs[0]).name, "fc");
  const std::vector<Tensor> inputs = RandomInputsFor(graph, 3);
  for (int setting = 0; setting < 8; ++setting) {
    QuantizeOptions kept = options;
    std::vector<uint8_t> on;
    for (size_t k = 0; k < layers.size(); ++k) {
      on.push_back(setting >> k & 1);
      if (on.back() == 0) kept.kept[layers[k]] = "a test";
    }
    SCOPED_TRACE(setting);
    const auto module = Quantize(graph, &statistics, kept);
    ASSERT_TRUE(module.ok()) << module.status();
    ExpectEqual(Outputs(switched, inputs, on), Outputs(module->graph, inputs));
    for (size_t k = 0; k < layers.size(); ++k) {
      EXPECT_EQ(module->report.layers[k].quantized, on[k] != 0);
      EXPECT_EQ(module->report.layers[k].reason, on[k] != 0 ? "" : "a test");
    }
  }
  ExpectEqual(Outputs(switched, inputs, {0, 0, 0}), Outputs(graph, inputs));
}

INSTANTIATE_TEST_SUITE_P(Sources, SwitchesTest,
                         ::testing::Values(RangeSource::kStatic, RangeSource::kDynamic),
                         [](const auto& test) {
                           return test.param == RangeSource::kStatic ? "Static" : "Dynamic";
                         });

class SelectTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Nothing comes out of channel 0 of c1, and what c2 would do with it makes its steps so large
    // that all its other weights are zero.
    SetFirst("b1", -100);
    SetFirst("w2", 150);
    const Statistics statistics = Seen(graph_);
    module_ = Switched(graph_, &statistics);
    library_ = folder_.path() / "trials.so";
    const auto compiled =
        codegen::Compile(module_, {}, library_, folder_.path() / "trials.h", StepContext());
    ASSERT_TRUE(compiled.ok()) << compiled.status();
  }
  void SetFirst(const std::string& name, float number) {
    Value& value = graph_.value(*graph_.FindValue(name));
    const Tensor& old = value.constant->tensor;
    std::vector<float> elements(old.as<float>().begin(), old.as<float>().end());
    elements[0] = number;
    value.constant = std::make_shared<const Constant>(
        Constant{Tensor::Of(DataType::kF32, old.dims(), elements), "", {}});
  }
  absl::StatusOr<Selection> Find(const SelectOptions& options, int64_t count = 20) const {
    std::vector<Tensor> samples;
    for (int64_t i = 0; i < count; ++i)
      samples.push_back(RandomTensor({1, 3, 8, 8}, static_cast<uint64_t>(100 + i)));
    return Select(module_, library_, Given(samples), options);
  }

  Graph graph_ = ResidualNetwork(), module_;
  const TempDir folder_ = *TempDir::Create();
  std::filesystem::path library_;
};

TEST_F(SelectTest, KeepsTheSensitiveLayer) {
  SelectOptions options;
  options.budget.min_sqnr_db = 25;
  options.sensitivity_samples = 5;
  const auto selection = Find(options);
  ASSERT_TRUE(selection.ok()) << selection.status();
  ASSERT_EQ(selection->layers.size(), 3);
  EXPECT_EQ(selection->layers[0].node, "c2");
  EXPECT_TRUE(selection->layers[0].kept);
  EXPECT_FALSE(selection->layers[1].kept);
  EXPECT_FALSE(selection->layers[2].kept);
  EXPECT_LT(selection->layers[0].alone.sqnr_db, selection->layers[1].alone.sqnr_db);
  EXPECT_EQ(selection->trials.front().kept, 0);
  EXPECT_LT(selection->trials.front().cost.sqnr_db, 25);
  EXPECT_GE(selection->cost.sqnr_db, 25);
  EXPECT_EQ(selection->samples, 20);
  EXPECT_EQ(selection->sensitivity_samples, 5);
  EXPECT_THAT(ToTable(*selection), HasSubstr("c2"));

  QuantizeOptions kept;
  ASSERT_TRUE(KeepSelected(*selection, graph_, kept).ok());
  const Statistics statistics = Seen(graph_);
  const auto module = Quantize(graph_, &statistics, kept);
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_FALSE(module->report.layers[1].quantized);
  EXPECT_THAT(module->report.layers[1].reason, HasSubstr("kept by the budget"));
}

TEST_F(SelectTest, KeepsNothingWhereTheBudgetHolds) {
  SelectOptions options;
  options.budget.min_sqnr_db = -20;
  const auto selection = Find(options);
  ASSERT_TRUE(selection.ok()) << selection.status();
  EXPECT_EQ(selection->trials.size(), 1);
  EXPECT_TRUE(selection->layers.empty());
}

// Float is right in every row, or in none.
TEST_F(SelectTest, LabelsCountWhatIsLost) {
  SelectOptions options;
  options.budget.max_drop = 0;
  const auto agreeing = Find(options);
  ASSERT_TRUE(agreeing.ok()) << agreeing.status();
  EXPECT_EQ(*agreeing->cost.drop, 0);
  EXPECT_GT(*agreeing->trials.front().cost.drop, 0);
  options.labels.assign(20, 17);  // no such class: nothing to lose
  const auto wrong = Find(options);
  ASSERT_TRUE(wrong.ok()) << wrong.status();
  EXPECT_EQ(wrong->trials.size(), 1);
  options.labels.pop_back();
  EXPECT_THAT(MessageOf(Find(options).status()),
              HasSubstr("19 labels, and the first output has more rows"));
}

TEST_F(SelectTest, TooManyLabelsAreCounted) {
  SelectOptions options;
  options.budget.max_drop = 0.5;
  options.labels.assign(21, 0);
  EXPECT_THAT(MessageOf(Find(options).status()), HasSubstr("21 labels for 20 rows"));
}

// A layer that the module does not have is not passed over.
TEST_F(SelectTest, KeptLayersMustBeThere) {
  const Statistics statistics = Seen(graph_);
  QuantizeOptions options;
  options.kept = {{"c1", "a test"}, {"c9", "a test"}};
  const absl::Status status = Quantize(graph_, &statistics, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(status), HasSubstr("`c9` is to stay in float, and 0 products"));
}

// If there are only integers, there is no noise to measure.
TEST_F(SelectTest, OutputsMustTellWhatTheBudgetAsks) {
  Graph graph = ResidualNetwork();
  graph.outputs = {
      testing::Add(graph, "ArgMax", {graph.outputs[0]}, {{"axis", int64_t{1}}}, "best")};
  const Statistics statistics = Seen(graph);
  const Graph module = Switched(graph, &statistics);
  const auto library = folder_.path() / "classes.so";
  ASSERT_TRUE(
      codegen::Compile(module, {}, library, folder_.path() / "classes.h", StepContext()).ok());
  SelectOptions options;
  options.budget = {0.1, 30};
  const std::string text =
      MessageOf(Select(module, library, Given({RandomTensor({1, 3, 8, 8}, 1)}), options).status());
  EXPECT_THAT(text, HasSubstr("no axis of classes"));
  EXPECT_THAT(text, HasSubstr("no output is a float"));
}

TEST_F(SelectTest, ImpossibleBudgetsFail) {
  SelectOptions options;
  options.budget.min_sqnr_db = 200;
  const absl::Status status = Find(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(status), HasSubstr("no layer of 3 can be in integers"));
}

// Where the caller has another use for it, the float module is a result like others.
TEST_F(SelectTest, AllLayersMayBeKept) {
  SelectOptions options;
  options.budget.min_sqnr_db = 200;
  options.may_keep_all = true;
  const auto selection = Find(options);
  ASSERT_TRUE(selection.ok()) << selection.status();
  for (const LayerSensitivity& layer : selection->layers) EXPECT_TRUE(layer.kept) << layer.node;
  EXPECT_EQ(selection->layers.size(), 3);
  EXPECT_TRUE(std::isinf(selection->cost.sqnr_db));
}

TEST_F(SelectTest, SensitivityIsMeasuredWhereItIsAskedFor) {
  SelectOptions options;
  options.budget.min_sqnr_db = -20;
  options.always_sensitivity = true;
  const auto selection = Find(options);
  ASSERT_TRUE(selection.ok()) << selection.status();
  EXPECT_EQ(selection->trials.size(), 1);
  ASSERT_EQ(selection->layers.size(), 3);
  EXPECT_EQ(selection->layers[0].node, "c2");
  EXPECT_FALSE(selection->layers[0].kept);
}

// One weight, of an input that is always 0, is so large that all the others are 0 in integers.
TEST_F(SelectTest, NothingButNoiseIsAnError) {
  Tensor weights = RandomTensor({64, 32}, 1), sample = RandomTensor({1, 64}, 2);
  reinterpret_cast<float*>(weights.mutable_bytes())[0] = 1e4F;
  reinterpret_cast<float*>(sample.mutable_bytes())[0] = 0;
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 64}));
  graph.outputs = {
      testing::Add(graph, "MatMul", {x, graph.AddConstant("w", weights)}, {}, "product")};
  const Statistics statistics = Seen(graph);
  const Graph module = Switched(graph, &statistics);
  const auto library = folder_.path() / "noise.so";
  ASSERT_TRUE(
      codegen::Compile(module, {}, library, folder_.path() / "noise.h", StepContext()).ok());
  SelectOptions options;
  options.budget.min_sqnr_db = -100;
  const absl::Status status = Select(module, library, Given({sample}), options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(status), HasSubstr("mostly noise: 0.00 dB over 1 samples"));
  EXPECT_THAT(MessageOf(status), HasSubstr("the worst layer is `product`"));
}

TEST_F(SelectTest, BadOptionsAreToldTogether) {
  SelectOptions options;
  options.sensitivity_samples = 0;
  const std::string text = MessageOf(Find(options).status());
  EXPECT_THAT(text, HasSubstr("no budget"));
  EXPECT_THAT(text, HasSubstr("0 samples"));
  options = {};
  options.budget.max_drop = 1.5;
  options.budget.min_sqnr_db = NAN;
  const std::string other = MessageOf(Find(options).status());
  EXPECT_THAT(other, HasSubstr("1.5"));
  EXPECT_THAT(other, HasSubstr("nan"));
  options = {};
  options.budget.max_drop = 0.1;
  EXPECT_THAT(MessageOf(Find(options, 0).status()), HasSubstr("no samples"));
  EXPECT_THAT(MessageOf(Select(graph_, library_, Given({}), options, StepContext()).status()),
              HasSubstr("no switches"));
}

TEST_F(SelectTest, SelectionsAreOfOneModule) {
  SelectOptions options;
  options.budget.min_sqnr_db = 25;
  const auto selection = Find(options);
  ASSERT_TRUE(selection.ok()) << selection.status();
  const auto path = folder_.path() / "selection";
  ASSERT_TRUE(WriteFileAtomically(path, SelectionBytes(*selection)).ok());
  const auto read = ReadSelection(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(SelectionBytes(*read), SelectionBytes(*selection));
  QuantizeOptions kept;
  EXPECT_THAT(MessageOf(KeepSelected(*read, ResidualNetwork(), kept)), HasSubstr("another model"));
  ASSERT_TRUE(WriteFileAtomically(path, "QUENCHSELECTION1\n\xff").ok());
  EXPECT_THAT(MessageOf(ReadSelection(path).status()), HasSubstr("no selection"));
}

}  // namespace
}  // namespace quench::quantizer::select_test
