#include "services/gateway/blobs/action_cache.h"

#include <grpcpp/grpcpp.h>

#include "common/rpc/remote_action_cache.h"
#include "tests/unit/services/gateway/blobs/blob_server.h"

namespace quench::gateway::action_cache_test {
namespace {

using absl::StatusCode;
using metrics::CacheResult;

class ActionCacheTest : public BlobServerTest {
 protected:
  void SetUp() override {
    BlobServerTest::SetUp();
    Start();
  }
  // Tokens are optional: nobody but services needs one.
  void Start() {
    const std::filesystem::path path = folder_->path();
    ASSERT_TRUE(WriteFileAtomically(path / "tokens", "red " + Sha256Hex("red-token") +
                                                         "\ngateway " + Sha256Hex("gateway-token") +
                                                         "\n")
                    .ok());
    ASSERT_TRUE(WriteFileAtomically(path / "red", "red-token").ok());
    ASSERT_TRUE(WriteFileAtomically(path / "gateway", "gateway-token").ok());
    tokens_ = *rpc::Callers::Open({path / "tokens", {}, true});
    server_->pool_options.callers = tokens_.get();
    ASSERT_EQ(server_->Start(), absl::OkStatus());
    cache_.emplace(*server_->Connect(path / "gateway"), rpc::kDefaultTenant);
  }
  void TearDown() override { server_->Stop(); }
  double Count(CacheResult result) {
    return server_->registry.Get(metrics::kActionCacheRequests, result).Value();
  }
  static void Name(const std::string& text, reapi::Digest* digest) {
    digest->set_hash(Sha256Hex(text));
    digest->set_size_bytes(static_cast<int64_t>(text.size()));
  }
  void Put(const std::string& text) { ASSERT_TRUE(server_->store().Put(Bytes(text)).ok()); }

  const std::string key_ = Sha256Hex("key");
  const StepContext step_;
  std::unique_ptr<rpc::Callers> tokens_;
  std::optional<rpc::RemoteActionCache> cache_;
};

TEST_F(ActionCacheTest, AResultIsKnownAsLongAsItsBlobsAreThere) {
  EXPECT_EQ(*cache_->Get(key_, step_), std::nullopt);
  EXPECT_EQ(Count(CacheResult::kMiss), 1);
  reapi::ActionResult result;
  Name("library", result.add_output_files()->mutable_digest());
  Name("log", result.mutable_stdout_digest());
  ASSERT_EQ(cache_->Put(key_, result.SerializeAsString(), step_), absl::OkStatus());
  Put("library");
  EXPECT_EQ(*cache_->Get(key_, step_), std::nullopt);
  EXPECT_EQ(Count(CacheResult::kIncomplete), 1);
  Put("log");
  reapi::ActionResult inlined = result;
  inlined.set_stdout_raw("log");
  EXPECT_EQ(*cache_->Get(key_, step_), inlined.SerializeAsString());
  EXPECT_EQ(Count(CacheResult::kHit), 1);
  // The view of services on this machine in the folder.
  EXPECT_EQ(*(*LocalActionCache::Open(server_->store().root()))->Get(key_, step_),
            result.SerializeAsString());
  ASSERT_TRUE(server_->store().Prune(3).ok());
  EXPECT_EQ(*cache_->Get(key_, step_), std::nullopt);
}

TEST_F(ActionCacheTest, FilesOfTreesCount) {
  reapi::Tree tree;
  Name("a", tree.mutable_root()->add_files()->mutable_digest());
  Name("b", tree.add_children()->add_files()->mutable_digest());
  reapi::ActionResult result;
  Name(tree.SerializeAsString(), result.add_output_directories()->mutable_tree_digest());
  rpc::TenantStore& store = *(*server_->folders->Of(rpc::kDefaultTenant))->shared;
  EXPECT_FALSE(*IsComplete(result, store, step_));
  Put(tree.SerializeAsString());
  EXPECT_FALSE(*IsComplete(result, store, step_));
  Put("a");
  EXPECT_FALSE(*IsComplete(result, store, step_));
  Put("b");
  EXPECT_TRUE(*IsComplete(result, store, step_));
  Put("no tree");
  Name("no tree", result.mutable_output_directories(0)->mutable_tree_digest());
  EXPECT_FALSE(*IsComplete(result, store, step_));
}

TEST_F(ActionCacheTest, ADamagedEntryIsAMiss) {
  const auto local = *LocalActionCache::Open(server_->store().root());
  ASSERT_EQ(local->Put(key_, "not an ActionResult", step_), absl::OkStatus());
  EXPECT_EQ(*cache_->Get(key_, step_), std::nullopt);
  EXPECT_EQ(Count(CacheResult::kMiss), 1);
}

TEST_F(ActionCacheTest, BadRequestsAreRefused) {
  EXPECT_EQ(cache_->Get("key", step_).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(cache_->Put(key_, "not an ActionResult", step_).code(), StatusCode::kInvalidArgument);
  rpc::RemoteActionCache other(*server_->Connect(folder_->path() / "gateway"), "No-Tenant");
  EXPECT_EQ(other.Get(key_, step_).status().code(), StatusCode::kInvalidArgument);
}

// Users of the gateway may not say what a step gave.
TEST_F(ActionCacheTest, OnlyServicesWriteIt) {
  rpc::RemoteActionCache user(*server_->Connect(folder_->path() / "red"), "red");
  EXPECT_EQ(user.Put(key_, "", step_).code(), StatusCode::kPermissionDenied);
  rpc::RemoteActionCache anybody(server_->channel, "");
  EXPECT_EQ(anybody.Put(key_, "", step_).code(), StatusCode::kPermissionDenied);
  rpc::RemoteActionCache service(*server_->Connect(folder_->path() / "gateway"), "red");
  EXPECT_TRUE(service.Put(key_, "", step_).ok());
  EXPECT_EQ(*user.Get(key_, step_), "");
  EXPECT_EQ(*anybody.Get(key_, step_), std::nullopt);
}

// A key can be computed by whoever knows the request: who writes it decides what others get.
TEST_F(ActionCacheTest, NobodyWritesItWhereNobodyHasAToken) {
  server_->Stop();
  server_->pool_options.callers = nullptr;
  ASSERT_EQ(server_->Start(), absl::OkStatus());
  for (const std::string instance : {"", "default", "red", "gateway"}) {
    rpc::RemoteActionCache anybody(server_->channel, instance);
    const absl::Status status = anybody.Put(key_, "", step_);
    EXPECT_EQ(status.code(), StatusCode::kPermissionDenied) << instance;
    EXPECT_NE(MessageOf(status).find("token"), std::string::npos) << MessageOf(status);
    EXPECT_EQ(*anybody.Get(key_, step_), std::nullopt) << instance;
  }
}

// Stores stdout as a blob and answers with its digest, as bazel-remote does unless it is asked.
class OutliningCache final : public reapi::ActionCache::Service {
 public:
  explicit OutliningCache(LocalBlobStore& store) : store_(store) {}
  bool ever_inlines = true;

  grpc::Status UpdateActionResult(grpc::ServerContext*,
                                  const reapi::UpdateActionResultRequest* request,
                                  reapi::ActionResult* response) override {
    result_ = request->action_result();
    text_ = result_.stdout_raw();
    result_.clear_stdout_raw();
    result_.mutable_stdout_digest()->set_hash(*store_.Put(Bytes(text_)));
    result_.mutable_stdout_digest()->set_size_bytes(static_cast<int64_t>(text_.size()));
    *response = result_;
    return grpc::Status::OK;
  }
  grpc::Status GetActionResult(grpc::ServerContext*, const reapi::GetActionResultRequest* request,
                               reapi::ActionResult* response) override {
    *response = result_;
    if (request->inline_stdout() && ever_inlines) response->set_stdout_raw(text_);
    return grpc::Status::OK;
  }

 private:
  LocalBlobStore& store_;
  reapi::ActionResult result_;
  std::string text_;
};

TEST(OtherActionCacheTest, WhatAServerKeepsAsABlobIsFetched) {
  const TempDir folder = *TempDir::Create();
  metrics::Registry registry;
  rpc::CallPool::Options options = BlobPoolOptions();
  options.registry = &registry;
  const auto folders = *BlobFolders::Open(folder.path() / "store", uint64_t{1} << 30);
  rpc::CallPool pool(options);
  BlobServices services(*folders, pool);
  OutliningCache cache(*(*folders->Of(rpc::kDefaultTenant))->store);
  std::vector<grpc::Service*> served = {&cache};
  for (grpc::Service* each : services.services()) {
    if (dynamic_cast<reapi::ActionCache::CallbackService*>(each) == nullptr) served.push_back(each);
  }
  rpc::ServerOptions server_options;
  server_options.registry = &registry;
  const auto server = *rpc::Server::Start(server_options, served);
  rpc::ChannelOptions channel;
  channel.address = server->address();
  rpc::RemoteActionCache remote(*rpc::Channel::Open(channel), "");
  reapi::ActionResult result;
  result.set_stdout_raw("what the step gave");
  const std::string key = Sha256Hex("key");
  ASSERT_EQ(remote.Put(key, result.SerializeAsString(), {}), absl::OkStatus());
  for (const bool inlines : {true, false}) {
    cache.ever_inlines = inlines;
    const auto got = remote.Get(key, {});
    ASSERT_TRUE(got.ok() && *got) << got.status();
    reapi::ActionResult read;
    ASSERT_TRUE(read.ParseFromString(**got));
    EXPECT_EQ(read.stdout_raw(), "what the step gave") << inlines;
  }
  ASSERT_TRUE((*folders->Of(rpc::kDefaultTenant))->store->Prune(0).ok());
  EXPECT_EQ(*remote.Get(key, {}), std::nullopt) << "incomplete";
}

}  // namespace
}  // namespace quench::gateway::action_cache_test
