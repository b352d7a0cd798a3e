// The runner over the hand-written model of tests/unit/common/runtime.
#include "common/runner/runner.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "common/base/status.h"
#include "common/runner/machine_load.h"

namespace quench::runner_test {
namespace {

std::vector<Tensor> Inputs(int64_t n, int64_t k = 0) {
  Tensor x = Tensor::Zeros(DataType::kF32, {n, 4});
  auto* values = reinterpret_cast<float*>(x.mutable_bytes());
  for (int64_t i = 0; i < 4 * n; ++i) values[i] = static_cast<float>(i % 3 - 1);
  return {x, Tensor::I64(std::vector<int64_t>(static_cast<size_t>(n), k))};
}

TEST(ArtifactTest, DescribesItself) {
  const auto artifact = Artifact::Open(FAKE_MODEL);
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  ASSERT_EQ((*artifact)->inputs().size(), 2u);
  const ArtifactTensor& x = (*artifact)->inputs()[0];
  EXPECT_EQ(x.name, "x");
  EXPECT_EQ(x.dtype, DataType::kF32);
  ASSERT_EQ(x.dims.size(), 2u);
  EXPECT_EQ(x.dims[0].symbol, "n");
  EXPECT_EQ(x.dims[0].value, -1);
  EXPECT_EQ(x.dims[0].min, 2);
  EXPECT_EQ(x.dims[0].max, 6);
  EXPECT_EQ(x.dims[1].value, 4);
  EXPECT_EQ((*artifact)->variant(), "plain");
  EXPECT_EQ((*artifact)->producer(), "by hand");
}

TEST(ArtifactTest, Runs) {
  for (const int threads : {1, 3}) {
    const auto artifact = Artifact::Open(FAKE_MODEL, threads);
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    for (const int64_t n : {2, 6, 4}) {
      const std::vector<Tensor> inputs = Inputs(n);
      std::string tapped;
      const auto outputs =
          (*artifact)->Run(inputs, {}, [&](const std::string& name, const Tensor& tensor) {
            tapped = name;
            EXPECT_EQ(tensor.dims(), (std::vector<int64_t>{n, 4}));
          });
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      EXPECT_EQ(tapped, "y");
      for (int64_t i = 0; i < 4 * n; ++i)
        EXPECT_EQ((*outputs)[0].FloatAt(i), 2 * inputs[0].FloatAt(i));
      for (int64_t i = 0; i < (*outputs)[1].size(); ++i) EXPECT_EQ((*outputs)[1].FloatAt(i), 1);
    }
  }
}

TEST(ArtifactTest, ProblemsAreNamed) {
  const auto artifact = Artifact::Open(FAKE_MODEL);
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  const std::vector<Tensor> inputs = Inputs(2);
  EXPECT_EQ(MessageOf((*artifact)->Run(std::span(inputs).first(1)).status()),
            "1 inputs are given, the model takes 2");
  const std::vector<Tensor> swapped = {inputs[1], inputs[0]};
  const absl::Status wrong = (*artifact)->Run(swapped).status();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(MessageOf(wrong).find("`x`"), std::string::npos) << wrong;
  EXPECT_NE(MessageOf(wrong).find("`k`"), std::string::npos) << wrong;
  EXPECT_EQ(MessageOf((*artifact)->Run(Inputs(2, -1)).status()),
            "node `filter` (Compress): k is negative");
  EXPECT_EQ(Artifact::Open("/no/such/model.so").status().code(), absl::StatusCode::kNotFound);
}

TEST(ArtifactTest, CancellationReachesTheRun) {
  const auto artifact = Artifact::Open(FAKE_MODEL);
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  StepContext context;
  context.set_deadline(std::chrono::steady_clock::now() + std::chrono::milliseconds(20));
  EXPECT_EQ((*artifact)->Run(Inputs(2, 1000), context).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE((*artifact)->Run(Inputs(2)).ok());
}

TEST(ArtifactTest, ProfileTimesEachNode) {
  const auto artifact = Artifact::Open(FAKE_MODEL);
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  const auto timings = (*artifact)->Profile(Inputs(4));
  ASSERT_TRUE(timings.ok()) << timings.status();
  ASSERT_EQ(timings->size(), 2u);
  EXPECT_EQ((*timings)[0].node, "twice");
  EXPECT_EQ((*timings)[1].kernel, "by hand");
}

TEST(BenchmarkTest, MeasuresRuns) {
  const auto result = Benchmark(FAKE_MODEL, {.seconds = 0.01, .sizes = {{"n", 4}}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(result->runs, 1);
  EXPECT_LE(result->min_ms, result->lower_quartile_ms);
  EXPECT_LE(result->lower_quartile_ms, result->median_ms);
  EXPECT_LE(result->median_ms, result->upper_quartile_ms);
  EXPECT_LE(result->upper_quartile_ms, result->p99_ms);
  EXPECT_EQ(result->arena_bytes, 64 + 64);
}

TEST(BenchmarkTest, WarnsOfOtherProgramsAndOfRunsThatScatter) {
  BenchResult quiet;
  quiet.runs = 100;
  quiet.min_ms = 1;
  quiet.lower_quartile_ms = 1.05;
  quiet.median_ms = 1.1;
  quiet.upper_quartile_ms = 1.2;
  quiet.cores = 4;
  quiet.taken_cores = 3;  // and one for the run
  EXPECT_TRUE(BenchWarnings(quiet).empty());
  BenchResult busy = quiet;
  busy.threads = 2;
  ASSERT_EQ(BenchWarnings(busy).size(), 1u);
  EXPECT_EQ(BenchWarnings(busy)[0],
            "the machine was busy: other programs took 3.0 of 4 cores, and these runs wanted 2; "
            "they would be faster without");
  busy.cores = 0;  // the system does not say
  busy.taken_cores = 0;
  EXPECT_TRUE(BenchWarnings(busy).empty());
  BenchResult wide = quiet;
  wide.upper_quartile_ms = 1.3;
  ASSERT_EQ(BenchWarnings(wide).size(), 1u);
  EXPECT_NE(BenchWarnings(wide)[0].find("a quarter 1.3 ms at least"), std::string::npos);
  BenchResult slow = quiet;
  slow.min_ms = 0.5;
  EXPECT_EQ(BenchWarnings(slow).size(), 1u);
  slow.runs = 4;
  EXPECT_TRUE(BenchWarnings(slow).empty());
  BenchResult tiny = wide;  // nanoseconds, which the clock rounds
  tiny.min_ms = tiny.lower_quartile_ms = tiny.median_ms = 2e-4;
  tiny.upper_quartile_ms = 3e-4;
  EXPECT_TRUE(BenchWarnings(tiny).empty());
}

TEST(MachineLoadTest, TicksOfOwnCpusAreCounted) {
  const std::string stat =
      "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 4 1000 2000 8 16 32 64 64\n"
      "cpu1 100 0 0 5 0 0 0 0 0 0\nintr 7\n";
  EXPECT_EQ(BusyTicks(stat, {0}), 1 + 2 + 4 + 8 + 16 + 32);
  EXPECT_EQ(BusyTicks(stat, {0, 1}), 163);
  EXPECT_EQ(BusyTicks(stat, {0, 2}), std::nullopt);
  EXPECT_EQ(BusyTicks("cpu0 0 0 0 0 0 0 0 0 0 0\n", {0}), std::nullopt);
}

TEST(RandomInputsTest, SameSeedSameValues) {
  std::vector<ArtifactTensor> types = {{"a", DataType::kF32, {{-1, "n", 0, 10}, {5, "", 5, 5}}},
                                       {"b", DataType::kI64, {{-1, "n", 0, 10}}},
                                       {"c", DataType::kBool, {{64, "", 64, 64}}}};
  const auto first = RandomInputs(types, 3, {{"n", 7}}),
             second = RandomInputs(types, 3, {{"n", 7}});
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ((*first)[0].dims(), (std::vector<int64_t>{7, 5}));
  for (size_t i = 0; i < types.size(); ++i) EXPECT_EQ(RelativeError((*first)[i], (*second)[i]), 0);
  EXPECT_GT(RelativeError((*RandomInputs(types, 4, {{"n", 7}}))[0], (*first)[0]), 0);
  for (int64_t i = 0; i < (*first)[0].size(); ++i) EXPECT_LE(std::abs((*first)[0].FloatAt(i)), 4);
  EXPECT_EQ((*RandomInputs(types, 3))[0].dims()[0], 1);
}

// Sizes that others determine are what those are.
TEST(RandomInputsTest, SizesThatAreExpressions) {
  const std::vector<ArtifactTensor> types = {
      {"x", DataType::kF32, {{-1, "2*n + 1", 3, 100}}},
      {"y", DataType::kF32, {{-1, "n", 2, 50}, {-1, "some name", 4, 9}}}};
  const auto sizes_of = [&](const std::map<std::string, int64_t>& sizes) {
    std::vector<std::vector<int64_t>> dims;
    const auto tensors = RandomInputs(types, 1, sizes);
    EXPECT_TRUE(tensors.ok()) << tensors.status();
    for (const Tensor& tensor : tensors.ok() ? *tensors : std::vector<Tensor>())
      dims.push_back(tensor.dims());
    return dims;
  };
  using Dims = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(sizes_of({}), (Dims{{5}, {2, 4}}));
  EXPECT_EQ(sizes_of({{"n", 7}, {"some name", 5}}), (Dims{{15}, {7, 5}}));
  EXPECT_EQ(sizes_of({{"2*n + 1", 4}}), (Dims{{4}, {2, 4}}));  // the run says that it is wrong
}

TEST(RandomInputsTest, IntegersAreBelowABound) {
  const std::vector<ArtifactTensor> types = {{"ids", DataType::kI64, {{256, "", 256, 256}}}};
  for (const uint64_t below : {uint64_t{8}, kAnyIndex}) {
    const Tensor ids = (*RandomInputs(types, 3, {}, below))[0];
    std::vector<int> counts(8, 0);
    for (int64_t i = 0; i < ids.size(); ++i) ++counts[static_cast<size_t>(ids.IntAt(i))];
    for (size_t i = 0; i < counts.size(); ++i) EXPECT_EQ(counts[i] > 0, i < below) << i;
  }
}

TEST(RandomInputsTest, TypesWithoutValuesAreNamed) {
  const std::vector<ArtifactTensor> types = {{"s", DataType::kString, {}}};
  EXPECT_EQ(MessageOf(RandomInputs(types, 1).status()),
            "input `s`: no random values of type string");
}

}  // namespace
}  // namespace quench::runner_test
