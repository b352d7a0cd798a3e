#include "services/gateway/blobs/keeper.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tests/support/wait.h"
#include "tests/unit/services/gateway/blobs/blob_server.h"

namespace quench::gateway::keeper_test {
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

// Services and their steps write into the folders from other processes, by the gateway's account.
class SharedFoldersTest : public BlobKeeperTest {
 protected:
  static constexpr uint64_t kMiB = uint64_t{1} << 20;
  void Share(uint64_t low, uint64_t high, uint64_t max) {
    folders_.reset();
    folders_ = *BlobFolders::Open(root_, max);
    options_.limits = {low, high, max, std::chrono::seconds(0)};
  }
  // As a service, or a step of it, opens the folder.
  std::shared_ptr<LocalBlobStore> Service(const std::string& tenant = rpc::kDefaultTenant) {
    const auto space = std::make_shared<BlobSpace>(BlobSpace::kNoLimit);
    space->Follow(rpc::SpaceFile(root_));
    return *LocalBlobStore::Open(rpc::TenantFolder(root_, tenant), space);
  }
  absl::Status PutAs(LocalBlobStore& service, uint32_t seed, uint64_t bytes) {
    return service.Put(Bytes(RandomText(seed, bytes))).status();
  }
  void SetUp() override {
    BlobKeeperTest::SetUp();
    root_ = folder_->path() / "state";
  }
  std::filesystem::path root_;
};

TEST_F(SharedFoldersTest, WhatServicesWriteIsEvictedSoon) {
  Share(4 * kMiB, 8 * kMiB, 32 * kMiB);
  const BlobKeeper keeper(*folders_, options_);
  const auto service = Service();
  for (uint32_t i = 0; i < 12; ++i) ASSERT_TRUE(PutAs(*service, i, 2 * kMiB).ok());
  EXPECT_TRUE(WaitFor([&] { return service->Stat()->bytes <= 8 * kMiB; }));
}

TEST_F(SharedFoldersTest, WhatDoesNotFitIsRefusedToServicesToo) {
  Share(6 * kMiB, 7 * kMiB, 8 * kMiB);
  // Nobody makes room.
  const auto red = Service("red"), ours = Service();
  ASSERT_EQ(PutAs(*red, 1, 5 * kMiB), absl::OkStatus());
  EXPECT_EQ(folders_->space()->used(), 5 * kMiB);
  const absl::Status refused = PutAs(*ours, 2, 4 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_NE(refused.message().find("the blob store is full"), absl::string_view::npos) << refused;
  EXPECT_EQ(ErrnoOf(refused), ENOSPC);             // a machine's fault, to a step
  EXPECT_EQ(folders_->space()->used(), 5 * kMiB);  // what was half written has gone
  EXPECT_EQ(PutAs(*ours, 3, 3 * kMiB), absl::OkStatus());
  EXPECT_TRUE(absl::IsResourceExhausted(PutAs(*(*folders_->Of("red"))->store, 4, 1)));
}

TEST_F(SharedFoldersTest, WhatBlobsLeaveFreeIsTheGatewaysWord) {
  folders_.reset();
  folders_ = *BlobFolders::Open(root_, 8 * kMiB, uint64_t{1} << 60);
  const absl::Status refused = PutAs(*Service(), 1, kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_NE(refused.message().find("no space left on the disk"), absl::string_view::npos);
}

TEST_F(SharedFoldersTest, RoomIsMadeForServices) {
  Share(6 * kMiB, 7 * kMiB, 8 * kMiB);
  std::atomic<bool> pins = true;
  options_.pinned = [&](const std::string&, const std::string&) { return pins.load(); };
  const BlobKeeper keeper(*folders_, options_);
  const auto ours = Service();
  ASSERT_EQ(PutAs(*ours, 1, 5 * kMiB), absl::OkStatus());
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(absl::IsResourceExhausted(PutAs(*ours, 2, 4 * kMiB)));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
  pins = false;
  std::this_thread::sleep_for(std::chrono::milliseconds(250));  // an answer just now counts as one
  EXPECT_EQ(PutAs(*ours, 2, 4 * kMiB), absl::OkStatus());
  EXPECT_FALSE(ours->Contains(Sha256Hex(RandomText(1, 5 * kMiB))));
}

// Ten writers in ten processes never hold more than there is. So little at a time that none of them
// wants a second thread: forked processes have but one.
TEST_F(SharedFoldersTest, ManyProcessesShareOneAccount) {
  constexpr uint64_t kPiece = kMiB / 16;
  Share(60 * kPiece, 62 * kPiece, 64 * kPiece);
  std::vector<pid_t> children;
  for (uint32_t child = 0; child < 10; ++child) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      uint32_t stored = 0;
      const auto service = Service();
      while (stored < 12 && PutAs(*service, 100 * child + stored, kPiece).ok()) ++stored;
      ::_exit(static_cast<int>(stored));
    }
    children.push_back(pid);
  }
  int stored = 0;
  for (const pid_t pid : children) {
    int state = 0;
    ASSERT_EQ(::waitpid(pid, &state, 0), pid);
    ASSERT_TRUE(WIFEXITED(state));
    stored += WEXITSTATUS(state);
  }
  EXPECT_EQ(stored, 64);
  EXPECT_EQ(folders_->space()->used(), 64 * kPiece);
  EXPECT_EQ(folders_->space()->Measure(), 64 * kPiece);
}

// A gateway that comes later, or again, is found; a damaged account is written anew.
TEST_F(SharedFoldersTest, TheAccountIsFoundAgain) {
  const std::filesystem::path file = rpc::SpaceFile(root_);
  folders_.reset();
  std::filesystem::remove(file);
  const auto service = Service();
  ASSERT_EQ(PutAs(*service, 1, 3 * kMiB), absl::OkStatus());  // nobody has set a limit
  Share(1 * kMiB, 2 * kMiB, 4 * kMiB);
  EXPECT_EQ(folders_->space()->used(), 3 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(PutAs(*service, 2, 2 * kMiB)));
  ASSERT_EQ(::truncate(file.c_str(), 5), 0);
  EXPECT_EQ(folders_->space()->used(), 3 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(PutAs(*service, 2, 2 * kMiB)));
  Share(1 * kMiB, 2 * kMiB, 6 * kMiB);
  EXPECT_EQ(PutAs(*service, 2, 2 * kMiB), absl::OkStatus());
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
}  // namespace quench::gateway::keeper_test
