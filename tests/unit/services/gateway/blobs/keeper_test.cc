#include "services/gateway/blobs/keeper.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/support/wait.h"
#include "tests/unit/services/gateway/blobs/blob_server.h"

namespace quench::gateway {
namespace {

using quench::testing::WaitFor;

class BlobKeeperTest : public BlobServerTest {
 protected:
  void SetUp() override {
    BlobServerTest::SetUp();
    auto folders = BlobFolders::Open(folder_->path() / "state", 1000, 0, nullptr, registry_);
    ASSERT_TRUE(folders.ok()) << folders.status();
    folders_ = *std::move(folders);
    options_.registry = &registry_;
    options_.limits = {100, 200, 1000, std::chrono::seconds(0)};
    options_.period = std::chrono::hours(1);
  }
  BlobId Put(const std::string& tenant, const std::string& text) {
    const auto blobs = *folders_->Of(tenant);
    EXPECT_TRUE(blobs->store->Put(Bytes(text)).ok());
    return IdOf(text);
  }
  bool Has(const std::string& tenant, const BlobId& id) {
    return (*folders_->Of(tenant))->store->Contains(id.hash);
  }

  metrics::Registry registry_;
  std::unique_ptr<BlobFolders> folders_;
  BlobKeeperOptions options_;
};

TEST_F(BlobKeeperTest, EvictsByItselfAroundPinsAndCounts) {
  const BlobId old = Put(rpc::kDefaultTenant, std::string(90, 'a')),
               pinned = Put(rpc::kDefaultTenant, std::string(90, 'b')),
               theirs = Put("red", std::string(90, 'b'));
  options_.pinned = [&](const std::string& tenant, const std::string& hash) {
    return tenant == rpc::kDefaultTenant && hash == pinned.hash;
  };
  const BlobKeeper keeper(*folders_, options_);
  ASSERT_TRUE(WaitFor([&] { return !Has(rpc::kDefaultTenant, old) && !Has("red", theirs); }));
  EXPECT_TRUE(Has(rpc::kDefaultTenant, pinned));
  ASSERT_TRUE(WaitFor([&] { return registry_.Get(metrics::kCasSize).Value() == 90; }));
  EXPECT_EQ(registry_.Get(metrics::kCasEvictedBytes).Value(), 180);
  EXPECT_EQ(registry_.Get(metrics::kCasSizeLimit, metrics::CasLimit::kEvict).Value(), 200);
  EXPECT_EQ(registry_.Get(metrics::kCasSizeLimit, metrics::CasLimit::kReject).Value(), 1000);
}

TEST_F(BlobKeeperTest, NoticesSpaceAboveHighBeforeThePeriodEnds) {
  options_.period = std::chrono::milliseconds(5000);
  BlobKeeper keeper(*folders_, options_);
  ASSERT_TRUE(keeper.Sweep().ok());
  const BlobId first = Put(rpc::kDefaultTenant, std::string(150, 'a'));
  ASSERT_TRUE(Has(rpc::kDefaultTenant, first));
  Put(rpc::kDefaultTenant, std::string(100, 'b'));
  EXPECT_TRUE(WaitFor([&] { return !Has(rpc::kDefaultTenant, first); }));
}

// In the steady state a store lies between low and high, and max is a little above: what can go,
// goes.
TEST_F(BlobKeeperTest, AWriteIsRefusedOnlyWhereNothingCanGo) {
  options_.limits = {800, 900, 1000, std::chrono::seconds(300)};
  std::set<std::string> pinned;
  options_.pinned = [&](const std::string&, const std::string& hash) {
    return pinned.contains(hash);
  };
  BlobKeeper keeper(*folders_, options_);
  const BlobId first = Put(rpc::kDefaultTenant, std::string(440, 'a')),
               second = Put("red", std::string(440, 'b'));
  const std::string text(450, 'c');
  const auto blobs = *folders_->Of(rpc::kDefaultTenant);
  {
    const auto upload = blobs->uploads->Begin("one", IdOf(text));
    ASSERT_TRUE(upload.ok()) << upload.status();
    ASSERT_TRUE((*upload)->Append(0, Bytes(text)).ok());
    ASSERT_TRUE((*upload)->Finish().ok());
  }
  EXPECT_FALSE(Has(rpc::kDefaultTenant, first));
  EXPECT_TRUE(Has("red", second) && Has(rpc::kDefaultTenant, IdOf(text)));
  pinned = {second.hash, IdOf(text).hash};
  std::this_thread::sleep_for(std::chrono::milliseconds(250));  // a look just now counts as one
  EXPECT_EQ(blobs->store->Put(Bytes(std::string(400, 'd'))).status().code(),
            absl::StatusCode::kResourceExhausted);
  pinned.clear();
  EXPECT_TRUE(WaitFor([&] { return blobs->store->Put(Bytes(std::string(400, 'd'))).ok(); }));
  EXPECT_FALSE(Has("red", second));
}

// Steps write into the folder from other processes.
TEST_F(BlobKeeperTest, NoticesWhatOthersWrite) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  folders_.reset();
  folders_ = *BlobFolders::Open(folder_->path() / "state", 32 * kMiB);
  options_.limits = {4 * kMiB, 8 * kMiB, 32 * kMiB, std::chrono::seconds(0)};
  const BlobKeeper keeper(*folders_, options_);
  const auto service = *LocalBlobStore::Open(folder_->path() / "state", nullptr);
  for (uint32_t i = 0; i < 12; ++i) {
    ASSERT_TRUE(service->Put(Bytes(RandomText(i, 2 * kMiB))).ok());
  }
  EXPECT_TRUE(WaitFor([&] { return service->Stat()->bytes <= 8 * kMiB; }));
}

TEST_F(BlobKeeperTest, FindsWhatIsDamaged) {
  BlobKeeper keeper(*folders_, options_);
  const BlobId good = Put("red", "good"), bad = Put("red", "bad");
  const std::filesystem::path path = (*folders_->Of("red"))->store->PathOf(bad.hash);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  std::ofstream(path) << "bat";
  ASSERT_TRUE(keeper.Sweep().ok());
  EXPECT_TRUE(Has("red", good));
  EXPECT_FALSE(Has("red", bad));
}

TEST_F(BlobKeeperTest, DropsUploadsThatExpired) {
  const auto blobs = *folders_->Of("red");
  {
    ASSERT_TRUE(blobs->uploads->Begin("one", IdOf("hello")).ok());
  }
  const auto file = std::filesystem::directory_iterator(blobs->store->root() / "uploads")->path();
  timespec old[2];
  ::clock_gettime(CLOCK_REALTIME, &old[0]);
  old[0].tv_sec -= 3700;
  old[1] = old[0];
  ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), old, 0), 0);
  BlobKeeper keeper(*folders_, options_);
  ASSERT_TRUE(keeper.Sweep().ok());
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(BlobKeeperTest, FoldersOfTenantsAreFoundAgain) {
  const BlobId id = Put("red", "hello");
  EXPECT_TRUE(std::filesystem::exists(folder_->path() / "state/tenants/red/blobs"));
  folders_.reset();
  folders_ = *BlobFolders::Open(folder_->path() / "state", 1000);
  EXPECT_EQ(folders_->All().size(), 2u);
  EXPECT_TRUE(Has("red", id));
  EXPECT_EQ(folders_->Of("../red").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quench::gateway
  const auto& damaged = registry_.Get(metrics::kCasDamaged, metrics::CasPlace::kStore);
  const auto& repaired = registry_.Get(metrics::kCasRepaired, metrics::CasPlace::kStore);
  EXPECT_EQ(damaged.Value(), 1);
  EXPECT_EQ(repaired.Value(), 0);
  // A step in another process makes it again: whoever reads it next has news.
  const auto service = *LocalBlobStore::Open((*folders_->Of("red"))->store->root(), nullptr);
  ASSERT_TRUE(service->Put(Bytes("bad")).ok());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE((*folders_->Of("red"))->store->Open(bad.hash).ok());
  EXPECT_EQ(damaged.Value(), 1);
  EXPECT_EQ(repaired.Value(), 1);
