#include "services/gateway/blobs/keeper.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "tests/support/wait.h"
#include "tests/unit/services/gateway/blobs/blob_server.h"

namespace quench::gateway {
namespace {

using quench::testing::WaitFor;

class BlobKeeperTest : public BlobServerTest {
 protected:
  void SetUp() override {
    BlobServerTest::SetUp();
    auto folders = BlobFolders::Open(folder_->path() / "state", 1000);
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
  const BlobId old = Put("", std::string(90, 'a')), pinned = Put("", std::string(90, 'b')),
               theirs = Put("red", std::string(90, 'b'));
  options_.pinned = [&](const std::string& tenant, const std::string& hash) {
    return tenant.empty() && hash == pinned.hash;
  };
  const BlobKeeper keeper(*folders_, options_);
  ASSERT_TRUE(WaitFor([&] { return !Has("", old) && !Has("red", theirs); }));
  EXPECT_TRUE(Has("", pinned));
  ASSERT_TRUE(WaitFor([&] { return registry_.Get(metrics::kCasSize).Value() == 90; }));
  EXPECT_EQ(registry_.Get(metrics::kCasEvictedBytes).Value(), 180);
  EXPECT_EQ(registry_.Get(metrics::kCasSizeLimit, metrics::CasLimit::kEvict).Value(), 200);
  EXPECT_EQ(registry_.Get(metrics::kCasSizeLimit, metrics::CasLimit::kReject).Value(), 1000);
}

TEST_F(BlobKeeperTest, NoticesSpaceAboveHighBeforeThePeriodEnds) {
  options_.period = std::chrono::milliseconds(5000);
  BlobKeeper keeper(*folders_, options_);
  ASSERT_TRUE(keeper.Sweep().ok());
  const BlobId first = Put("", std::string(150, 'a'));
  ASSERT_TRUE(Has("", first));
  Put("", std::string(100, 'b'));
  EXPECT_TRUE(WaitFor([&] { return !Has("", first); }));
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
  EXPECT_EQ(BlobFolders::FolderOf("/state", ""), "/state");
}

}  // namespace
}  // namespace quench::gateway
