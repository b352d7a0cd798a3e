// The gateway's database and its blobs lie on one disk, and each goes on when the other has filled it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <future>
#include <mutex>
#include <optional>
#include <random>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/rpc/tenants.h"
#include "services/gateway/blobs/keeper.h"
#include "services/gateway/sqlite_store.h"
#include "tests/support/wait.h"

namespace quench::gateway::shared_disk_test {
namespace {

using quench::testing::WaitFor;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kReserve = 2 * kMiB;

std::string RandomText(uint32_t seed, size_t size) {
  std::mt19937 random(seed);
  std::string text(size, 0);
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

class SharedDisk {
 public:
  explicit SharedDisk(const std::filesystem::path& folder)
      : database_(*SqliteJobStore::Open(folder)),
        folders_(*BlobFolders::Open(folder / "store", uint64_t{1} << 40, kReserve)) {
    BlobKeeperOptions options;
    options.limits = {uint64_t{1} << 39, uint64_t{1} << 39, uint64_t{1} << 40,
                      std::chrono::seconds(0)};
    options.pinned = [this](const std::string&, const std::string& hash) {
      const std::lock_guard lock(mutex_);
      return hash == pinned_;
    };
    options.period = std::chrono::milliseconds(200);
    options.registry = &registry_;
    keeper_.emplace(*folders_, options);
  }

  absl::StatusOr<std::string> Put(uint32_t seed, size_t size) {
    const std::string text = RandomText(seed, size);
    return Blobs().Put(std::as_bytes(std::span(text)));
  }
  void Pin(const std::string& hash) {
    const std::lock_guard lock(mutex_);
    pinned_ = hash;
  }
  LocalBlobStore& Blobs() { return *(*folders_->Of(rpc::kDefaultTenant))->store; }

  // About 10 KiB of the database.
  absl::Status Create(int number) {
    StoredWorkflow stored;
    const std::string id = std::to_string(number);
    stored.workflow.set_name(WorkflowName(id));
    stored.workflow.set_tenant("t");
    stored.workflow.set_state(v1::STATE_QUEUED);
    stored.workflow.set_revision(1);
    stored.workflow.set_title(std::string(10'000, 'x'));
    stored.spec_hash = id;
    std::promise<absl::Status> promise;
    database_->Create(stored, [&](const absl::Status& status) { promise.set_value(status); });
    return promise.get_future().get();
  }
  bool Has(int number) { return database_->Get("t", std::to_string(number)).ok(); }

 private:
  metrics::Registry registry_;
  std::mutex mutex_;
  std::string pinned_;
  const std::unique_ptr<SqliteJobStore> database_;
  const std::unique_ptr<BlobFolders> folders_;
  std::optional<BlobKeeper> keeper_;
};

// Runs below, on a file system of 20 MiB.
TEST(SharedDiskTest, DISABLED_OnASmallDisk) {
  SharedDisk disk(std::getenv("QUENCH_SMALL_DISK"));
  // Blobs fill it, but for what they leave to others: old ones make room for new ones.
  const auto delivered = disk.Put(0, kMiB);
  ASSERT_TRUE(delivered.ok()) << delivered.status();
  disk.Pin(*delivered);
  for (uint32_t i = 1; i < 30; ++i) ASSERT_TRUE(disk.Put(i, kMiB).ok()) << i;
  ASSERT_GT(disk.Blobs().Stat()->bytes, 12 * kMiB);
  // The database grows into that, and beyond: blobs give way within a moment.
  int created = 0;
  while (created < 800) {
    absl::Status status;
    ASSERT_TRUE(WaitFor([&] { return (status = disk.Create(created)).ok(); })) << created << status;
    ++created;
  }
  EXPECT_LT(disk.Blobs().Stat()->bytes, 12 * kMiB);
  EXPECT_TRUE(disk.Blobs().Open(*delivered).ok());
  // It fills the disk: what cannot go stays, both refuse what is new, and both answer what is asked.
  absl::Status full;
  for (; created < 3000; ++created) {
    if (!WaitFor([&] { return (full = disk.Create(created)).ok(); }, std::chrono::seconds(2)))
      break;
  }
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  const absl::Status refused = disk.Put(100, kMiB).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(disk.Blobs().Stat()->bytes, kMiB);
  EXPECT_TRUE(disk.Blobs().Open(*delivered).ok());
  for (int i = 0; i < created; ++i) ASSERT_TRUE(disk.Has(i)) << i;
  EXPECT_FALSE(disk.Has(created));
  // The deliverable goes when its workflow does: both have a little to go on with.
  disk.Pin("");
  EXPECT_TRUE(WaitFor([&] { return disk.Create(created).ok(); }));
}

TEST(SharedDiskTest, DatabaseAndBlobsSurviveEachOther) {
  const TempDir folder = *TempDir::Create();
  const std::string small = (folder.path() / "small").string();
  std::filesystem::create_directory(small);
  const std::string unshare =
      std::string("unshare --mount ") + (geteuid() == 0 ? "" : "--map-root-user ") + "sh -c '" +
      "mount -t tmpfs -o size=20m none " + small + " 2>/dev/null || exit 77; ";
  if (std::system((unshare + "true' 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "no right to mount a small file system";
  }
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command =
      unshare + "GTEST_OUTPUT= QUENCH_SMALL_DISK=" + small + " exec " + self +
      " --gtest_also_run_disabled_tests --gtest_brief=1 --gtest_filter=*DISABLED_OnASmallDisk'";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace quench::gateway::shared_disk_test
