#include "common/rpc/tenant_store.h"

#include "common/rpc/tenants.h"
#include "tests/unit/services/gateway/blobs/blob_server.h"

namespace quench::gateway::tenant_store_test {
namespace {

using absl::StatusCode;

TEST(TenantsTest, WhoseACallIs) {
  EXPECT_EQ(*rpc::TenantOfCall("", ""), "default");
  EXPECT_EQ(*rpc::TenantOfCall("", "red"), "red");
  EXPECT_EQ(*rpc::TenantOfCall("gateway", ""), "default");
  EXPECT_EQ(*rpc::TenantOfCall("gateway", "red"), "red");
  EXPECT_EQ(*rpc::TenantOfCall("red", ""), "red");
  EXPECT_EQ(*rpc::TenantOfCall("red", "red"), "red");
  EXPECT_EQ(rpc::TenantOfCall("red", "blue").status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(rpc::TenantOfCall("default", "red").status().code(), StatusCode::kPermissionDenied);
  for (const std::string& name :
       {std::string("../red"), std::string("Red"), std::string("a/b"), std::string(64, 'a')}) {
    EXPECT_EQ(rpc::TenantOfCall("", name).status().code(), StatusCode::kInvalidArgument) << name;
  }
}

TEST(TenantsTest, WhatTheyAreCalledElsewhere) {
  EXPECT_EQ(rpc::InstanceOf("", "default"), "");
  EXPECT_EQ(rpc::InstanceOf("", "red"), "red");
  EXPECT_EQ(rpc::InstanceOf("main", "default"), "main");
  EXPECT_EQ(rpc::InstanceOf("main", "red"), "main");
  EXPECT_EQ(rpc::InstanceOf("quench/{tenant}", "red"), "quench/red");
}

class TenantStoreTest : public BlobServerTest {
 protected:
  std::shared_ptr<rpc::TenantStore> Store(const std::shared_ptr<rpc::Channel>& channel,
                                          const std::string& tenant, uint64_t max_bytes) {
    copies_ = *rpc::BlobCopies::Open(folder_->path() / "copies", max_bytes, registry_);
    rpc::RemoteBlobsOptions options;
    options.instance = rpc::InstanceOf("", tenant);
    return rpc::MakeRemoteStore(std::make_shared<rpc::RemoteBlobs>(channel, options),
                                *copies_->Of(tenant), copies_, nullptr);
  }
  metrics::Registry registry_;
  std::shared_ptr<rpc::BlobCopies> copies_;
};

TEST_F(TenantStoreTest, ADamagedCopyIsCopiedAgainAndCounted) {
  ASSERT_EQ(server_->Start(), absl::OkStatus());
  ASSERT_TRUE(server_->store().Put(Bytes("weights")).ok());
  const BlobId id = IdOf("weights");
  ASSERT_EQ(Store(server_->channel, rpc::kDefaultTenant, 1000)->Fetch({id}, {}), absl::OkStatus());
  const std::filesystem::path path = (*copies_->Of(rpc::kDefaultTenant))->PathOf(id.hash);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  ASSERT_TRUE(WriteFileAtomically(path, "weighty").ok());
  // As the next process finds it.
  const auto store = Store(server_->channel, rpc::kDefaultTenant, 1000);
  ASSERT_EQ(store->Fetch({id}, {}), absl::OkStatus());
  EXPECT_TRUE(store->local().Open(id.hash).ok());
  EXPECT_EQ(*ReadFile(path), "weights");
  EXPECT_EQ(registry_.Get(metrics::kCasDamaged, metrics::CasPlace::kCopies).Value(), 1);
  EXPECT_EQ(registry_.Get(metrics::kCasRepaired, metrics::CasPlace::kCopies).Value(), 1);
}

// A step that reads more than the limit in its time leaves no more than that behind.
TEST_F(TenantStoreTest, CopiesAreBoundedAndWhatIsHeldStays) {
  ASSERT_EQ(server_->Start(), absl::OkStatus());
  const auto store = Store(server_->channel, rpc::kDefaultTenant, 1000);
  std::vector<BlobId> ids;
  for (int i = 0; i < 8; ++i) {
    const std::string text(300, static_cast<char>('a' + i));
    ASSERT_TRUE(server_->store().Put(Bytes(text)).ok());
    ids.push_back(IdOf(text));
  }
  const std::shared_ptr<void> held = store->Hold({ids[0]});
  for (const BlobId& id : ids) ASSERT_EQ(store->Fetch({id}, {}), absl::OkStatus());
  EXPECT_LE(store->local().Stat()->bytes, 1000u);
  EXPECT_TRUE(store->local().Contains(ids[0].hash));
  EXPECT_FALSE(store->local().Contains(ids[1].hash));
  EXPECT_TRUE(store->local().Contains(ids[7].hash));
  EXPECT_EQ(store->Fetch({ids[1]}, {}), absl::OkStatus()) << "it is still there";
  const absl::Status missing = store->Fetch({IdOf("nobody's")}, {});
  EXPECT_EQ(rpc::ReasonOf(missing), rpc::ReasonName(rpc::Reason::kBlobMissing));
}

// Results that a service publishes for tenant `default` are where clients of that tenant look.
TEST_F(TenantStoreTest, ServicesSpeakForTenantsByTheirToken) {
  const std::filesystem::path path = folder_->path();
  ASSERT_TRUE(WriteFileAtomically(path / "tokens", "gateway " + Sha256Hex("gateway-token")).ok());
  ASSERT_TRUE(WriteFileAtomically(path / "gateway", "gateway-token").ok());
  const auto tokens = *rpc::Callers::Open({path / "tokens", {}, true});
  server_->pool_options.callers = tokens.get();
  ASSERT_EQ(server_->Start(), absl::OkStatus());
  for (const std::string tenant : {"default", "red"}) {
    const auto store = Store(*server_->Connect(path / "gateway"), tenant, 1'000'000);
    ASSERT_TRUE(store->local().Put(Bytes(tenant)).ok());
    EXPECT_EQ(store->Missing({IdOf(tenant)}, {})->size(), 1u);
    ASSERT_EQ(store->Publish({IdOf(tenant)}, {}), absl::OkStatus());
    EXPECT_EQ(store->Missing({IdOf(tenant)}, {})->size(), 0u);
    EXPECT_TRUE((*server_->folders->Of(tenant))->store->Contains(Sha256Hex(tenant)));
  }
  EXPECT_EQ(*server_->Read(ReadName(IdOf("default"))), "default");
  server_->Stop();
}

}  // namespace
}  // namespace quench::gateway::tenant_store_test
