// The gateway as its program runs it: its configuration, its drain.
#include "services/gateway/host.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <future>

#include "common/base/files.h"
#include "common/blobs/digest.h"
#include "google/longrunning/operations.grpc.pb.h"
#include "quench/gateway/v1/workflows.grpc.pb.h"
#include "tests/support/wait.h"
#include "tests/unit/services/gateway/fake_services.h"

namespace quench::gateway {
namespace {

using google::longrunning::Operation;
using google::longrunning::Operations;
using quench::testing::WaitFor;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class HostTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.mutable_server()->set_listen("127.0.0.1:0");
    config_.set_state_dir((folder_.path() / "state").string());
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
    channel.attempts = 1;
    channel_ = *rpc::Channel::Open(channel);
    workflows_ = v1::Workflows::NewStub(channel_->grpc());
    operations_ = Operations::NewStub(channel_->grpc());
    const auto store = LocalBlobStore::Open(folder_.path() / "state" / "store", nullptr);
    ASSERT_TRUE((*store)->Put(std::as_bytes(std::span("model", 5))).ok());
  }
  // "" when it is refused; `status` says why.
  std::string Create(absl::Status* status = nullptr) {
    grpc::ClientContext context;
    v1::CreateWorkflowRequest request;
    *request.mutable_spec() = ChainSpec();
    Operation operation;
    const absl::Status outcome =
        rpc::FromGrpc(workflows_->CreateWorkflow(&context, request, &operation));
    if (status != nullptr) *status = outcome;
    return operation.name();
  }
  absl::Status Wait(const std::string& name) {
    grpc::ClientContext context;
    google::longrunning::WaitOperationRequest request;
    request.set_name(name);
    Operation operation;
    return rpc::FromGrpc(operations_->WaitOperation(&context, request, &operation));
  }

  const TempDir folder_ = *TempDir::Create();
  metrics::Registry registry_;
  FakeServices services_;
  config::v1::GatewayConfig config_;
  std::unique_ptr<GatewayHost> host_;
  std::shared_ptr<rpc::Channel> channel_;
  std::unique_ptr<v1::Workflows::Stub> workflows_;
  std::unique_ptr<Operations::Stub> operations_;
};

// Load balancers learn of it while calls still succeed; then there is one grace for all.
TEST_F(HostTest, ADrainServesUntilItsDelayIsOverAndHasOneGrace) {
  std::atomic<int> running{0};
  services_.script = [&](const std::string&, const StepContext& step) {
    ++running;
    EXPECT_TRUE(WaitFor([&] { return !step.Check().ok(); }));
    return step.Check();
  };
  config_.mutable_server()->mutable_drain_delay()->set_nanos(800'000'000);
  config_.mutable_server()->mutable_grace()->set_seconds(1);
  ASSERT_NO_FATAL_FAILURE(Start());
  const std::string name = Create();
  ASSERT_TRUE(WaitFor([&] { return running > 0; }));
  auto waiting = std::async(std::launch::async, [&] {
    const absl::Status status = Wait(name);
    return std::pair(status, Clock::now());
  });
  const auto begin = Clock::now();
  auto draining = std::async(std::launch::async, [&] {
    host_->Drain();
    return Clock::now() - begin;
  });
  std::this_thread::sleep_for(milliseconds(300));
  absl::Status created;
  EXPECT_NE(Create(&created), "") << created;
  const auto [waited, ended] = waiting.get();
  EXPECT_EQ(waited.code(), absl::StatusCode::kUnavailable) << waited;
  EXPECT_NE(rpc::RetryAfterOf(waited), std::nullopt);
  EXPECT_GE(ended - begin, milliseconds(700));
  EXPECT_LT(ended - begin, milliseconds(1'600)) << "whoever waits holds nothing up";
  // 0.8 s and 1 s: not another grace for the steps that hang.
  EXPECT_LT(draining.get(), milliseconds(2'600));
}

}  // namespace
}  // namespace quench::gateway
