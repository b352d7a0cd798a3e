// Spans of workflows, from the call that creates one to the calls of its steps.
#include "services/gateway/traces.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>

#include "common/base/files.h"
#include "services/gateway/host.h"
#include "tests/support/collector.h"
#include "tests/support/wait.h"
#include "tests/unit/services/gateway/fake_services.h"

namespace quench::gateway::traces_test {
namespace {

using quench::testing::CollectedSpan;
using quench::testing::Collector;
using quench::testing::HasExemplar;
using quench::testing::IsBelow;
using quench::testing::WaitFor;

constexpr char kTrace[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
constexpr char kCreate[] = "quench.gateway.v1.Workflows/CreateWorkflow";
constexpr char kImport[] = "quench.importer.v1.Importer/Import";
constexpr char kTransform[] = "quench.importer.v1.Importer/Transform";

class TracesTest : public ::testing::Test {
 protected:
  TracesTest()
      : tracer_(*rpc::Tracer::Start(collector_.TracerOptions(&registry_))),
        services_(16, "127.0.0.1:0", tracer_.get()) {
    config_.mutable_server()->set_listen("127.0.0.1:0");
    config_.mutable_server()->mutable_tracing()->mutable_collector()->set_address(
        collector_.address());
    config_.set_state_dir((folder_.path() / "state").string());
    config_.mutable_blob_limits()->set_min_free_bytes(1);  // whatever disk the tests run on
  }
  void Start() {
    GatewayHost::Options options;
    options.config = config_;
    options.channels = services_.Channels();
    options.registry = &registry_;
    auto host = GatewayHost::Start(options);
    ASSERT_TRUE(host.ok()) << host.status();
    host_ = *std::move(host);
    rpc::ChannelOptions channel;
    channel.address = host_->server().address();
    channel_ = *rpc::Channel::Open(channel);
    const auto store =
        LocalBlobStore::Open(std::filesystem::path(config_.state_dir()) / "store", nullptr);
    ASSERT_TRUE((*store)->Put(std::as_bytes(std::span("model", 5))).ok());
  }
  void Create() {
    StepContext context;
    context.set_traceparent(kTrace);
    rpc::ClientCall call(*channel_, context);
    v1::CreateWorkflowRequest request;
    *request.mutable_spec() = ChainSpec();
    google::longrunning::Operation operation;
    const grpc::Status status = v1::Workflows::NewStub(channel_->grpc())
                                    ->CreateWorkflow(call.context(), request, &operation);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }

  const TempDir folder_ = *TempDir::Create();
  metrics::Registry registry_;
  Collector collector_;
  std::unique_ptr<rpc::Tracer> tracer_;  // the services'
  FakeServices services_;
  config::v1::GatewayConfig config_;
  std::unique_ptr<GatewayHost> host_;
  std::shared_ptr<rpc::Channel> channel_;
};

TEST_F(TracesTest, AWorkflowIsBelowItsCallAndStepsAreBelowIt) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(Create());
  ASSERT_TRUE(WaitFor([&] {
    return !collector_.Named("workflow").empty() && !collector_.Named(kTransform).empty();
  }));
  const CollectedSpan create = collector_.Find(kCreate), workflow = collector_.Find("workflow"),
                      import = collector_.Find("step import");
  EXPECT_EQ(create.span.parent_span_id(), std::string("\x00\xf0\x67\xaa\x0b\xa9\x02\xb7", 8));
  EXPECT_TRUE(IsBelow(workflow, create));
  EXPECT_TRUE(IsBelow(import, workflow));
  EXPECT_TRUE(IsBelow(collector_.Find("step transform"), workflow));
  EXPECT_TRUE(IsBelow(collector_.Find("step compile"), workflow));
  EXPECT_TRUE(IsBelow(collector_.Find(kImport), import)) << "the service's call";
  EXPECT_TRUE(IsBelow(collector_.Find(kTransform), collector_.Find("step transform")));
  EXPECT_EQ(workflow.service, "quench-gateway");
  EXPECT_EQ(workflow.Attribute("quench.state"), "succeeded");
  EXPECT_EQ(import.Attribute("quench.step.method"), "Import");
  EXPECT_EQ(import.Attribute("quench.cache_hit"), "false");
  EXPECT_EQ(collector_.Find("step compile").Attribute("quench.cache_hit"), "true");
  EXPECT_NE(import.Attribute("quench.queue_seconds"), "");
  EXPECT_GE(import.span.start_time_unix_nano(), workflow.span.start_time_unix_nano());
  EXPECT_LE(import.span.end_time_unix_nano(), workflow.span.end_time_unix_nano());
  EXPECT_TRUE(
      HasExemplar(registry_, "quench_step_queued_seconds", "4bf92f3577b34da6a3ce929d0e0e4736"));
}

TEST_F(TracesTest, AttemptsThatFailAreEventsOfTheStep) {
  std::atomic<int> imports = 0;
  services_.script = [&](const std::string& method, const StepContext&) {
    if (method == "Import" && ++imports == 1) {
      return rpc::Error(rpc::Reason::kStepCrashed, "signal 11");
    }
    return method == "Transform" ? absl::InvalidArgumentError("bad") : absl::OkStatus();
  };
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(Create());
  ASSERT_TRUE(WaitFor([&] { return !collector_.Named("workflow").empty(); }));
  const CollectedSpan import = collector_.Find("step import");
  ASSERT_EQ(import.span.events_size(), 1);
  EXPECT_EQ(import.span.events(0).name(), "attempt failed");
  EXPECT_EQ(import.Attribute("quench.attempt"), "2");
  EXPECT_FALSE(import.failed());
  const CollectedSpan transform = collector_.Find("step transform");
  EXPECT_TRUE(transform.failed());
  EXPECT_EQ(transform.Attribute("error.type"), "INVALID_REQUEST");
  EXPECT_TRUE(collector_.Find("workflow").failed());
  EXPECT_FALSE(collector_.Find("step compile").failed()) << "cancelled";
  EXPECT_EQ(collector_.Find("step compile").Attribute("quench.state"), "cancelled");
}

// The next gateway ends what one began: one span, which both know.
TEST_F(TracesTest, ARestartGoesOnWithTheSameSpans) {
  std::atomic<bool> hangs = true;
  services_.script = [&](const std::string&, const StepContext& step) {
    while (hangs && step.Check().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return step.Check();
  };
  config_.mutable_server()->mutable_grace()->set_nanos(1'000'000);
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(Create());
  host_->Drain();
  host_.reset();
  hangs = false;
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_TRUE(WaitFor([&] {
    return !collector_.Named("workflow").empty() && !collector_.Named(kTransform).empty();
  }));
  EXPECT_TRUE(IsBelow(collector_.Find("workflow"), collector_.Find(kCreate)));
  for (const CollectedSpan& call : collector_.Named(kImport)) {
    EXPECT_TRUE(IsBelow(call, collector_.Find("step import")));
  }
}

TEST(TracesOfNothingTest, OutsideOfATraceThereIsNoSpan) {
  v1::Workflow header;
  header.set_name("workflows/x");
  EXPECT_EQ(StepTraceparent("", header, v1::Step()), "");
  EXPECT_FALSE(StepSpan("", header, v1::Step()).context.sampled);
  v1::Step once, again;
  again.set_retried_after_attempt(1);
  EXPECT_NE(StepTraceparent(kTrace, header, once), StepTraceparent(kTrace, header, again));
  EXPECT_EQ(StepTraceparent(kTrace, header, once), StepTraceparent(kTrace, header, once));
}

}  // namespace
}  // namespace quench::gateway::traces_test
