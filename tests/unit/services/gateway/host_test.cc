// The gateway as its program runs it: its configuration, its drain.
#include "services/gateway/host.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>

#include "common/base/files.h"
#include "common/blobs/digest.h"
#include "common/rpc/remote_blobs.h"
#include "google/longrunning/operations.grpc.pb.h"
#include "quench/gateway/v1/tenants.grpc.pb.h"
#include "quench/gateway/v1/workflows.grpc.pb.h"
#include "tests/support/matchers.h"
#include "tests/support/wait.h"
#include "tests/unit/services/gateway/fake_services.h"

namespace quench::gateway::host_test {
namespace {

using google::longrunning::Operation;
using google::longrunning::Operations;
using quench::testing::HasSubstr;
using quench::testing::WaitFor;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class HostTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.mutable_server()->set_listen("127.0.0.1:0");
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
    channel.attempts = 1;
    channel_ = *rpc::Channel::Open(channel);
    workflows_ = v1::Workflows::NewStub(channel_->grpc());
    operations_ = Operations::NewStub(channel_->grpc());
    const auto store =
        LocalBlobStore::Open(std::filesystem::path(config_.state_dir()) / "store", nullptr);
    ASSERT_TRUE((*store)->Put(std::as_bytes(std::span("model", 5))).ok());
  }
  // "" when it is refused; `status` says why.
  std::string Create(absl::Status* status = nullptr,
                     const std::optional<BlobId>& model = std::nullopt) {
    grpc::ClientContext context;
    if (!token_.empty()) context.AddMetadata(rpc::kAuthorizationKey, "Bearer " + token_);
    v1::CreateWorkflowRequest request;
    *request.mutable_spec() = ChainSpec();
    if (model) {
      auto& import = *request.mutable_spec()->mutable_steps()->mutable_steps(0);
      auto& file = *import.mutable_import_model()->mutable_model()->mutable_file();
      file.set_hash(model->hash);
      file.set_size_bytes(static_cast<int64_t>(model->size));
    }
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
  std::string token_;  // of who creates
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

TEST_F(HostTest, RolesReachTheGateway) {
  const auto tokens = folder_.path() / "tokens";
  ASSERT_TRUE(WriteFileAtomically(tokens, "red " + Sha256Hex("look") + " role=viewer\nred " +
                                              Sha256Hex("work") + "\nops " + Sha256Hex("all") +
                                              " role=operator\n")
                  .ok());
  config_.mutable_server()->set_token_file(tokens.string());
  auto* blue = config_.mutable_tenants()->add_tenant();
  blue->set_name("blue");
  blue->set_weight(5);
  blue->set_max_kept_bytes(77);
  Start();
  const auto usage = [&](const std::string& tenant) {
    grpc::ClientContext context;
    context.AddMetadata(rpc::kAuthorizationKey, "Bearer " + token_);
    v1::ListTenantsRequest request;
    request.set_tenant(tenant);
    v1::ListTenantsResponse response;
    const absl::Status status = rpc::FromGrpc(
        v1::Tenants::NewStub(channel_->grpc())->ListTenants(&context, request, &response));
    EXPECT_EQ(status.ok(), response.tenants_size() > 0) << status;
    return response;
  };
  token_ = "look";
  absl::Status status;
  EXPECT_EQ(Create(&status), "");
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_EQ(usage("").tenants(0).name(), "red");
  EXPECT_EQ(usage("blue").tenants_size(), 0);
  token_ = "work";
  EXPECT_EQ(Create(&status), "");
  EXPECT_EQ(rpc::ReasonOf(status), "BLOB_MISSING") << "it may: " << status;
  token_ = "all";
  ASSERT_EQ(usage("").tenants_size(), 2);
  EXPECT_EQ(usage("").tenants(0).limits().weight(), 5);
  EXPECT_EQ(usage("blue").tenants(0).limits().max_kept_bytes(), 77);
  grpc::ClientContext context;
  context.AddMetadata(rpc::kAuthorizationKey, "Bearer " + token_);
  v1::ListWorkflowsRequest request;
  request.set_tenant("-");
  v1::ListWorkflowsResponse response;
  EXPECT_TRUE(workflows_->ListWorkflows(&context, request, &response).ok());
}

TEST_F(HostTest, WrongLimitsOfTenantsAreNamed) {
  const auto refused = [this](const std::string& name, auto change) {
    config_.mutable_tenants()->Clear();
    auto* tenant = config_.mutable_tenants()->add_tenant();
    tenant->set_name(name);
    change(*tenant);
    GatewayHost::Options options;
    options.config = config_;
    options.channels = services_.Channels();
    options.registry = &registry_;
    return MessageOf(GatewayHost::Start(options).status());
  };
  using Limits = config::v1::TenantLimits;
  EXPECT_THAT(refused("Red", [](Limits&) {}), HasSubstr("`Red` is not a tenant"));
  EXPECT_THAT(refused("red", [](Limits& it) { it.set_weight(1001); }),
              HasSubstr("weight 1001: must be from 1 to 1000"));
  EXPECT_THAT(refused("red", [](Limits& it) { it.set_weight(-1); }), HasSubstr("weight -1"));
  EXPECT_THAT(refused("red", [](Limits& it) { it.set_max_step_seconds_per_day(-1); }),
              HasSubstr("`red`: limits must not be negative"));
  EXPECT_THAT(refused("red",
                      [this](Limits& it) {
                        it.set_weight(2);
                        config_.mutable_tenants()->add_tenant()->set_name("red");
                      }),
              HasSubstr("`red` is there twice"));
}

TEST_F(HostTest, PlacesAreConfigured) {
  config_.mutable_calls()->set_threads(-1);
  const auto refused = GatewayHost::Start({.config = config_, .channels = services_.Channels()});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  config_.mutable_calls()->set_threads(0);
  config_.mutable_calls()->set_max_watches(1);
  std::atomic<bool> released{false};
  services_.script = [&](const std::string&, const StepContext& step) {
    EXPECT_TRUE(WaitFor([&] { return released || !step.Check().ok(); }));
    return step.Check();
  };
  ASSERT_NO_FATAL_FAILURE(Start());
  const std::string name = Create();
  auto waiting = std::async(std::launch::async, [&] {
    absl::Status status;
    const bool ended = WaitFor([&] {
      status = Wait(name);
      return rpc::ReasonOf(status) != "SLOTS_FULL";  // the one below may have had the place
    });
    return ended ? status : absl::UnknownError("never had a place");
  });
  absl::Status second;
  EXPECT_TRUE(WaitFor([&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + milliseconds(50));
    google::longrunning::WaitOperationRequest request;
    request.set_name(name);
    Operation operation;
    second = rpc::FromGrpc(operations_->WaitOperation(&context, request, &operation));
    return rpc::ReasonOf(second) == "SLOTS_FULL";
  })) << second;
  released = true;
  EXPECT_EQ(waiting.get(), absl::OkStatus());
  (void)registry_.Text();
  EXPECT_GT(registry_.Get(metrics::kCasFree).Value(), 0);
}

// On a file system of 8 MiB, mounted for a second run of this program: clients that fill the disk
// with blobs leave the database its room.
TEST_F(HostTest, ADiskFullOfBlobsHasRoomForWorkflows) {
  const char* const disk = std::getenv("QUENCH_SMALL_DISK");
  if (disk == nullptr) {
    const std::string folder = (folder_.path() / "disk").string();
    std::filesystem::create_directory(folder);
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    const std::string mount =
        fmt::format("unshare {} sh -c 'mount -t tmpfs -o size=8m none {} && {{ test -z \"$0\" || ",
                    geteuid() == 0 ? "--mount" : "--map-root-user --mount", folder);
    if (std::system((mount + "true; }' '' 2>/dev/null").c_str()) != 0) {
      GTEST_SKIP() << "no right to mount a small file system";
    }
    const std::string run =
        fmt::format("QUENCH_SMALL_DISK={} {}exec $0 --gtest_filter=HostTest.ADiskFull*; }}' {}",
                    folder, mount, self);
    EXPECT_EQ(std::system(run.c_str()), 0);
    return;
  }
  config_.set_state_dir(std::string(disk) + "/state");
  config_.mutable_blob_limits()->set_min_free_bytes(int64_t{2} << 20);
  ASSERT_NO_FATAL_FAILURE(Start());
  rpc::RemoteBlobs remote(channel_, {});
  const auto local = *LocalBlobStore::Open(folder_.path() / "local", nullptr);
  // Blobs that workflows need stay, and so nothing can go.
  services_.script = [&](const std::string&, const StepContext& step) {
    EXPECT_TRUE(WaitFor([&] { return !step.Check().ok(); }));
    return step.Check();
  };
  std::vector<BlobId> sent;
  absl::Status status;
  for (int i = 0; i < 10; ++i) {
    const std::string text(1 << 20, static_cast<char>('a' + i));
    sent.push_back({*local->Put(std::as_bytes(std::span(text))), text.size()});
    status = remote.Upload(*local, {sent.back()}, {});
    if (!status.ok()) break;
    ASSERT_TRUE(Create(&status, sent.back()).starts_with("operations/")) << status;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_GE(sent.size(), 4u);
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(Create(&status, sent.front()).starts_with("operations/")) << status;
  }
}

}  // namespace
}  // namespace quench::gateway::host_test
