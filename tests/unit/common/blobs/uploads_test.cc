#include "common/blobs/uploads.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <random>
#include <thread>

#include "common/blobs/digest.h"
#include "tests/support/matchers.h"

namespace quench::uploads_test {
namespace {

namespace fs = std::filesystem;
using quench::testing::HasSubstr;

constexpr char kId[] = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
BlobId IdOf(const std::string& text) { return {Sha256Hex(text), text.size()}; }

std::string RandomText(uint32_t seed, size_t size) {
  std::mt19937 random(seed);
  std::string text(size, 0);
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

class UploadsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto folder = TempDir::Create();
    ASSERT_TRUE(folder.ok()) << folder.status();
    folder_.emplace(*std::move(folder));
    Restart();
  }
  // As a new process would find the folder.
  void Restart(std::shared_ptr<BlobSpace> space = nullptr) {
    uploads_.reset();
    auto store = LocalBlobStore::Open(folder_->path(), std::move(space));
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *store;
    auto uploads = Uploads::Open(store_);
    ASSERT_TRUE(uploads.ok()) << uploads.status();
    uploads_ = *std::move(uploads);
  }
  std::unique_ptr<Upload> Begin(const BlobId& id, const std::string& upload_id = kId,
                                std::function<void()> on_taken_over = {}) {
    auto upload = uploads_->Begin(upload_id, id, std::move(on_taken_over));
    EXPECT_TRUE(upload.ok()) << upload.status();
    return upload.ok() ? *std::move(upload) : nullptr;
  }
  std::string Stored(const BlobId& id) {
    const auto mapping = store_->Open(id.hash);
    if (!mapping.ok()) return mapping.status().ToString();
    const auto bytes = (*mapping)->bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  size_t Files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_->path() / "uploads"), {}));
  }

  std::optional<TempDir> folder_;
  std::shared_ptr<LocalBlobStore> store_;
  std::unique_ptr<Uploads> uploads_;
};

TEST_F(UploadsTest, CutAndResumedAtRandomPointsAlsoAcrossRestarts) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const std::string text = RandomText(seed, 1 + random() % 3'000'000);
    const BlobId id = IdOf(text);
    uint64_t sent = 0;
    int parts = 0;
    while (sent < text.size()) {
      if (random() % 3 == 0) Restart();
      const auto state = uploads_->Query(kId, id);
      ASSERT_TRUE(state.ok()) << state.status();
      EXPECT_EQ(state->committed, sent);
      EXPECT_FALSE(state->complete);
      const std::unique_ptr<Upload> upload = Begin(id);
      ASSERT_NE(upload, nullptr);
      EXPECT_EQ(upload->committed(), sent);
      const size_t count = std::min<size_t>(1 + random() % 1'000'000, text.size() - sent);
      ASSERT_EQ(upload->Append(sent, Bytes(text).subspan(sent, count)), absl::OkStatus());
      sent += count;
      EXPECT_FALSE(store_->Contains(id.hash)) << "visible before it is whole";
      ++parts;
      if (sent < text.size()) continue;
      ASSERT_EQ(upload->Finish(), absl::OkStatus()) << parts << " parts";
    }
    EXPECT_EQ(Stored(id), text);
    EXPECT_TRUE(uploads_->Query(kId, id)->complete);
    EXPECT_EQ(Files(), 0u);
  }
}

// One byte that names a large blob reserves all of it.
TEST_F(UploadsTest, UnfinishedOnesAreBoundedAndThoseThatWaitMakeRoom) {
  uploads_ = *Uploads::Open(store_, std::chrono::hours(1), 1000);
  const auto named = [](char c, uint64_t size) { return BlobId{std::string(64, c), size}; };
  EXPECT_EQ(uploads_->Begin(kId, named('a', 1001)).status().code(),
            absl::StatusCode::kResourceExhausted);
  for (const char c : {'a', 'b'}) {
    ASSERT_EQ(Begin(named(c, 400))->Append(0, Bytes("x")), absl::OkStatus());
  }
  timespec old[2];
  ::clock_gettime(CLOCK_REALTIME, &old[0]);
  old[0].tv_sec -= 60;
  old[1] = old[0];
  for (const auto& each : fs::directory_iterator(folder_->path() / "uploads")) {
    if (each.path().string().find("aaa") == std::string::npos) continue;
    ASSERT_EQ(::utimensat(AT_FDCWD, each.path().c_str(), old, 0), 0);
  }
  const auto writing = Begin(named('c', 500));
  ASSERT_NE(writing, nullptr);
  EXPECT_EQ(Files(), 2u) << "the one that waited longest is gone";
  EXPECT_EQ(uploads_->Query(kId, named('a', 400))->committed, 0u);
  EXPECT_EQ(uploads_->Query(kId, named('b', 400))->committed, 1u);
  const absl::Status more = uploads_->Begin(kId, named('d', 600)).status();
  EXPECT_EQ(more.code(), absl::StatusCode::kResourceExhausted) << "one that is written stays";
  EXPECT_EQ(writing->Append(0, Bytes("x")), absl::OkStatus());
}

TEST_F(UploadsTest, WhatIsCommittedIsSkippedAndGapsAreRefused) {
  const std::string text = "0123456789";
  const auto upload = Begin(IdOf(text));
  ASSERT_EQ(upload->Append(0, Bytes("01234")), absl::OkStatus());
  ASSERT_EQ(upload->Append(0, Bytes("XXX")), absl::OkStatus());
  EXPECT_EQ(upload->committed(), 5u);
  EXPECT_EQ(upload->Append(6, Bytes("6")).code(), absl::StatusCode::kOutOfRange);
  ASSERT_EQ(upload->Append(3, Bytes("3456789")), absl::OkStatus());
  ASSERT_EQ(upload->Finish(), absl::OkStatus());
  EXPECT_EQ(Stored(IdOf(text)), text);
}

TEST_F(UploadsTest, WrongBytesAreInvalidAndTheUploadIsGone) {
  const BlobId id = IdOf("right");
  {
    const auto upload = Begin(id);
    ASSERT_EQ(upload->Append(0, Bytes("wrong")), absl::OkStatus());
    const absl::Status status = upload->Finish();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(Sha256Hex("wrong")));
  }
  EXPECT_EQ(Files(), 0u);
  EXPECT_EQ(uploads_->Query(kId, id)->committed, 0u);
  const auto again = Begin(id);
  ASSERT_EQ(again->Append(0, Bytes("right")), absl::OkStatus());
  EXPECT_EQ(again->Finish(), absl::OkStatus());
}

TEST_F(UploadsTest, TooManyAndTooFewBytesAreInvalid) {
  const BlobId id = IdOf("12345");
  const auto more = Begin(id);
  EXPECT_EQ(more->Append(0, Bytes("123456")).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(more->Append(0, Bytes("1")).code(), absl::StatusCode::kAborted);
  const auto less = Begin(id);
  ASSERT_EQ(less->Append(0, Bytes("1234")), absl::OkStatus());
  const absl::Status status = less->Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("4 of 5 bytes"));
  EXPECT_EQ(Files(), 0u);
}

TEST_F(UploadsTest, ANewerWriterTakesOver) {
  const std::string text = "0123456789";
  int told = 0;
  const auto older = Begin(IdOf(text), kId, [&] { ++told; });
  ASSERT_EQ(older->Append(0, Bytes("0123")), absl::OkStatus());
  const auto newer = Begin(IdOf(text));
  EXPECT_EQ(told, 1);
  EXPECT_EQ(newer->committed(), 4u);
  EXPECT_EQ(older->Append(4, Bytes("4")).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(older->Finish().code(), absl::StatusCode::kAborted);
  ASSERT_EQ(newer->Append(4, Bytes("456789")), absl::OkStatus());
  EXPECT_EQ(newer->Finish(), absl::OkStatus());
}

TEST_F(UploadsTest, TheFasterOfTwoUploadsCompletesBoth) {
  const BlobId id = IdOf("12345");
  const auto slow = Begin(id);
  const auto fast = Begin(id, "another");
  EXPECT_FALSE(slow->complete());
  ASSERT_EQ(fast->Append(0, Bytes("12345")), absl::OkStatus());
  ASSERT_EQ(fast->Finish(), absl::OkStatus());
  EXPECT_TRUE(slow->complete());
  EXPECT_TRUE(Begin(id)->complete());
  EXPECT_EQ(Files(), 0u);
}

TEST_F(UploadsTest, SpaceIsReservedWhenAnUploadBeginsAndGivenBack) {
  Restart(std::make_shared<BlobSpace>(100'000));
  const std::string big = RandomText(1, 60'000);
  const auto first = Begin(IdOf(big));
  struct stat info{};
  ASSERT_EQ(::stat(fs::directory_iterator(folder_->path() / "uploads")->path().c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 0);
  EXPECT_GE(info.st_blocks * 512, 60'000);
  const std::string other = RandomText(2, 60'000);
  EXPECT_EQ(uploads_->Begin("b", IdOf(other)).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store_->Put(Bytes(other)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Files(), 1u);
  ASSERT_EQ(first->Append(0, Bytes(big)), absl::OkStatus());
  ASSERT_EQ(first->Append(60'000, Bytes("1")).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(uploads_->Begin("b", IdOf(other)).ok());
}

TEST_F(UploadsTest, UnfinishedUploadsExpireUnlessSomebodyWrites) {
  const BlobId id = IdOf("12345");
  ASSERT_EQ(Begin(id, "waits")->Append(0, Bytes("12")), absl::OkStatus());
  const auto active = Begin(id, "active");
  ASSERT_EQ(Begin(id, "fresh")->Append(0, Bytes("12")), absl::OkStatus());
  timespec old[2];
  ::clock_gettime(CLOCK_REALTIME, &old[0]);
  old[0].tv_sec -= 3700;
  old[1] = old[0];
  for (const auto& file : fs::directory_iterator(folder_->path() / "uploads")) {
    if (file.path().filename().string().starts_with("fresh")) continue;
    ASSERT_EQ(::utimensat(AT_FDCWD, file.path().c_str(), old, 0), 0);
  }
  EXPECT_EQ(uploads_->DropExpired(), 1);
  EXPECT_EQ(Files(), 2u);
  EXPECT_EQ(uploads_->Query("waits", id)->committed, 0u);
  EXPECT_EQ(uploads_->Query("fresh", id)->committed, 2u);
  ASSERT_EQ(active->Append(0, Bytes("12345")), absl::OkStatus());
  EXPECT_EQ(active->Finish(), absl::OkStatus());
}

TEST_F(UploadsTest, MoreIdleUploadsThanStayOpenAreStillResumed) {
  for (int i = 0; i < 100; ++i) {
    const std::string text = "blob " + std::to_string(i);
    ASSERT_EQ(Begin(IdOf(text))->Append(0, Bytes(text).first(3)), absl::OkStatus());
  }
  for (int i = 0; i < 100; ++i) {
    const std::string text = "blob " + std::to_string(i);
    const auto upload = Begin(IdOf(text));
    EXPECT_EQ(upload->committed(), 3u);
    ASSERT_EQ(upload->Append(3, Bytes(text).subspan(3)), absl::OkStatus());
    EXPECT_EQ(upload->Finish(), absl::OkStatus());
    EXPECT_EQ(Stored(IdOf(text)), text);
  }
}

TEST_F(UploadsTest, NamesAreChecked) {
  for (const std::string& name : {std::string(), std::string("../x"), std::string(65, 'a')}) {
    EXPECT_EQ(uploads_->Begin(name, IdOf("x")).status().code(), absl::StatusCode::kInvalidArgument)
        << name;
  }
  EXPECT_EQ(uploads_->Query(kId, {"ABC", 1}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(UploadsTest, WritersOfOneUploadInManyThreads) {
  const std::string text = RandomText(3, 2'000'000);
  const BlobId id = IdOf(text);
  std::atomic<int> finished{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      // Each takes over from the others until the blob is there.
      while (!store_->Contains(id.hash)) {
        const auto upload = uploads_->Begin(kId, id);
        if (!upload.ok()) continue;
        absl::Status status;
        for (uint64_t at = (*upload)->committed(); status.ok() && at < text.size(); at += 100'000) {
          status = (*upload)->Append(
              at, Bytes(text).subspan(at).first(std::min<size_t>(100'000, text.size() - at)));
        }
        if (status.ok() && (*upload)->Finish().ok()) ++finished;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Stored(id), text);
  EXPECT_GE(finished, 1);
  EXPECT_EQ(Files(), 0u);
}

}  // namespace
}  // namespace quench::uploads_test
