// A client of a gateway in this process, whose services do as a test says.
#include "services/cli/remote/client.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <future>

#include "quench/config/v1/config.pb.h"
#include "quench/gateway/v1/workflows.grpc.pb.h"
#include "services/cli/remote.h"
#include "services/cli/traceparent.h"
#include "services/gateway/host.h"
#include "tests/support/collector.h"
#include "tests/support/matchers.h"
#include "tests/support/wait.h"
#include "tests/unit/services/gateway/fake_services.h"

namespace quench::cli::client_test {
namespace {

namespace pb = ::quench::gateway::v1;
using quench::testing::Collector;
using quench::testing::HasSubstr;
using quench::testing::IsBelow;
using quench::testing::WaitFor;

TEST(ClientTest, AsksForAWorkflowWhereNoPlaceIsLeftToWatchIt) {
  const TempDir folder = *TempDir::Create();
  metrics::Registry registry;
  gateway::FakeServices services;
  std::atomic<bool> released{false};
  services.script = [&](const std::string&, const StepContext& step) {
    EXPECT_TRUE(WaitFor([&] { return released || !step.Check().ok(); }));
    return step.Check();
  };
  gateway::GatewayHost::Options options;
  options.config.mutable_server()->set_listen("127.0.0.1:0");
  options.config.set_state_dir((folder.path() / "state").string());
  options.config.mutable_blob_limits()->set_min_free_bytes(1);
  options.config.mutable_calls()->set_max_watches(1);
  options.channels = services.Channels();
  options.registry = &registry;
  const auto host = gateway::GatewayHost::Start(options);
  ASSERT_TRUE(host.ok()) << host.status();
  const auto store = *LocalBlobStore::Open(folder.path() / "state/store", nullptr);
  ASSERT_TRUE(store->Put(std::as_bytes(std::span("model", 5))).ok());

  GatewayOptions there;
  there.address = (*host)->server().address();
  const auto client =
      GatewayClient::Open(there, *LocalBlobStore::Open(folder.path() / "local", nullptr), {});
  ASSERT_TRUE(client.ok()) << client.status();
  const absl::StatusOr<std::string> name = (*client)->Create(gateway::ChainSpec(), "", {});
  ASSERT_TRUE(name.ok()) << name.status();

  rpc::ChannelOptions channel;
  channel.address = there.address;
  const auto other = *rpc::Channel::Open(channel);
  grpc::ClientContext context;
  pb::WatchWorkflowRequest request;
  request.set_name(*name);
  const auto watcher = pb::Workflows::NewStub(other->grpc())->WatchWorkflow(&context, request);
  pb::WatchWorkflowEvent event;
  ASSERT_TRUE(watcher->Read(&event)) << "the only place is its";

  std::atomic<int> asked{0};
  const StepContext told(std::make_shared<CancelToken>(), [&](const Progress& progress) {
    asked += progress.detail.find("no free watch slot") != std::string::npos ? 1 : 0;
  });
  auto watching = std::async(std::launch::async, [&] { return (*client)->Watch(*name, told); });
  EXPECT_TRUE(WaitFor([&] { return asked > 0; }));
  released = true;
  const absl::StatusOr<pb::Workflow> ended = watching.get();
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->state(), pb::STATE_SUCCEEDED);
  EXPECT_EQ(ended->steps_size(), gateway::ChainSpec().steps().steps_size()) << "with its steps";
  context.TryCancel();
}

// From $TRACEPARENT through the command to the gateway's call.
TEST(ClientTest, ACommandIsASpanOfItsCallersTrace) {
  const TempDir folder = *TempDir::Create();
  metrics::Registry registry;
  Collector collector;
  gateway::FakeServices services;
  gateway::GatewayHost::Options options;
  options.config.mutable_server()->set_listen("127.0.0.1:0");
  options.config.mutable_server()->mutable_tracing()->mutable_collector()->set_address(
      collector.address());
  options.config.set_state_dir((folder.path() / "state").string());
  options.config.mutable_blob_limits()->set_min_free_bytes(1);
  options.channels = services.Channels();
  options.registry = &registry;
  const auto host = gateway::GatewayHost::Start(options);
  ASSERT_TRUE(host.ok()) << host.status();
  const std::string caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  ::setenv("TRACEPARENT", caller.c_str(), 1);
  EXPECT_EQ(CommandTraceparent(), caller) << "nobody would have a span of its own";
  ::setenv("OTEL_EXPORTER_OTLP_ENDPOINT", ("http://" + collector.address() + "/").c_str(), 1);
  StepContext context;
  context.set_traceparent(CommandTraceparent());
  GatewayOptions there;
  there.address = (*host)->server().address();
  {
    const auto client = GatewayClient::Open(
        there, *LocalBlobStore::Open(folder.path() / "local", nullptr), context);
    ASSERT_TRUE(client.ok()) << client.status();
    ASSERT_TRUE((*client)->List({.limit = 1}, context).ok());
  }
  ::unsetenv("TRACEPARENT");
  ::unsetenv("OTEL_EXPORTER_OTLP_ENDPOINT");
  EXPECT_EQ(CommandTraceparent(), "");
  const auto command = collector.Find("quench");
  EXPECT_EQ(command.service, "quench");
  EXPECT_EQ(command.span.parent_span_id(), std::string("\x00\xf0\x67\xaa\x0b\xa9\x02\xb7", 8));
  constexpr char kList[] = "quench.gateway.v1.Workflows/ListWorkflows";
  ASSERT_TRUE(WaitFor([&] { return !collector.Named(kList).empty(); }));
  EXPECT_TRUE(IsBelow(collector.Find(kList), command));
}

TEST(ClientTest, ShowsTheUseOfTenants) {
  const TempDir folder = *TempDir::Create();
  ASSERT_EQ(::setenv("XDG_CACHE_HOME", (folder.path() / "cache").c_str(), 1), 0);
  metrics::Registry registry;
  gateway::FakeServices services;
  gateway::GatewayHost::Options options;
  options.config.mutable_server()->set_listen("127.0.0.1:0");
  options.config.set_state_dir((folder.path() / "state").string());
  options.config.mutable_blob_limits()->set_min_free_bytes(1);
  auto* red = options.config.mutable_tenants()->add_tenant();
  red->set_name("red");
  red->set_weight(3);
  red->set_max_step_seconds_per_day(3600);
  options.channels = services.Channels();
  options.registry = &registry;
  const auto host = gateway::GatewayHost::Start(options);
  ASSERT_TRUE(host.ok()) << host.status();
  TenantJob job;
  job.gateway.address = (*host)->server().address();
  const auto printed = [&] {
    ::testing::internal::CaptureStdout();
    const absl::Status status = TenantUsageThere(job, {});
    EXPECT_EQ(status, absl::OkStatus());
    return ::testing::internal::GetCapturedStdout();
  };
  const std::string table = printed();
  EXPECT_THAT(table, HasSubstr("step-seconds today (UTC)"));
  EXPECT_THAT(table, HasSubstr("default "));
  EXPECT_THAT(table, HasSubstr("0/3600\n"));
  job.tenant = "red";
  job.format = "json";
  const std::string json = printed();
  EXPECT_THAT(json, HasSubstr("\"name\": \"red\""));
  EXPECT_THAT(json, HasSubstr("\"weight\": 3"));
  EXPECT_THAT(json, HasSubstr("\"running_steps\": 0"));
  job.tenant = "Red";
  EXPECT_EQ(TenantUsageThere(job, {}).code(), absl::StatusCode::kInvalidArgument);

  const auto client =
      GatewayClient::Open(job.gateway, *LocalBlobStore::Open(folder.path() / "local", nullptr), {});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ((*client)->List({.tenant = "-"}, {})->size(), 0u);
  EXPECT_EQ((*client)->List({.tenant = "Red"}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quench::cli::client_test
