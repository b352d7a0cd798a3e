#include "common/blobs/blob_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>

#include "common/blobs/digest.h"

namespace quench::blob_store_test {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class LocalBlobStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto folder = TempDir::Create();
    ASSERT_TRUE(folder.ok()) << folder.status();
    folder_.emplace(*std::move(folder));
    auto store = LocalBlobStore::Open(root(), 1000);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *store;
  }
  fs::path root() const { return folder_->path() / "cache"; }
  fs::path PathOf(const std::string& digest) const {
    return root() / "blobs" / "sha256" / digest.substr(0, 2) / digest;
  }
  std::string Put(std::string_view text) {
    const auto digest = store_->Put(Bytes(text));
    EXPECT_TRUE(digest.ok()) << digest.status();
    return digest.ok() ? *digest : "";
  }
  // Sets when a file was last used, in seconds before now.
  static void Age(const fs::path& path, int seconds) {
    timespec times[2];
    ::clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= seconds;
    times[1] = times[0];
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  size_t Temporaries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(root() / "tmp"), {}));
  }

  std::optional<TempDir> folder_;
  std::shared_ptr<LocalBlobStore> store_;
};

TEST_F(LocalBlobStoreTest, WhatIsPutCanBeOpened) {
  const std::string digest = Put("hello");
  EXPECT_EQ(digest, Sha256Hex("hello"));
  EXPECT_TRUE(store_->Contains(digest));
  const auto mapping = store_->Open(digest);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>((*mapping)->bytes().data()), 5), "hello");
  struct stat info{};
  ASSERT_EQ(::stat(PathOf(digest).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0444u);
  EXPECT_EQ(Temporaries(), 0u);
}

TEST_F(LocalBlobStoreTest, EmptyAndRepeatedBlobs) {
  const std::string empty = Put("");
  const auto mapping = store_->Open(empty);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_EQ((*mapping)->bytes().size(), 0u);
  EXPECT_EQ(Put("x"), Put("x"));
  EXPECT_EQ(store_->Stat()->count, 2u);
  EXPECT_EQ(store_->Stat()->bytes, 1u);
  EXPECT_EQ(store_->Stat()->limit_bytes, 1000u);
}

TEST_F(LocalBlobStoreTest, PiecesMakeOneBlob) {
  auto writer = store_->Create();
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Append(Bytes("ab")).ok());
  ASSERT_TRUE((*writer)->Append(Bytes("c")).ok());
  EXPECT_EQ((*writer)->size(), 3u);
  EXPECT_EQ(*(*writer)->Commit(), Sha256Hex("abc"));
  EXPECT_EQ((*writer)->Append(Bytes("d")).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*writer)->Commit().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(LocalBlobStoreTest, AnAbandonedWriterLeavesNothing) {
  {
    auto writer = store_->Create();
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->Append(Bytes("ab")).ok());
    EXPECT_EQ(Temporaries(), 1u);
  }
  EXPECT_EQ(Temporaries(), 0u);
  EXPECT_EQ(store_->Stat()->count, 0u);
}

TEST_F(LocalBlobStoreTest, MissingBlobsAndBadNames) {
  const std::string digest = Sha256Hex("never");
  EXPECT_FALSE(store_->Contains(digest));
  const absl::Status missing = store_->Open(digest).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.message().find(digest), absl::string_view::npos);
  for (const std::string& name : {std::string("../../etc/passwd"), std::string(),
                                  std::string(64, '/'), "AB" + digest.substr(2)}) {
    EXPECT_EQ(store_->Open(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_FALSE(store_->Contains(name)) << name;
  }
}

TEST_F(LocalBlobStoreTest, PruneRemovesLeastRecentlyUsedFirst) {
  const std::string oldest = Put("1111");
  const std::string middle = Put("2222");
  const std::string newest = Put("3333");
  Age(PathOf(oldest), 300);
  Age(PathOf(middle), 200);
  Age(PathOf(newest), 100);
  ASSERT_TRUE(store_->Open(oldest).ok());  // now the most recent
  const auto removed = store_->Prune(8);
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_EQ(removed->count, 1u);
  EXPECT_EQ(removed->bytes, 4u);
  EXPECT_FALSE(store_->Contains(middle));
  EXPECT_TRUE(store_->Contains(oldest));
  EXPECT_TRUE(store_->Contains(newest));
  EXPECT_EQ(store_->Prune(0)->count, 2u);
}

TEST_F(LocalBlobStoreTest, OpeningPrunesDownToTheLimit) {
  const std::string old = Put(std::string(400, 'a'));
  const std::string fresh = Put(std::string(400, 'b'));
  Age(PathOf(old), 300);
  ASSERT_TRUE(LocalBlobStore::Open(root(), 800).ok());
  EXPECT_TRUE(store_->Contains(old));
  ASSERT_TRUE(LocalBlobStore::Open(root(), 799).ok());
  EXPECT_FALSE(store_->Contains(old));
  EXPECT_TRUE(store_->Contains(fresh));
}

TEST_F(LocalBlobStoreTest, PutRenewsABlob) {
  const std::string first = Put("1111");
  const std::string second = Put("2222");
  Age(PathOf(first), 300);
  Age(PathOf(second), 200);
  Put("1111");
  ASSERT_TRUE(store_->Prune(4).ok());
  EXPECT_TRUE(store_->Contains(first));
  EXPECT_FALSE(store_->Contains(second));
}

TEST_F(LocalBlobStoreTest, AMappingSurvivesPrune) {
  const std::string digest = Put("data");
  const auto mapping = store_->Open(digest);
  ASSERT_TRUE(mapping.ok());
  ASSERT_TRUE(store_->Prune(0).ok());
  EXPECT_FALSE(store_->Contains(digest));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>((*mapping)->bytes().data()), 4), "data");
}

TEST_F(LocalBlobStoreTest, WhatACrashedWriterLeavesIsRemovedAndNothingElse) {
  const auto writer = store_->Create();
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Append(Bytes("half")).ok());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto lost = store_->Create();
    if (lost.ok() && (*lost)->Append(Bytes("lost")).ok()) ::raise(SIGKILL);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(Temporaries(), 2u);
  store_->RemoveAbandoned();
  EXPECT_EQ(Temporaries(), 1u);
  const auto digest = (*writer)->Commit();
  ASSERT_TRUE(digest.ok());
  EXPECT_TRUE(store_->Contains(*digest));
  EXPECT_EQ(Temporaries(), 0u);
}

TEST_F(LocalBlobStoreTest, WritersAndCleanersDoNotDisturbEachOther) {
  std::atomic<bool> done{false};
  std::thread cleaner([&] {
    while (!done) store_->RemoveAbandoned();
  });
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(store_->Put(Bytes(std::to_string(i))).ok());
  done = true;
  cleaner.join();
  EXPECT_EQ(store_->Stat()->count, 200u);
}

TEST_F(LocalBlobStoreTest, ForeignFilesAreLeftAlone) {
  const std::string digest = Put("data");
  const fs::path foreign = PathOf(digest).parent_path() / "README";
  std::ofstream(foreign) << "mine";
  EXPECT_EQ(store_->Stat()->count, 1u);
  ASSERT_TRUE(store_->Prune(0).ok());
  EXPECT_TRUE(fs::exists(foreign));
}

// A file size limit stands in for a full disk: write(2) fails half way with EFBIG. In a child,
// since the limit and the ignored signal belong to the process.
TEST_F(LocalBlobStoreTest, AFullDiskIsResourceExhaustedAndLeavesNothing) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const absl::Status status = store_->Put(Bytes(std::string(100000, 'x'))).status();
    const bool clean = Temporaries() == 0 && store_->Stat()->count == 0;
    ::_exit(status.code() == absl::StatusCode::kResourceExhausted && clean ? 0 : 1);
  }
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0);
}

TEST_F(LocalBlobStoreTest, CommitAsTakesOnlyTheRightBytes) {
  const BlobId id{Sha256Hex("right"), 5};
  for (const std::string text : {"wrong", "right, and more"}) {
    auto writer = store_->Create();
    ASSERT_TRUE((*writer)->Append(Bytes(text)).ok());
    EXPECT_EQ((*writer)->CommitAs(id).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(store_->Contains(Sha256Hex(text)));
  }
  auto writer = store_->Create();
  ASSERT_TRUE((*writer)->Append(Bytes("right")).ok());
  EXPECT_EQ((*writer)->CommitAs(id), absl::OkStatus());
  EXPECT_EQ(store_->SizeOf(id.hash), 5u);
  EXPECT_EQ(store_->SizeOf(Sha256Hex("other")), std::nullopt);
  writer->reset();
  EXPECT_EQ(Temporaries(), 0u);
}

TEST_F(LocalBlobStoreTest, ReadersReadPieces) {
  const BlobId id{Put("0123456789"), 10};
  const auto reader = store_->OpenReader(id);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->size(), 10u);
  std::string piece(3, ' ');
  const auto into = std::as_writable_bytes(std::span(piece.data(), piece.size()));
  ASSERT_TRUE(store_->Prune(0).ok());
  ASSERT_EQ((*reader)->ReadAt(4, into), absl::OkStatus());
  EXPECT_EQ(piece, "456");
  EXPECT_EQ((*reader)->ReadAt(8, into).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(store_->OpenReader(id).status().code(), absl::StatusCode::kNotFound);
  Put("0123456789");
  EXPECT_EQ(store_->OpenReader({id.hash, 9}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(LocalBlobStoreTest, AnAdoptedFileIsABlobAndGone) {
  const fs::path source = folder_->path() / "result";
  const std::string text = std::string(3'000'000, 'm') + "end";
  std::ofstream(source) << text;
  struct stat before{}, after{};
  ASSERT_EQ(::stat(source.c_str(), &before), 0);
  const auto id = store_->Adopt(source, {});
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(*id, (BlobId{Sha256Hex(text), text.size()}));
  EXPECT_FALSE(fs::exists(source));
  ASSERT_EQ(::stat(PathOf(id->hash).c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino) << "it was copied";
  EXPECT_EQ(after.st_mode & 0777, 0444U);
  EXPECT_EQ(Temporaries(), 0u);
}

// A file in another file system cannot be moved, and a file with another name may be changed by it.
TEST_F(LocalBlobStoreTest, WhatCannotBeMovedIsCopied) {
  const auto elsewhere = TempDir::Create("/dev/shm");
  ASSERT_TRUE(elsewhere.ok()) << elsewhere.status();
  const fs::path linked = folder_->path() / "linked", other = folder_->path() / "other";
  const std::string text(1'500'000, 'x');
  for (const fs::path& source : {elsewhere->path() / "result", linked}) {
    std::ofstream(source) << text;
    if (source == linked) fs::create_hard_link(source, other);
    const auto id = store_->Adopt(source, {});
    ASSERT_TRUE(id.ok()) << id.status();
    EXPECT_EQ(id->hash, Sha256Hex(text));
    EXPECT_FALSE(fs::exists(source));
  }
  std::ofstream(other) << "now another one";
  const auto mapping = store_->Open(Sha256Hex(text));
  ASSERT_TRUE(mapping.ok());
  EXPECT_EQ(Sha256Hex((*mapping)->bytes()), Sha256Hex(text));
  EXPECT_EQ(Temporaries(), 0u);
}

// Beside the store by links, in another file system by copies.
TEST_F(LocalBlobStoreTest, LentBlobsStayWhenTheStoreReplacesOrRemovesThem) {
  const auto elsewhere = TempDir::Create("/dev/shm");
  ASSERT_TRUE(elsewhere.ok()) << elsewhere.status();
  const fs::path beside = folder_->path() / "lent";
  fs::create_directory(beside);
  for (const fs::path& folder : {beside, elsewhere->path()}) {
    const std::string hash = Put("bytes");
    ASSERT_EQ(store_->Lend({hash, 5}, folder), absl::OkStatus());
    ASSERT_EQ(store_->Lend({hash, 5}, folder), absl::OkStatus()) << "once more";
    struct stat lent{}, blob{};
    ASSERT_EQ(::stat((folder / hash).c_str(), &lent), 0);
    ASSERT_EQ(::stat(PathOf(hash).c_str(), &blob), 0);
    EXPECT_EQ(lent.st_ino == blob.st_ino, folder == beside);
    Put("bytes");
    fs::remove(PathOf(hash));
    EXPECT_EQ(*ReadFile(folder / hash), "bytes");
    EXPECT_EQ(store_->Lend({Sha256Hex("none"), 4}, folder).code(), absl::StatusCode::kNotFound);
  }
}

TEST_F(LocalBlobStoreTest, WhatIsNoFileIsNotAdopted) {
  EXPECT_EQ(store_->Adopt(folder_->path(), {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->Adopt(folder_->path() / "none", {}).status().code(),
            absl::StatusCode::kNotFound);
  const fs::path source = folder_->path() / "result";
  std::ofstream(source) << "text";
  const StepContext cancelled;
  cancelled.cancel_token()->Cancel();
  EXPECT_EQ(store_->Adopt(source, cancelled).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(fs::exists(source));
  EXPECT_EQ(Temporaries(), 0u);
}

TEST_F(LocalBlobStoreTest, AFolderThatCannotBeMadeIsAnError) {
  std::ofstream(folder_->path() / "file") << "x";
  EXPECT_FALSE(LocalBlobStore::Open(folder_->path() / "file" / "below").ok());
}

TEST_F(LocalBlobStoreTest, ManyThreadsPutTheSameAndDifferentBlobs) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < 10; ++j) {
        const std::string text = "blob " + std::to_string(i % 2 == 0 ? j : i * 100 + j);
        const auto digest = store_->Put(Bytes(text));
        EXPECT_TRUE(digest.ok() && store_->Open(*digest).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store_->Stat()->count, 50u);
  EXPECT_EQ(Temporaries(), 0u);
}

TEST(LocalBlobStoreDefaultRootTest, FollowsTheEnvironment) {
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(LocalBlobStore::DefaultRoot(), "/cache/quench");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  ::setenv("HOME", "/home/u", 1);
  EXPECT_EQ(LocalBlobStore::DefaultRoot(), "/home/u/.cache/quench");
}

// Changes a byte of a stored blob behind everybody's back.
void Damage(const LocalBlobStore& store, const std::string& digest) {
  const std::filesystem::path path = store.PathOf(digest);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(1);
  file.put('X');
}

TEST(DamagedBlobTest, IsNeverServed) {
  const TempDir folder = *TempDir::Create();
  const std::string text = "what was written";
  const auto bytes = std::as_bytes(std::span(text));
  for (int way = 0; way < 3; ++way) {
    const std::string digest = *(*LocalBlobStore::Open(folder.path(), nullptr))->Put(bytes);
    const BlobId id{digest, text.size()};
    const auto store = *LocalBlobStore::Open(folder.path(), nullptr);  // as another process
    Damage(*store, digest);
    EXPECT_TRUE(store->Use(id)) << "nobody has looked";
    if (way == 0) {
      EXPECT_EQ(store->Open(digest).status().code(), absl::StatusCode::kNotFound);
    }
    if (way == 1) {
      EXPECT_EQ(store->OpenReader(id).status().code(), absl::StatusCode::kNotFound);
    }
    if (way == 2) {
      EXPECT_FALSE(store->UseRight(id));
    }
    EXPECT_FALSE(store->Contains(digest)) << "it can be stored again";
  }
}

TEST(DamagedBlobTest, IsFoundInTurn) {
  const TempDir folder = *TempDir::Create();
  const auto store = *LocalBlobStore::Open(folder.path(), nullptr);
  std::vector<std::string> digests;
  for (int i = 0; i < 6; ++i) {
    const std::string text(1000, static_cast<char>('a' + i));
    digests.push_back(*store->Put(std::as_bytes(std::span(text))));
  }
  std::sort(digests.begin(), digests.end());
  Damage(*store, digests[4]);
  EXPECT_TRUE(store->Open(digests[4]).ok()) << "this process has written it";
  std::string cursor;
  EXPECT_EQ(store->Scrub(2500, &cursor)->count, 0u);
  EXPECT_EQ(cursor, digests[2]);
  EXPECT_EQ(store->Scrub(2500, &cursor)->count, 1u);
  EXPECT_FALSE(store->Contains(digests[4]));
  EXPECT_EQ(cursor, "") << "and from the first again";
}

}  // namespace
}  // namespace quench::blob_store_test
