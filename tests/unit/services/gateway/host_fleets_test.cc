// Fleets and webhooks of a gateway as its program runs it.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/rpc/errors.h"
#include "google/longrunning/operations.pb.h"
#include "quench/gateway/v1/fleets.grpc.pb.h"
#include "quench/gateway/v1/workflows.grpc.pb.h"
#include "services/gateway/host.h"
#include "tests/support/http_server.h"
#include "tests/support/matchers.h"
#include "tests/support/wait.h"
#include "tests/unit/services/gateway/fake_services.h"

namespace quench::gateway::host_fleets_test {
namespace {

using quench::testing::HasSubstr;
using quench::testing::HttpReply;
using quench::testing::HttpRequest;
using quench::testing::HttpServer;
using quench::testing::WaitFor;

class HostFleetsTest : public ::testing::Test {
 protected:
  void Start() {
    host_.reset();
    GatewayHost::Options options;
    options.config.mutable_server()->set_listen("127.0.0.1:0");
    options.config.set_state_dir((folder_.path() / "state").string());
    options.config.mutable_blob_limits()->set_min_free_bytes(1);
    options.config.set_max_live_bytes(1);  // one workflow in memory
    if (!allowed_.empty()) options.config.mutable_webhooks()->add_allowed_urls(allowed_);
    options.channels = services_.Channels();
    options.registry = &registry_;
    auto host = GatewayHost::Start(options);
    ASSERT_TRUE(host.ok()) << host.status();
    host_ = *std::move(host);
    rpc::ChannelOptions channel;
    channel.address = host_->server().address();
    channel_ = *rpc::Channel::Open(channel);
    workflows_ = v1::Workflows::NewStub(channel_->grpc());
    fleets_ = v1::Fleets::NewStub(channel_->grpc());
    const auto store = LocalBlobStore::Open(folder_.path() / "state/store", nullptr);
    ASSERT_TRUE((*store)->Put(std::as_bytes(std::span("model", 5))).ok());
  }
  absl::Status Create(int shard, int shards, const std::string& webhook = "",
                      const std::string& request_id = "", bool validate_only = false) {
    v1::CreateWorkflowRequest request;
    request.set_request_id(request_id);
    request.set_validate_only(validate_only);
    v1::WorkflowSpec& spec = *request.mutable_spec();
    spec = ChainSpec();
    (*spec.mutable_labels())["team"] = "x";
    spec.mutable_fleet()->set_fleet("f");
    spec.mutable_fleet()->set_shard(shard);
    spec.mutable_fleet()->set_shards(shards);
    if (!webhook.empty()) spec.add_webhooks()->set_url(webhook);
    grpc::ClientContext context;
    google::longrunning::Operation operation;
    return rpc::FromGrpc(workflows_->CreateWorkflow(&context, request, &operation));
  }
  absl::StatusOr<v1::Fleet> Get() {
    grpc::ClientContext context;
    v1::GetFleetRequest request;
    request.set_id("f");
    v1::GetFleetResponse response;
    const absl::Status status = rpc::FromGrpc(fleets_->GetFleet(&context, request, &response));
    if (!status.ok()) return status;
    return response.fleet();
  }
  bool Ends(v1::State state) {
    return WaitFor([&] {
      const absl::StatusOr<v1::Fleet> fleet = Get();
      return fleet.ok() && fleet->state() == state;
    });
  }

  const TempDir folder_ = *TempDir::Create();
  std::string allowed_;
  metrics::Registry registry_;
  FakeServices services_;
  std::unique_ptr<GatewayHost> host_;
  std::shared_ptr<rpc::Channel> channel_;
  std::unique_ptr<v1::Workflows::Stub> workflows_;
  std::unique_ptr<v1::Fleets::Stub> fleets_;
};

TEST_F(HostFleetsTest, AFleetIsAskedForWatchedCancelledAndRetried) {
  ASSERT_NO_FATAL_FAILURE(Start());
  std::atomic<bool> hold{true};
  services_.script = [&](const std::string&, const StepContext& step) {
    EXPECT_TRUE(WaitFor([&] { return !hold || !step.Check().ok(); }));
    return step.Check();
  };
  EXPECT_TRUE(absl::IsNotFound(Get().status()));
  for (int shard = 0; shard < 5; ++shard) ASSERT_EQ(Create(shard, 5), absl::OkStatus());
  EXPECT_THAT(Create(7, 6).ToString(), HasSubstr("must be 0 to 5"));
  EXPECT_THAT(Create(0, 5).ToString(), HasSubstr("has another workflow as shard 0"));
  absl::StatusOr<v1::Fleet> fleet = Get();
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_EQ(fleet->created_shards(), 5);
  EXPECT_EQ(fleet->labels().at("team"), "x");
  grpc::ClientContext context;
  v1::CancelFleetRequest cancel;
  cancel.set_id("f");
  v1::CancelFleetResponse cancelled;
  ASSERT_TRUE(fleets_->CancelFleet(&context, cancel, &cancelled).ok());
  EXPECT_EQ(cancelled.cancelled(), 5);
  EXPECT_TRUE(Ends(v1::STATE_CANCELLED));
  hold = false;
  grpc::ClientContext again;
  v1::RetryFleetRequest retry;
  retry.set_id("f");
  v1::RetryFleetResponse retried;
  ASSERT_TRUE(fleets_->RetryFleet(&again, retry, &retried).ok());
  EXPECT_EQ(retried.retried(), 5);
  EXPECT_TRUE(Ends(v1::STATE_SUCCEEDED));
  EXPECT_EQ(Get()->steps().succeeded(), 15);
  grpc::ClientContext listing;
  v1::ListFleetsResponse listed;
  ASSERT_TRUE(fleets_->ListFleets(&listing, {}, &listed).ok());
  EXPECT_EQ(listed.fleets_size(), 1);
}

TEST_F(HostFleetsTest, ValidationCreatesNothing) {
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_EQ(Create(0, 1, "", "r", true), absl::OkStatus());
  EXPECT_TRUE(absl::IsNotFound(Get().status()));
  EXPECT_EQ(Create(0, 0, "", "r", true).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(HostFleetsTest, ReceiversAreToldAlsoByTheNextGateway) {
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_THAT(Create(0, 1, "http://127.0.0.1:9/x").ToString(), HasSubstr("webhooks"));
  std::mutex mutex;
  std::vector<std::string> bodies;
  std::atomic<bool> works{false};
  HttpServer receiver([&](const HttpRequest& request) {
    if (!works) return HttpReply{500, "", {}};
    const std::lock_guard lock(mutex);
    bodies.push_back(request.body);
    return HttpReply{204, "", {}};
  });
  allowed_ = receiver.Url("/told");
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_EQ(Create(0, 1, receiver.Url("/told")), absl::OkStatus());
  EXPECT_TRUE(Ends(v1::STATE_SUCCEEDED));
  ASSERT_NO_FATAL_FAILURE(Start());
  works = true;
  EXPECT_TRUE(WaitFor([&] {
    const std::lock_guard lock(mutex);
    return bodies.size() >= 2;
  }));
  const std::lock_guard lock(mutex);
  std::string all;
  for (const std::string& body : bodies) all += body;
  EXPECT_THAT(all, HasSubstr(R"("type":"quench.workflow.ended")"));
  EXPECT_THAT(all, HasSubstr(R"("type":"quench.fleet.ended")"));
  EXPECT_THAT(all, HasSubstr(R"("state":"STATE_SUCCEEDED")"));
}

}  // namespace
}  // namespace quench::gateway::host_fleets_test
