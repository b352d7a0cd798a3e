// Adaptive rounding: what layers read, the search, and what comes of it.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/hash.h"
#include "common/ops/evaluate.h"
#include "services/codegen/codegen.h"
#include "services/quantizer/adapt_rounding.h"
#include "services/quantizer/calibrate.h"
#include "services/quantizer/flips.h"
#include "services/quantizer/layer_inputs.h"
#include "services/quantizer/quantize.h"
#include "services/quantizer/rounding_file.h"
#include "services/quantizer/weights.h"
#include "tests/support/graphs.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/quantizer/support.h"

namespace quench::quantizer::rounding_test {
namespace {

using ::quench::testing::Add;
using ::quench::testing::HasSubstr;
using ::quench::testing::RandomTensor;

struct LayerCase {
  std::string op;
  std::vector<int64_t> input, kernel;
  std::map<std::string, Attribute> attributes;
};

std::vector<LayerCase> LayerCases() {
  using Ints = std::vector<int64_t>;
  return {
      {"Conv", {2, 4, 5, 7}, {6, 4, 3, 2}, {}},
      {"Conv",
       {1, 4, 9, 8},
       {6, 2, 3, 3},
       {{"group", int64_t{2}}, {"strides", Ints{2, 1}}, {"pads", Ints{1, 2, 0, 1}}}},
      {"Conv", {1, 5, 9, 9}, {5, 1, 3, 3}, {{"group", int64_t{5}}, {"dilations", Ints{2, 3}}}},
      {"Conv", {2, 3, 8, 5}, {4, 3, 3, 2}, {{"auto_pad", "SAME_UPPER"}, {"strides", Ints{3, 2}}}},
      {"Conv", {1, 3, 8, 5}, {4, 3, 4, 2}, {{"auto_pad", "SAME_LOWER"}, {"strides", Ints{1, 2}}}},
      {"Conv", {1, 3, 6}, {2, 3, 2}, {{"auto_pad", "VALID"}}},
      {"Conv", {1, 2, 3, 4, 5}, {3, 2, 2, 2, 2}, {}},
      {"MatMul", {2, 3, 5}, {5, 4}, {}},
      {"MatMul", {5}, {5, 4}, {}},
      {"Gemm", {3, 5}, {5, 4}, {}},
      {"Gemm", {3, 5}, {4, 5}, {{"transB", int64_t{1}}}},
      {"Gemm", {5, 3}, {5, 4}, {{"transA", int64_t{1}}}},
  };
}

// The output of a layer, computed from its patches: as the operator has it.
std::vector<float> ByPatches(const Node& node, const Tensor& kernel, const Tensor& input) {
  const KernelRows rows = *RowsOf(node, kernel);
  const std::vector<float> patches = PatchesOf(node, kernel, input, 1 << 20, 0);
  const int64_t width = rows.groups * rows.length;
  const auto places = static_cast<int64_t>(patches.size()) / width;
  const int64_t outputs = rows.groups * rows.outputs;
  const int64_t batch = node.op == "Conv" ? input.dims()[0] : 1, area = places / batch;
  std::vector<float> results(static_cast<size_t>(places * outputs));
  for (int64_t place = 0; place < places; ++place) {
    for (int64_t o = 0; o < outputs; ++o) {
      double sum = 0;
      for (int64_t k = 0; k < rows.length; ++k) {
        const int64_t group = o / rows.outputs;
        sum += double{patches[static_cast<size_t>(place * width + group * rows.length + k)]} *
               kernel.FloatAt(rows.ElementOf(group, o % rows.outputs, k));
      }
      const int64_t image = place / area;
      const int64_t at =
          node.op == "Conv" ? (image * outputs + o) * area + place % area : place * outputs + o;
      results[static_cast<size_t>(at)] = static_cast<float>(sum);
    }
  }
  return results;
}

TEST(LayerInputs, RowsTimesPatchesAreTheLayer) {
  for (const LayerCase& each : LayerCases()) {
    Graph graph;
    const ValueId x =
        graph.AddInput("x", Type::Tensor(DataType::kF32, {each.input.begin(), each.input.end()}));
    const Tensor kernel = RandomTensor(each.kernel, 2);
    graph.outputs = {Add(graph, each.op, {x, graph.AddConstant("w", kernel)}, each.attributes)};
    const std::vector<Tensor> inputs = {RandomTensor(each.input, 1)};
    const auto outputs = ops::Evaluate(graph, inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const std::vector<float> found = ByPatches(graph.nodes[0], kernel, inputs[0]);
    const Tensor actual = Tensor::Of(DataType::kF32, (*outputs)[0].dims(), found);
    ASSERT_EQ(static_cast<int64_t>(found.size()), (*outputs)[0].size()) << each.op;
    EXPECT_LT(RelativeError(actual, (*outputs)[0]), 1e-5) << each.op;
  }
}

TEST(LayerInputs, FewerPlacesAreSpread) {
  Node node;
  node.op = "MatMul";
  std::vector<float> numbers(100);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const Tensor input = Tensor::Of(DataType::kF32, {100, 1}, numbers),
               kernel = RandomTensor({1, 1}, 1);
  EXPECT_EQ(PatchesOf(node, kernel, input, 4, 0), (std::vector<float>{0, 25, 50, 75}));
  EXPECT_EQ(PatchesOf(node, kernel, input, 4, 0.5), (std::vector<float>{12, 37, 62, 87}));
  EXPECT_EQ(PatchesOf(node, kernel, input, 200, 0.9).size(), 100U);
}

TEST(RowsOf, OtherOperatorsHaveNone) {
  Node node;
  node.op = "ConvTranspose";
  EXPECT_FALSE(RowsOf(node, RandomTensor({2, 2, 3, 3}, 1)).has_value());
  node.op = "MatMul";
  EXPECT_FALSE(RowsOf(node, RandomTensor({2, 3, 3}, 1)).has_value());
  EXPECT_FALSE(RowsOf(node, Tensor::Zeros(DataType::kF32, {0, 3})).has_value());
}

// error^T sums error, by its definition.
double Noise(const std::vector<float>& places, const std::vector<float>& error) {
  const size_t length = error.size();
  double noise = 0;
  for (size_t p = 0; p < places.size() / length; ++p) {
    double dot = 0;
    for (size_t k = 0; k < length; ++k) dot += double{places[p * length + k]} * error[k];
    noise += dot * dot;
  }
  for (size_t k = 0; k < length; ++k) {  // Moments::Finish
    double squares = 0;
    for (const float x : places) squares += double{x} * x;
    noise += squares / static_cast<double>(length) / 100 * error[k] * error[k];
  }
  return noise;
}

// Never worse than the nearest, no single flip is better, and often the best there is.
TEST(Flip, NoSingleMoveGainsAnyMore) {
  constexpr int64_t kLength = 7;
  int best = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Tensor places = RandomTensor({20, kLength}, 1000 + seed);
    const std::vector<float> x(places.as<float>().begin(), places.as<float>().end());
    Moments moments(kLength);
    moments.Add(x.data(), 12, kLength);
    moments.Add(x.data() + 12 * kLength, 8, kLength);
    moments.Finish();
    FlipRows rows(3, kLength);
    const Tensor weights = RandomTensor({3, kLength}, 2000 + seed);
    for (size_t i = 0; i < rows.weight.size(); ++i) {
      rows.weight[i] = 10 * weights.as<float>()[i];
      rows.error[i] = std::nearbyint(rows.weight[i]) - rows.weight[i];
      rows.step[i] = rows.error[i] < 0 ? 1 : -1;
    }
    const FlipRows before = rows;
    const FlipNoise noise = Flip(moments, rows);
    FlipNoise sum;
    for (size_t row = 0; row < 3; ++row) {
      const auto flipped = [&](unsigned bits) {
        std::vector<float> error;
        for (size_t k = 0; k < kLength; ++k) {
          const size_t i = row * kLength + k;
          error.push_back(before.error[i] + ((bits >> k & 1) != 0 ? before.step[i] : 0));
        }
        return Noise(x, error);
      };
      const auto first = static_cast<std::ptrdiff_t>(row * kLength);
      unsigned chosen = 0;
      for (size_t k = 0; k < kLength; ++k) chosen |= unsigned{rows.flipped[row * kLength + k]} << k;
      sum += {Noise(x, {before.weight.begin() + first, before.weight.begin() + first + kLength}),
              flipped(0), flipped(chosen)};
      double least = flipped(0);
      for (unsigned bits = 0; bits < 1U << kLength; ++bits) least = std::min(least, flipped(bits));
      for (size_t k = 0; k < kLength; ++k)
        EXPECT_GE(flipped(chosen ^ 1U << k), flipped(chosen) - 1e-5 * flipped(0));
      best += flipped(chosen) < least * 1.001 ? 1 : 0;
    }
    EXPECT_NEAR(noise.signal, sum.signal, 1e-4 * sum.signal);
    EXPECT_NEAR(noise.nearest, sum.nearest, 1e-4 * sum.nearest);
    EXPECT_NEAR(noise.adapted, sum.adapted, 1e-4 * sum.nearest);
  }
  EXPECT_GT(best, 60);  // of 120
}

TEST(Flip, WhatHasNoOtherPlaceStays) {
  Moments moments(2);
  const std::vector<float> x = {1, 1};
  moments.Add(x.data(), 1, 2);
  moments.Finish();
  FlipRows rows(2, 2);
  rows.error = {0.4F, 0.4F, 0.4F, 0.4F};
  rows.step = {0, 0, 0, -1};
  Flip(moments, rows);
  EXPECT_EQ(rows.flipped, (std::vector<uint8_t>{0, 0, 0, 1}));
}

std::vector<std::pair<Tensor, WeightScheme>> SchemeCases() {
  const auto of = [](DataType dtype) { return Scheme{dtype, true, false}; };
  return {{RandomTensor({5, 3, 2}, 1), {of(DataType::kI8), -1, 0, false}},
          {RandomTensor({5, 3, 2}, 2), {of(DataType::kU8), 0, 0, false}},
          {RandomTensor({5, 6}, 3), {of(DataType::kI8), 1, 0, false}},
          {RandomTensor({37, 6}, 4), {of(DataType::kI4), 0, 8, false}},
          {RandomTensor({6, 37}, 5), {of(DataType::kU4), 1, 8, true}},
          {RandomTensor({6, 36}, 6), {of(DataType::kU8), 1, 36, false}}};
}

// Two integers stand around each weight: the nearest at most half a step away, the other at most one.
TEST(Neighbours, AWeightLiesBetweenThem) {
  for (const auto& [weights, scheme] : SchemeCases()) {
    const auto nearest = ToIntegers(weights, scheme);
    ASSERT_TRUE(nearest.ok()) << nearest.status();
    const Neighbours neighbours(weights, scheme, *nearest);
    QuantizedConstant other = *nearest;
    RoundOtherwise(weights, scheme,
                   std::string(static_cast<size_t>(weights.size() + 7) / 8, '\xFF'), other);
    const Neighbours around(weights, scheme, other);
    for (int64_t i = 0; i < weights.size(); ++i) {
      const float scale = neighbours.Scale(i), error = neighbours.Error(i);
      const int step = neighbours.Step(i);
      EXPECT_TRUE(scheme.least_error || std::abs(error) <= 0.5001F * scale);
      EXPECT_EQ(other.integers.IntAt(i), nearest->integers.IntAt(i) + step);
      if (step == 0) continue;
      EXPECT_LE(std::abs(around.Error(i)), 1.0001F * scale);
      EXPECT_LE(error * around.Error(i), 0);  // one above, one below
    }
  }
}

// Combinations of a few directions along the last axis, as activations are: not white noise.
Tensor Correlated(const std::vector<int64_t>& dims, uint64_t seed, float scale = 1) {
  constexpr int64_t kDirections = 4;
  const int64_t length = dims.back();
  const Tensor directions = RandomTensor({kDirections, length}, 7);
  Tensor result = RandomTensor(dims, seed);
  const Tensor much = RandomTensor({result.size() / length, kDirections}, seed + 1000);
  auto* const numbers = reinterpret_cast<float*>(result.mutable_bytes());
  for (int64_t i = 0; i < result.size(); ++i) {
    double sum = 0.1 * numbers[i];
    for (int64_t d = 0; d < kDirections; ++d)
      sum +=
          much.FloatAt(i / length * kDirections + d) * directions.FloatAt(d * length + i % length);
    numbers[i] = static_cast<float>(sum) * scale;
  }
  return result;
}

class AdaptRoundingTest : public ::testing::Test {
 protected:
  void Build(const Graph& graph) {
    graph_ = graph;
    library_ = folder_.path() / "taps.so";
    codegen::CompileOptions options;
    options.opt_level = 2;
    options.taps = codegen::Taps::kModelValues;
    const auto compiled =
        codegen::Compile(graph_, options, library_, folder_.path() / "taps.h", StepContext());
    ASSERT_TRUE(compiled.ok()) << compiled.status();
  }
  absl::StatusOr<Rounding> Adapt(const QuantizeOptions& options, int threads = 2,
                                 float scale = 1) const {
    std::vector<Tensor> samples;
    for (uint64_t i = 0; i < 24; ++i) samples.push_back(Correlated(InputDims(), 50 + i, scale));
    return AdaptRounding(graph_, library_, Given(samples), options, {threads, false});
  }
  std::vector<int64_t> InputDims() const {
    std::vector<int64_t> dims;
    for (const Dim dim : graph_.value(graph_.inputs[0]).type.dims) dims.push_back(dim.value());
    return dims;
  }
  // Squared error of the outputs of the module over fresh inputs.
  double Error(const QuantizeOptions& options, const Statistics* statistics) const {
    const auto module = Quantize(graph_, statistics, options);
    EXPECT_TRUE(module.ok()) << module.status();
    if (!module.ok()) return 0;
    EXPECT_EQ(module->report.adapted_kernels > 0, options.rounding != nullptr);
    double error = 0;
    for (uint64_t seed = 900; seed < 920; ++seed) {
      const std::vector<Tensor> inputs = {Correlated(InputDims(), seed)};
      const auto real = ops::Evaluate(graph_, inputs), got = ops::Evaluate(module->graph, inputs);
      EXPECT_TRUE(real.ok() && got.ok()) << real.status() << got.status();
      for (int64_t i = 0; i < (*real)[0].size(); ++i)
        error += std::pow((*real)[0].FloatAt(i) - (*got)[0].FloatAt(i), 2);
    }
    return error;
  }

  const TempDir folder_ = *TempDir::Create();
  std::filesystem::path library_;
  Graph graph_;
};

TEST_F(AdaptRoundingTest, OutputsHaveLessNoise) {
  Build(ResidualNetwork());
  const Statistics statistics = Seen(graph_);
  for (const bool per_channel : {false, true}) {
    QuantizeOptions options;
    options.per_channel = per_channel;
    options.source = RangeSource::kDynamic;  // fewer other errors
    auto rounding = Adapt(options);
    ASSERT_TRUE(rounding.ok()) << rounding.status();
    ASSERT_EQ(rounding->kernels.size(), 3U);
    for (const AdaptedKernel& kernel : rounding->kernels) {
      EXPECT_GT(kernel.adapted_db, kernel.nearest_db) << kernel.node;
      EXPECT_GT(kernel.moved, 0);
      EXPECT_LT(kernel.moved, kernel.elements / 2);
    }
    const double nearest = Error(options, nullptr);
    options.rounding = std::make_shared<const Rounding>(*std::move(rounding));
    EXPECT_LT(Error(options, nullptr), 0.8 * nearest);
    // It goes with static ranges, corrected biases and trials too.
    options.source = RangeSource::kStatic;
    options.bias_correction = true;
    EXPECT_GT(Error(options, &statistics), 0);
    options.switches = true;
    const auto trial = Quantize(graph_, &statistics, options);
    ASSERT_TRUE(trial.ok()) << trial.status();
    EXPECT_EQ(trial->report.adapted_kernels, 3);
  }
}

// Four bits of weights alone, in blocks, of a matrix on either side of Gemm's transposition.
TEST_F(AdaptRoundingTest, WeightsAloneHaveLessNoise) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {5, 70}));
  const ValueId h =
      Add(graph, "MatMul", {x, graph.AddConstant("w1", RandomTensor({70, 64}, 1))}, {}, "first");
  graph.outputs = {Add(graph, "Gemm", {h, graph.AddConstant("w2", RandomTensor({66, 64}, 2))},
                       {{"transB", int64_t{1}}}, "second")};
  Build(graph);
  for (const DataType dtype : {DataType::kI4, DataType::kU4}) {
    QuantizeOptions options;
    options.source = RangeSource::kWeights;
    options.kernel_dtype = dtype;
    options.block_size = 16;
    auto rounding = Adapt(options);
    ASSERT_TRUE(rounding.ok()) << rounding.status();
    ASSERT_EQ(rounding->kernels.size(), 2U);
    const double nearest = Error(options, nullptr);
    options.rounding = std::make_shared<const Rounding>(*std::move(rounding));
    EXPECT_LT(Error(options, nullptr), 0.8 * nearest);
  }
}

TEST_F(AdaptRoundingTest, ThreadsDoNotMatterAndFilesKeepIt) {
  Build(ResidualNetwork());
  const auto one = Adapt({}, 1), three = Adapt({}, 3);
  ASSERT_TRUE(one.ok() && three.ok()) << one.status() << three.status();
  EXPECT_EQ(RoundingBytes(*one), RoundingBytes(*three));
  const std::filesystem::path path = folder_.path() / "rounding";
  ASSERT_TRUE(WriteFileAtomically(path, RoundingBytes(*one)).ok());
  const auto read = ReadRounding(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(RoundingBytes(*read), RoundingBytes(*one));
  EXPECT_THAT(ToTable(*read, 2), HasSubstr("and 1 kernels that gain less"));
}

// Inputs of zero say nothing, and what a layer makes infinite of finite ones neither: the nearest
// integers stay.
TEST_F(AdaptRoundingTest, InputsThatSayNothing) {
  Build(ResidualNetwork());
  auto rounding = Adapt({}, 2, 0);
  ASSERT_TRUE(rounding.ok()) << rounding.status();
  EXPECT_EQ(rounding->kernels[0].moved, 0);
  rounding = Adapt({}, 2, 1e38F);
  ASSERT_TRUE(rounding.ok()) << rounding.status();
  EXPECT_EQ(rounding->kernels[1].moved, 0);
}

TEST_F(AdaptRoundingTest, InputsThatAreNotFiniteAreNamed) {
  Build(ResidualNetwork());
  const auto status = Adapt({}, 2, std::numeric_limits<float>::infinity()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("sample 0: value `x`: "));
  EXPECT_THAT(MessageOf(status), HasSubstr("infinite of 192 elements"));
}

TEST_F(AdaptRoundingTest, FitsOnlyWhatItWasMadeFor) {
  Build(ResidualNetwork());
  const auto made = Adapt({});
  ASSERT_TRUE(made.ok()) << made.status();
  const Statistics statistics = Seen(graph_);
  const auto with = [&](Rounding rounding, const QuantizeOptions& given = {}) {
    QuantizeOptions options = given;
    options.rounding = std::make_shared<const Rounding>(std::move(rounding));
    return Quantize(graph_, &statistics, options).status();
  };
  EXPECT_TRUE(with(*made).ok()) << with(*made);
  QuantizeOptions per_channel;
  per_channel.per_channel = true;
  EXPECT_TRUE(absl::IsFailedPrecondition(with(*made, per_channel)));
  EXPECT_THAT(MessageOf(with(*made, per_channel)), HasSubstr("a scale for each channel"));
  Rounding other = *made;
  other.fingerprint = "0123";
  EXPECT_THAT(MessageOf(with(other)), HasSubstr("another model"));
  other = *made;
  other.kernels.push_back(other.kernels[0]);
  EXPECT_THAT(MessageOf(with(other)), HasSubstr("names `w1` twice"));
  other = *made;
  other.kernels[0].otherwise += "x";
  other.kernels[1].constant = "nobody";
  EXPECT_THAT(MessageOf(with(other)), HasSubstr("`w1`"));
  EXPECT_THAT(MessageOf(with(other)), HasSubstr("`nobody`"));
}

TEST_F(AdaptRoundingTest, RandomSamplesAreWarnedOf) {
  Build(ResidualNetwork());
  auto rounding =
      AdaptRounding(graph_, library_, Given({RandomTensor({1, 3, 8, 8}, 1)}), {}, {1, true});
  ASSERT_TRUE(rounding.ok()) << rounding.status();
  QuantizeOptions options;
  options.source = RangeSource::kDynamic;
  options.rounding = std::make_shared<const Rounding>(*std::move(rounding));
  const auto module = Quantize(graph_, nullptr, options);
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_THAT(fmt::format("{}", fmt::join(module->report.warnings, "\n")),
              HasSubstr("rounding was adapted to random inputs"));
}

TEST_F(AdaptRoundingTest, WhatCannotBe) {
  Build(ResidualNetwork());
  EXPECT_TRUE(absl::IsInvalidArgument(AdaptRounding(graph_, library_, Given({}), {}, {}).status()));
  QuantizeOptions options;
  options.include = {"nothing"};
  EXPECT_THAT(MessageOf(Adapt(options).status()), HasSubstr("no node fits `nothing`"));
  options.include = {"r1"};  // of the group that c1 begins
  EXPECT_TRUE(Adapt(options).ok()) << Adapt(options).status();
  options.include.clear();
  options.kernel_dtype = DataType::kF32;
  EXPECT_THAT(MessageOf(Adapt(options).status()), HasSubstr("kernel dtype is f32"));
  options.kernel_dtype = DataType::kUndefined;
  options.include = {"pool"};
  EXPECT_TRUE(absl::IsFailedPrecondition(Adapt(options).status()));
  Graph other = graph_;
  other.nodes[0].name = "renamed";
  other.name = "other";
  other.metadata["x"] = "y";
  Value& weights = other.value(*other.FindValue("w1"));
  weights.constant =
      std::make_shared<const Constant>(Constant{RandomTensor({4, 3, 3, 3}, 77), "", {}});
  EXPECT_TRUE(absl::IsFailedPrecondition(
      AdaptRounding(other, library_, Given({RandomTensor({1, 3, 8, 8}, 1)}), {}, {}).status()));
}

}  // namespace
}  // namespace quench::quantizer::rounding_test
