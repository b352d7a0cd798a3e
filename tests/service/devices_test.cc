// Steps that ask for a GPU, at services that get one later.
#include <gtest/gtest.h>

#include <map>

#include "quench/analyser/v1/analyser.pb.h"
#include "quench/gateway/v1/workflows.pb.h"
#include "quench/quantizer/v1/quantizer.pb.h"
#include "tests/service/cluster.h"
#include "tests/service/user.h"
#include "tests/support/matchers.h"
#include "tests/support/wait.h"

namespace quench::testing::devices_test {
namespace {

namespace pb = ::quench::gateway::v1;

constexpr char kGpu[] = "cuda -arch=emulated -host=x86-64-v3";
constexpr char kDevice[] = "cuda:0 Quench emulated device";

// Everything, with libraries for GPUs, some of which are to run on one.
pb::WorkflowSpec OnGpu(const User& user, const std::string& salt) {
  pb::WorkflowSpec spec = user.Spec(salt);
  for (pb::StepSpec& step : *spec.mutable_steps()->mutable_steps()) {
    for (const char* name : {kCompileStep, "taps", "int8"}) {
      if (step.name() == name) step.mutable_compile()->mutable_target()->set_name(kGpu);
    }
    if (step.has_verify()) step.mutable_verify()->set_device("cuda");
    if (step.has_benchmark()) step.mutable_benchmark()->set_device("cuda:0");
    if (step.has_compare()) step.mutable_compare()->set_device("cuda");
    if (step.has_calibrate()) step.mutable_calibrate()->set_device("cuda");
  }
  return spec;
}

template <typename Result>
Result ResultOf(const pb::Workflow& workflow, const std::string& step, User& user) {
  Result result;
  const auto digest = cli::OutputOf(workflow, step, "result");
  EXPECT_TRUE(digest.ok()) << digest.status();
  if (!digest.ok()) return result;
  const auto bytes = user.client().DownloadBytes(*digest, {});
  EXPECT_TRUE(bytes.ok() && result.ParseFromString(*bytes)) << bytes.status();
  return result;
}

class DevicesTest : public ::testing::Test {
 protected:
  std::string ReasonOf(const std::string& workflow, const std::string& step) {
    const auto now = user_.client().Get(workflow, {});
    return now.ok() ? StepOf(*now, step).waiting_reason() : "";
  }
  void ExpectWaits(const std::string& workflow, const std::string& step,
                   const std::string& reason) {
    EXPECT_TRUE(WaitFor([&] { return ReasonOf(workflow, step).find(reason) != std::string::npos; },
                        std::chrono::minutes(2)))
        << step << ": " << ReasonOf(workflow, step);
  }

  Cluster cluster_;
  User user_{cluster_};
};

TEST_F(DevicesTest, StepsWaitForAServiceThatHasOne) {
  const std::string name = *user_.Create(OnGpu(user_, ""), "");
  const std::string cancelled = *user_.Create(OnGpu(user_, "another"), "");
  for (const char* step : {"verify", "benchmark"})
    ExpectWaits(name, step, "waits for an analyser with a GPU: `analyser@");
  ExpectWaits(name, "calibrate", "waits for a quantizer with a GPU: `quantizer@");
  ExpectWaits(cancelled, "benchmark", "there is no CUDA driver");
  EXPECT_EQ(user_.client().Cancel(cancelled), absl::OkStatus());
  EXPECT_EQ(user_.client().Watch(cancelled, {})->state(), pb::STATE_CANCELLED);
  // Meanwhile, whoever asks for no GPU is served.
  pb::WorkflowSpec plain = user_.Spec("plain");
  const auto on_cpu = user_.client().Run(plain, {});
  ASSERT_TRUE(on_cpu.ok()) << on_cpu.status();
  EXPECT_EQ(ResultOf<analyser::v1::BenchmarkResult>(*on_cpu, "benchmark", user_).device(), "cpu");

  for (const char* service : {"analyser", "quantizer"}) {
    cluster_.Drain(service);
    cluster_.Start(service, {std::string("QUENCH_CUDA_DRIVER=") + EMULATED_DRIVER});
    EXPECT_TRUE(
        cluster_.process(service).WaitForLog("has GPUs: Quench emulated device (emulated)"));
  }
  const auto done = user_.client().Watch(name, {});
  ASSERT_TRUE(done.ok()) << done.status();
  ASSERT_EQ(done->state(), pb::STATE_SUCCEEDED) << Failures(*done);
  for (const pb::Step& step : done->steps()) EXPECT_EQ(step.waiting_reason(), "") << step.name();
  const auto verified = ResultOf<analyser::v1::VerifyResult>(*done, "verify", user_);
  EXPECT_TRUE(verified.passed());
  EXPECT_EQ(verified.device(), kDevice);
  const auto measured = ResultOf<analyser::v1::BenchmarkResult>(*done, "benchmark", user_);
  EXPECT_EQ(measured.device(), kDevice);
  EXPECT_EQ(measured.variant(), "cuda-emulated");
  EXPECT_EQ(ResultOf<quantizer::v1::CalibrateResult>(*done, "calibrate", user_).device(), kDevice);
}

}  // namespace
}  // namespace quench::testing::devices_test
