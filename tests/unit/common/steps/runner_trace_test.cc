// Spans of steps, in processes and on threads.
#include <gtest/gtest.h>

#include "common/rpc/errors.h"
#include "common/steps/runner.h"
#include "common/steps/storage.h"
#include "tests/support/collector.h"
#include "tests/unit/common/steps/test_steps.h"

namespace quench::steps::runner_trace_test {
namespace {

using codegen::v1::PackageRequest;
using codegen::v1::PackageResult;
using quench::testing::CollectedSpan;
using quench::testing::Collector;
using quench::testing::HasExemplar;
using quench::testing::IsBelow;

constexpr char kTrace[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

class RunnerTraceTest : public ::testing::TestWithParam<bool> {
 protected:
  RunnerTraceTest() {
    config::v1::BlobStore blobs;
    blobs.set_folder((folder_.path() / "store").string());
    tracer_ = *rpc::Tracer::Start(collector_.TracerOptions(&registry_));
    RunnerOptions options;
    options.in_process = GetParam();
    options.program = STEP_PROGRAM;
    options.scratch = folder_.path() / "scratch";
    options.server = "test";
    options.registry = &registry_;
    options.tracer = tracer_.get();
    runner_ = *StepRunner::Create(options, *OpenStorage(blobs, true));
  }
  absl::Status Run(const std::string& what) {
    StepContext context;
    context.set_traceparent(kTrace);
    PackageResult result;
    const absl::Status status = runner_->Run(TestStep(), TestRequest(what), context, &result);
    tracer_->Flush();
    return status;
  }

  TempDir folder_ = *TempDir::Create();
  metrics::Registry registry_;
  Collector collector_;
  std::unique_ptr<rpc::Tracer> tracer_;
  std::unique_ptr<StepRunner> runner_;
};

TEST_P(RunnerTraceTest, AStepHasItsPhases) {
  ASSERT_TRUE(Run("echo:x").ok());
  ASSERT_EQ(collector_.spans().size(), 4U);
  const CollectedSpan step = collector_.Find("step Package");
  EXPECT_EQ(step.span.trace_id().size(), 16U);
  EXPECT_EQ(step.span.parent_span_id(), std::string("\x00\xf0\x67\xaa\x0b\xa9\x02\xb7", 8));
  EXPECT_EQ(step.Attribute("quench.cache_hit"), "false");
  EXPECT_EQ(step.Attribute("quench.tenant"), "default");
  EXPECT_FALSE(step.failed());
  for (const char* phase : {"fetch", "work", "store"}) {
    EXPECT_TRUE(IsBelow(collector_.Find(phase), step)) << phase;
  }
  EXPECT_EQ(collector_.Find("work").Attribute("quench.isolation"),
            GetParam() ? "thread" : "process");
  EXPECT_LE(collector_.Find("fetch").span.end_time_unix_nano(),
            collector_.Find("work").span.start_time_unix_nano());
  EXPECT_TRUE(HasExemplar(registry_, "quench_step_seconds", "4bf92f3577b34da6a3ce929d0e0e4736"));
}

TEST_P(RunnerTraceTest, AHitHasNone) {
  ASSERT_TRUE(Run("echo:x").ok());
  ASSERT_TRUE(Run("echo:x").ok());
  ASSERT_EQ(collector_.spans().size(), 5U);
  EXPECT_EQ(collector_.Named("step Package")[1].Attribute("quench.cache_hit"), "true");
}

TEST_P(RunnerTraceTest, AFailureIsItsReason) {
  ASSERT_FALSE(Run("fail").ok());
  const CollectedSpan step = collector_.Find("step Package");
  EXPECT_TRUE(step.failed());
  EXPECT_NE(step.Attribute("error.type"), "");
  EXPECT_TRUE(IsBelow(collector_.Find("work"), step));
  EXPECT_TRUE(collector_.Named("store").empty());
}

INSTANTIATE_TEST_SUITE_P(Isolation, RunnerTraceTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "OnThreads" : "InProcesses"; });

}  // namespace
}  // namespace quench::steps::runner_trace_test
