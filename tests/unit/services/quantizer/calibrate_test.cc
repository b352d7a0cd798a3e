#include "services/quantizer/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/hash.h"
#include "services/codegen/codegen.h"
#include "services/quantizer/statistics_file.h"
#include "services/quantizer/statistics_proto.h"
#include "tests/support/graphs.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/quantizer/support.h"

namespace quench::quantizer::calibrate_test {
namespace {

using ::quench::testing::Add;
using ::quench::testing::HasSubstr;
using ::quench::testing::RandomTensor;

// x -> Conv -> c -> Relu -> r -> GlobalAveragePool -> p -> Reshape -> f -> MatMul -> y
Graph Network() {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 2, 4, 4}));
  const ValueId w = graph.AddConstant("w", RandomTensor({3, 2, 3, 3}, 1));
  const ValueId c = Add(graph, "Conv", {x, w}, {}, "c");
  const ValueId r = Add(graph, "Relu", {c}, {}, "r");
  const ValueId p = Add(graph, "GlobalAveragePool", {r}, {}, "p");
  const ValueId f =
      Add(graph, "Reshape", {p, graph.AddConstant("shape", Tensor::I64({1, 3}))}, {}, "f");
  graph.outputs = {
      Add(graph, "MatMul", {f, graph.AddConstant("v", RandomTensor({3, 2}, 2))}, {}, "y")};
  return graph;
}

class CalibrateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = TempDir::Create();
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_ = std::make_unique<TempDir>(*std::move(dir));
    library_ = dir_->path() / "taps.so";
    codegen::CompileOptions options;
    options.opt_level = 2;
    options.taps = codegen::Taps::kModelValues;
    const auto report = codegen::Compile(graph_, options, library_, dir_->path() / "taps.h");
    ASSERT_TRUE(report.ok()) << report.status();
  }
  absl::StatusOr<Statistics> Run(std::vector<Tensor> tensors, int workers = 1) {
    return Calibrate(graph_, library_, Given(std::move(tensors)), {workers, false});
  }
  static std::vector<Tensor> SomeSamples(int count) {
    std::vector<Tensor> tensors;
    for (int i = 0; i < count; ++i)
      tensors.push_back(RandomTensor({1, 2, 4, 4}, static_cast<uint64_t>(i) + 10));
    return tensors;
  }
  const Graph graph_ = Network();
  std::unique_ptr<TempDir> dir_;
  std::filesystem::path library_;
};

TEST_F(CalibrateTest, SeesEveryFloatValueWithItsChannels) {
  const auto statistics = Run(SomeSamples(3));
  ASSERT_TRUE(statistics.ok()) << statistics.status();
  EXPECT_EQ(statistics->samples, 3);
  EXPECT_EQ(statistics->fingerprint, Fingerprint(graph_));
  std::map<std::string, size_t> channels;
  for (const auto& [name, value] : statistics->values) {
    EXPECT_EQ(value.samples, 3) << name;
    channels[name] = value.channels.size();
  }
  EXPECT_EQ(channels, (std::map<std::string, size_t>{
                          {"x", 2}, {"c", 3}, {"r", 3}, {"p", 3}, {"f", 3}, {"y", 2}}));
  EXPECT_EQ(statistics->values.at("r").low, 0);
  EXPECT_EQ(statistics->values.at("r").high, statistics->values.at("c").high);
  EXPECT_EQ(statistics->values.at("x").elements, 96);
}

TEST_F(CalibrateTest, WorkersChangeNothing) {
  const std::string one = ToProto(*Run(SomeSamples(37), 1)).SerializeAsString();
  for (const int workers : {2, 5}) {
    EXPECT_EQ(ToProto(*Run(SomeSamples(37), workers)).SerializeAsString(), one) << workers;
  }
}

TEST_F(CalibrateTest, BadSamplesAreNamed) {
  std::vector<Tensor> tensors = SomeSamples(20);
  reinterpret_cast<float*>(tensors[11].mutable_bytes())[5] = NAN;
  reinterpret_cast<float*>(tensors[19].mutable_bytes())[5] = NAN;
  const absl::Status nan = Run(tensors, 3).status();
  EXPECT_EQ(nan.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MessageOf(nan), "sample 11: value `x`: 1 NaN and 0 infinite of 32 elements");
  std::vector<Tensor> large = {
      Tensor::Of(DataType::kF32, {1, 2, 4, 4}, std::vector<float>(32, 3e38f))};
  const auto overflown = Run(large);
  ASSERT_TRUE(overflown.ok()) << overflown.status();
  EXPECT_TRUE(overflown->not_finite.contains("c"));
  EXPECT_FALSE(overflown->values.contains("c"));
  EXPECT_TRUE(overflown->not_finite.contains("x"));  // so large that it stands for infinity
  EXPECT_PRED1(HasSubstr("sample 0"), MessageOf(Run({RandomTensor({1, 2, 5, 4}, 1)}).status()));
  EXPECT_PRED1(HasSubstr("no samples"), MessageOf(Run({}).status()));
}

TEST_F(CalibrateTest, TheLibraryMustBeOfTheModule) {
  Graph other = graph_;
  other.value(*other.FindValue("v")).constant =
      std::make_shared<Constant>(Constant{RandomTensor({3, 2}, 9), "", {}});
  const absl::Status status = Calibrate(other, library_, Given(SomeSamples(1)), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_PRED1(HasSubstr("compile that one"), MessageOf(status));
}

TEST(ChannelAxes, SizesThatChangeAreNoChannels) {
  Graph graph;
  const Dim t = Dim::OfSymbol(graph.symbols->AddInput("t", {0, 1}, {1, 64}));
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {Dim(1), t, Dim(4)}));
  const ValueId y = Add(graph, "Transpose", {x}, {{"perm", std::vector<int64_t>{0, 2, 1}}}, "y");
  graph.outputs = {Add(graph, "MatMul", {x, y}, {}, "scores")};
  EXPECT_EQ(ChannelAxes(graph), (std::map<std::string, int>{{"x", 2}, {"y", -1}, {"scores", -1}}));
}

TEST_F(CalibrateTest, CancellationEndsIt) {
  auto token = std::make_shared<CancelToken>();
  token->Cancel();
  EXPECT_EQ(Calibrate(graph_, library_, Given(SomeSamples(9)), {2, false}, StepContext(token, {}))
                .status()
                .code(),
            absl::StatusCode::kCancelled);
}

TEST_F(CalibrateTest, FilesGiveStatisticsBack) {
  const auto statistics = Run(SomeSamples(2));
  ASSERT_TRUE(statistics.ok()) << statistics.status();
  const auto path = dir_->path() / "s";
  ASSERT_TRUE(WriteStatistics(*statistics, path).ok());
  const auto back = ReadStatistics(path);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ToProto(*back).SerializeAsString(), ToProto(*statistics).SerializeAsString());
  ASSERT_TRUE(WriteFileAtomically(path, "something else").ok());
  EXPECT_PRED1(HasSubstr("no statistics"), MessageOf(ReadStatistics(path).status()));
}

TEST_F(CalibrateTest, DamagedStatisticsAreRefused) {
  EXPECT_PRED1(HasSubstr("nothing was calibrated"), MessageOf(FromProto({}).status()));
  v1::Statistics message = ToProto(*Run(SomeSamples(1)));
  message.mutable_values(0)->set_low(NAN);
  message.mutable_values(1)->mutable_histogram()->set_counts(0, 1'000'000);
  message.mutable_values(2)->set_samples(0);
  const absl::Status status = FromProto(message).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (int i = 0; i < 3; ++i) {
    EXPECT_PRED1(HasSubstr("`" + message.values(i).value() + "`"), MessageOf(status));
  }
}

}  // namespace
}  // namespace quench::quantizer::calibrate_test
