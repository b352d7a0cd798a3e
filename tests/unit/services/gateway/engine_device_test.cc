// Steps that ask for a GPU, at services that have none or some.
#include <gtest/gtest.h>

#include "services/gateway/engine.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/gateway/engine_harness.h"

namespace quench::gateway::engine_device_test {
namespace {

using metrics::RetryReason;
using metrics::Stage;
using quench::testing::HasSubstr;

// As steps::CheckDevice has it.
absl::Status WithoutGpu(const std::string& server) {
  const absl::Status status =
      rpc::WithReason(rpc::Error(rpc::Reason::kNoDevice, "`" + server + "` has none (no driver)"),
                      rpc::Reason::kNoDevice, {{"server", server}});
  return rpc::WithRetryAfter(status, milliseconds(1000));
}

class EngineDeviceTest : public ::testing::Test, protected EngineHarness {
 protected:
  static v1::WorkflowSpec Bench(const std::string& device, const std::string& library = "library") {
    v1::WorkflowSpec spec;
    v1::StepSpec* step = spec.mutable_steps()->add_steps();
    step->set_name("benchmark");
    *step->mutable_benchmark()->mutable_library() = DigestOf(library);
    step->mutable_benchmark()->set_device(device);
    return spec;
  }
  static bool AsksForGpu(const StepCall& call) {
    return static_cast<const analyser::v1::BenchmarkRequest&>(*call.request).device() == "cuda";
  }
  // Servers in turn, the last `with_gpu` of which have one.
  void Serve(size_t servers, size_t with_gpu) {
    runner.behave = [this, servers, with_gpu](const StepCall& call) {
      const size_t server = turn_++ % servers;
      if (!AsksForGpu(call) || server + with_gpu >= servers) return Behaviour();
      return Fails(WithoutGpu("analyser@" + std::to_string(server)), false);
    };
  }
  v1::Step Benchmark(const std::string& id) { return StepOf(id, "benchmark"); }

 private:
  size_t turn_ = 0;
};

TEST_F(EngineDeviceTest, TheyWaitWithAReasonUntilAServerHasOne) {
  Serve(1, 0);
  const std::string id = Create(Bench("cuda"));
  loop.RunFor(std::chrono::hours(1));
  EXPECT_EQ(Benchmark(id).state(), v1::STATE_QUEUED);
  EXPECT_EQ(Benchmark(id).waiting_reason(),
            "waits for an analyser with a GPU: `analyser@0` has none (no driver)");
  EXPECT_EQ(Benchmark(id).attempt(), 0);
  EXPECT_LE(runner.calls.size(), 3600u);
  EXPECT_GT(registry.Get(metrics::kStepRetries, Stage::kBenchmark, RetryReason::kNoDevice).Value(),
            0);
  Serve(1, 1);
  loop.RunFor(milliseconds(10'000));
  EXPECT_EQ(Benchmark(id).state(), v1::STATE_SUCCEEDED);
  EXPECT_EQ(Benchmark(id).waiting_reason(), "");
  EXPECT_EQ(Benchmark(id).attempt(), 1);
}

TEST_F(EngineDeviceTest, OthersAreDoneMeanwhile) {
  Serve(1, 0);
  const std::string waits = Create(Bench("cuda"));
  loop.RunFor(milliseconds(60'000));
  const std::string any = Create(Bench("")), cpu = Create(Bench("cpu"));
  loop.RunFor(milliseconds(100));
  EXPECT_EQ(StateOf(any), v1::STATE_SUCCEEDED);
  EXPECT_EQ(StateOf(cpu), v1::STATE_SUCCEEDED);
  EXPECT_EQ(StateOf(waits), v1::STATE_QUEUED);
}

TEST_F(EngineDeviceTest, EveryServerBehindAnAddressIsAsked) {
  Serve(10, 1);
  const std::string id = Create(Bench("cuda"));
  loop.RunFor(milliseconds(1000));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
  Serve(3, 0);
  const std::string waits = Create(Bench("cuda", "another"));
  loop.RunFor(milliseconds(60'000));
  EXPECT_THAT(
      Benchmark(waits).waiting_reason(),
      HasSubstr("waits for an analyser with a GPU: none of 3 has one, the last: `analyser@"));
}

TEST_F(EngineDeviceTest, EqualStepsWaitTogether) {
  Serve(1, 0);
  const std::string first = Create(Bench("cuda")), second = Create(Bench("cuda"));
  loop.RunFor(milliseconds(60'000));
  for (const std::string& id : {first, second})
    EXPECT_THAT(Benchmark(id).waiting_reason(), HasSubstr("with a GPU"));
  Serve(1, 1);
  loop.RunFor(milliseconds(10'000));
  for (const std::string& id : {first, second}) EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
}

TEST_F(EngineDeviceTest, TheyCanBeCancelled) {
  Serve(1, 0);
  const std::string id = Create(Bench("cuda"));
  loop.RunFor(milliseconds(60'000));
  EXPECT_EQ(Cancel(id), absl::OkStatus());
  loop.RunFor(milliseconds(10'000));
  EXPECT_EQ(StateOf(id), v1::STATE_CANCELLED);
  EXPECT_EQ(Benchmark(id).waiting_reason(), "");
  const size_t calls = runner.calls.size();
  loop.RunFor(milliseconds(60'000));
  EXPECT_EQ(runner.calls.size(), calls);
}

TEST_F(EngineDeviceTest, PatienceAndTimeoutsEnd) {
  Serve(1, 0);
  v1::WorkflowSpec impatient = Bench("cuda"), limited = Bench("cuda", "another");
  impatient.mutable_patience()->set_seconds(60);
  limited.mutable_timeout()->set_seconds(60);
  const std::string first = Create(impatient), second = Create(limited);
  loop.RunFor(milliseconds(30'000));
  EXPECT_EQ(StateOf(first), v1::STATE_QUEUED);
  loop.RunFor(milliseconds(60'000));
  EXPECT_EQ(StateOf(first), v1::STATE_FAILED);
  EXPECT_THAT(Benchmark(first).error().message(), HasSubstr("has none (no driver)"));
  EXPECT_EQ(StateOf(second), v1::STATE_FAILED);
  EXPECT_THAT(Get(second).error().message(), HasSubstr("not ended within 60 s"));
}

TEST_F(EngineDeviceTest, AServiceThatIsNotThereIsAReasonToo) {
  runner.behave = [](const StepCall&) {
    return Fails(absl::UnavailableError("connection refused"), false);
  };
  const std::string id = Create(Bench(""));
  loop.RunFor(milliseconds(10'000));
  EXPECT_EQ(Benchmark(id).waiting_reason(),
            "service `analyser` cannot be reached: connection refused");
  Serve(1, 0);
  loop.RunFor(milliseconds(10'000));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
  EXPECT_EQ(Benchmark(id).waiting_reason(), "");
}

TEST_F(EngineDeviceTest, OtherTextsThanDevicesAreRefused) {
  for (const char* device : {"gpu", "cuda:", "cuda:x", "CPU"}) {
    const absl::Status status = Expand(Bench(device)).status();
    ASSERT_EQ(rpc::FieldsOf(status).size(), 1u) << status;
    EXPECT_EQ(rpc::FieldsOf(status)[0].field, "spec.steps.steps[0].benchmark.device");
  }
}

}  // namespace
}  // namespace quench::gateway::engine_device_test
