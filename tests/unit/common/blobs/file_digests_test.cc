#include "common/blobs/file_digests.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/blobs/digest.h"
#include "common/blobs/file_blobs.h"

namespace quench::file_digests_test {
namespace {

constexpr size_t kSize = size_t{2} << 20;

class FileDigestsTest : public ::testing::Test {
 protected:
  std::filesystem::path Write(const std::string& name, char c) {
    EXPECT_TRUE(WriteFileAtomically(folder_.path() / name, std::string(kSize, c)).ok());
    return folder_.path() / name;
  }
  static struct stat StatOf(const std::filesystem::path& path) {
    struct stat info{};
    EXPECT_EQ(::stat(path.c_str(), &info), 0);
    return info;
  }
  // From now; ctime cannot be set back, so that tests look from the future.
  static timespec In(time_t seconds) {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec += seconds;
    return now;
  }
  const TempDir folder_ = *TempDir::Create();
  const std::filesystem::path kept_ = folder_.path() / "file_digests";
  const FileDigests digests_{kept_};
  const std::string digest_ = Sha256Hex(std::string_view("a"));
};

TEST_F(FileDigestsTest, KnowsAFileAsLongAsNothingOfItChanges) {
  const std::filesystem::path path = Write("model", 'a');
  const struct stat before = StatOf(path);
  EXPECT_FALSE(digests_.Find(before));
  digests_.Add(before, In(3), digest_);
  EXPECT_EQ(FileDigests(kept_).Find(StatOf(path)), digest_);
  // Other bytes of the same size, with the old time: ctime tells.
  {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_EQ(::pwrite(fd, "b", 1, 0), 1);
    const timespec times[2] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(::futimens(fd, times), 0);
    ::close(fd);
  }
  const struct stat after = StatOf(path);
  ASSERT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
  EXPECT_FALSE(digests_.Find(after));
  digests_.Add(after, In(3), digest_);
  EXPECT_TRUE(digests_.Find(after));
  // Another file in its place.
  Write("model", 'a');
  EXPECT_FALSE(digests_.Find(StatOf(path)));
}

TEST_F(FileDigestsTest, WhatJustChangedIsNotRemembered) {
  const struct stat info = StatOf(Write("model", 'a'));
  for (const time_t seconds : {-10, 0, 1}) digests_.Add(info, In(seconds), digest_);
  EXPECT_FALSE(digests_.Find(info));
  EXPECT_FALSE(std::filesystem::exists(kept_));
}

TEST_F(FileDigestsTest, IsBoundedAndForgets) {
  struct stat info = StatOf(Write("model", 'a'));
  const ino_t first = info.st_ino;
  for (size_t i = 0; i <= FileDigests::kMost; ++i) {
    digests_.Add(info, In(3), digest_);
    ++info.st_ino;
  }
  info.st_ino = first;
  EXPECT_FALSE(digests_.Find(info));
  ++info.st_ino;
  EXPECT_TRUE(digests_.Find(info));
  digests_.Forget(info);
  EXPECT_FALSE(digests_.Find(info));
  ++info.st_ino;
  EXPECT_TRUE(digests_.Find(info));
  EXPECT_LT(std::filesystem::file_size(kept_), 200'000u);
}

TEST_F(FileDigestsTest, ADamagedFileHasForgotten) {
  const struct stat info = StatOf(Write("model", 'a'));
  digests_.Add(info, In(3), digest_);
  const std::string whole = *ReadFile(kept_);
  for (const std::string& text :
       {std::string(), std::string("\n\n"), whole.substr(0, whole.size() - 1),
        "x" + whole.substr(1), whole.substr(0, 64) + "\n", std::string(5000, '\0')}) {
    ASSERT_TRUE(WriteFileAtomically(kept_, text).ok());
    EXPECT_FALSE(digests_.Find(info)) << text;
  }
  ASSERT_TRUE(WriteFileAtomically(kept_, "nonsense\n" + whole).ok());
  EXPECT_EQ(digests_.Find(info), digest_);
  digests_.Add(info, In(3), Sha256Hex(std::string_view("b")));
  EXPECT_EQ(digests_.Find(info), Sha256Hex(std::string_view("b")));
}

// That a digest is believed is seen by one that is wrong.
TEST_F(FileDigestsTest, FilesOfAUserAreReadOnce) {
  const std::filesystem::path path = Write("model", 'a');
  digests_.Add(StatOf(path), In(3), digest_);
  FileBlobs files(&digests_);
  EXPECT_EQ(files.Add(path, {})->hash, digest_);
  EXPECT_TRUE(files.ForgetRemembered());
  FileBlobs again(&digests_);
  EXPECT_EQ(again.Add(path, {})->hash, Sha256Hex(std::string(kSize, 'a')));
  EXPECT_FALSE(again.ForgetRemembered());
}

}  // namespace
}  // namespace quench::file_digests_test
