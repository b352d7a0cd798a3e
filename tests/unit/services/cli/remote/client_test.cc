// A client of a gateway in this process, whose services do as a test says.
#include "services/cli/remote/client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <future>

#include "common/base/files.h"
#include "common/blobs/digest.h"
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

TEST(ClientTest, TransfersHaveThePatienceOfCalls) {
  const TempDir folder = *TempDir::Create();
  metrics::Registry registry;
  gateway::FakeServices services;
  gateway::GatewayHost::Options options;
  options.config.mutable_server()->set_listen("127.0.0.1:0");
  options.config.set_state_dir((folder.path() / "state").string());
  options.config.mutable_blob_limits()->set_min_free_bytes(1);
  options.channels = services.Channels();
  options.registry = &registry;
  auto host = gateway::GatewayHost::Start(options);
  ASSERT_TRUE(host.ok()) << host.status();
  GatewayOptions there;
  there.address = (*host)->server().address();
  const auto client =
      GatewayClient::Open(there, *LocalBlobStore::Open(folder.path() / "local", nullptr), {});
  ASSERT_TRUE(client.ok()) << client.status();
  (*client)->set_patience(std::chrono::milliseconds(200));
  host->reset();
  const std::vector<std::filesystem::path> files = {folder.path() / "model"};
  ASSERT_EQ(WriteFileAtomically(files[0], "model"), absl::OkStatus());
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ((*client)->UploadFiles(files, {}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

// Fleets whose models are a part each, at a gateway that has room for the steps of one of them.
class FleetThereTest : public ::testing::Test {
 protected:
  static constexpr int kCells = 129;      // of each model: those of two are more than a part has
  static constexpr int kMostSteps = 300;  // an import, and two steps for each cell, are 259
  static constexpr auto kLong = std::chrono::seconds(60);

  void Start(int models) {
    ASSERT_EQ(::setenv("XDG_CACHE_HOME", (folder_.path() / "cache").c_str(), 1), 0);
    gateway::GatewayHost::Options options;
    options.config.mutable_server()->set_listen("127.0.0.1:0");
    options.config.set_state_dir((folder_.path() / "state").string());
    options.config.mutable_blob_limits()->set_min_free_bytes(1);
    options.config.mutable_tenants()->set_max_queued_steps(kMostSteps);
    options.channels = services_.Channels();
    options.registry = &registry_;
    auto host = gateway::GatewayHost::Start(options);
    ASSERT_TRUE(host.ok()) << host.status();
    host_ = *std::move(host);
    std::string choices;
    for (int i = 0; i < kCells; ++i) choices += fmt::format("choices {{ name: \"c{}\" }}\n", i);
    ASSERT_EQ(WriteFileAtomically(folder_.path() / "options.txtpb", choices), absl::OkStatus());
    std::filesystem::create_directory(folder_.path() / "models");
    for (int i = 0; i < models; ++i) {
      const std::string name = fmt::format("models/m{}.onnx", i);
      ASSERT_EQ(WriteFileAtomically(folder_.path() / name, ModelOf(i)), absl::OkStatus());
    }
    job_.gateway.address = host_->server().address();
    job_.verb = FleetVerb::kCompile;
    job_.id = "f";
    job_.models = {(folder_.path() / "models/*.onnx").string()};
    job_.options = {(folder_.path() / "options.txtpb").string()};
    job_.targets = {"x86-64-v3"};
  }
  static std::string ModelOf(int number) { return fmt::format("this is model {}", number); }
  // The library that FakeServices make of a model.
  static std::string LibraryOf(const std::string& model) {
    const std::string canonical = Sha256Hex("canonical" + Sha256Hex(model));
    return "library" + Sha256Hex("transformed" + canonical);
  }
  // Tells `waits` of how many parts there are while the client waits for the tenant's limit.
  static StepContext Told(const std::function<void(int)>& waits) {
    return {std::make_shared<CancelToken>(), [waits](const Progress& progress) {
              if (progress.stage == "wait for the tenant's limit")
                waits(static_cast<int>(progress.done));
            }};
  }

  const TempDir folder_ = *TempDir::Create();
  metrics::Registry registry_;
  std::atomic<int> imports_{0};
  std::atomic<bool> hold_{false};
  gateway::FakeServices services_;
  std::unique_ptr<gateway::GatewayHost> host_;
  FleetJob job_;
};

TEST_F(FleetThereTest, RetriesEachPartOnceWhenTheLimitHasRoomForIt) {
  services_.script = [this](const std::string& method, const StepContext& step) {
    if (method != "Import") return absl::OkStatus();
    ++imports_;
    EXPECT_TRUE(WaitFor([&] { return !hold_ || !step.Check().ok(); }, kLong));
    return absl::InvalidArgumentError("it is damaged");
  };
  ASSERT_NO_FATAL_FAILURE(Start(2));
  constexpr char kFailed[] = "258 of 258 cells of fleet `f` have not succeeded";
  EXPECT_THAT(FleetThere(job_, {}).ToString(), HasSubstr(kFailed));
  EXPECT_EQ(imports_, 2);
  std::atomic<int> waited{0};
  const StepContext told = Told([&](int) {
    ++waited;
    hold_ = false;
  });
  imports_ = 0;
  hold_ = true;
  EXPECT_THAT(FleetThere(job_, told).ToString(), HasSubstr(kFailed));
  EXPECT_GE(waited, 1);
  EXPECT_EQ(imports_, 2) << "what fails again is not retried again";

  FleetJob retry = job_;
  retry.verb = FleetVerb::kRetry;
  waited = 0;
  hold_ = true;
  ::testing::internal::CaptureStdout();
  const absl::Status retried = FleetThere(retry, told);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("2 workflows of fleet f are queued again"));
  EXPECT_EQ(retried, absl::OkStatus());
  EXPECT_GE(waited, 1);
  retry.id = "nobody";
  EXPECT_EQ(FleetThere(retry, told).code(), absl::StatusCode::kNotFound);
}

TEST_F(FleetThereTest, FetchesWhileItAsksAndEndsWhenTheFleetIsCancelled) {
  // The first model becomes libraries, the others wait until they are cancelled.
  services_.script = [this](const std::string& method, const StepContext& step) {
    if (method == "Import" && imports_++ > 0) {
      EXPECT_TRUE(WaitFor([&] { return !step.Check().ok(); }, kLong));
    }
    return step.Check();
  };
  ASSERT_NO_FATAL_FAILURE(Start(3));
  const std::string library = LibraryOf(ModelOf(0));
  const auto store = *LocalBlobStore::Open(folder_.path() / "state/store", nullptr);
  ASSERT_TRUE(store->Put(std::as_bytes(std::span(library.data(), library.size()))).ok());
  job_.output = (folder_.path() / "out").string();
  std::atomic<int> parts{0};
  const StepContext told = Told([&](int there) { parts = there; });
  auto asking = std::async(std::launch::async, [&] { return FleetThere(job_, told); });
  EXPECT_TRUE(WaitFor([&] { return parts == 2; }, kLong)) << "and the third has no room";
  const std::filesystem::path last = folder_.path() / "out/m0/c128/x86-64-v3/model.so";
  EXPECT_TRUE(WaitFor([&] { return std::filesystem::exists(last); }, kLong));
  FleetJob cancel = job_;
  cancel.verb = FleetVerb::kCancel;
  EXPECT_EQ(FleetThere(cancel, {}), absl::OkStatus());
  const absl::Status ended = asking.get();
  EXPECT_EQ(ended.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(ended.ToString(), HasSubstr("fleet `f` was cancelled meanwhile"));
  const auto client = GatewayClient::Open(
      job_.gateway, *LocalBlobStore::Open(folder_.path() / "local", nullptr), {});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ((*client)->List({.filter = "fleet = f"}, {})->size(), 2u);
}

}  // namespace
}  // namespace quench::cli::client_test
