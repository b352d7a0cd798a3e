#include "common/base/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "common/base/atomic_file.h"
#include "common/base/status.h"

namespace quench::files_test {
namespace {

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = TempDir::Create();
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_ = std::make_unique<TempDir>(*std::move(dir));
  }
  size_t FilesIn(const std::filesystem::path& path) {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path), {}));
  }
  std::unique_ptr<TempDir> dir_;
};

TEST_F(FilesTest, WritesWholeFilesAndReplacesThem) {
  const auto path = dir_->path() / "a.txt";
  ASSERT_TRUE(WriteFileAtomically(path, "one").ok());
  ASSERT_TRUE(WriteFileAtomically(path, "second").ok());
  EXPECT_EQ(*ReadFile(path), "second");
  EXPECT_EQ(FilesIn(dir_->path()), 1u);
}

// As /dev/null would be, with a file that everybody reads from then on.
TEST_F(FilesTest, WhatIsNoFileIsNotReplaced) {
  const std::filesystem::path pipe = dir_->path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(WriteFileAtomically(pipe, "text").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST_F(FilesTest, FailedWriteLeavesNothing) {
  const absl::Status status = WriteFileAtomically(dir_->path() / "missing" / "a.txt", "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(MessageOf(status).find("missing"), std::string::npos);
  ASSERT_TRUE(std::filesystem::create_directory(dir_->path() / "taken"));
  EXPECT_FALSE(WriteFileAtomically(dir_->path() / "taken", "x").ok());
  EXPECT_EQ(FilesIn(dir_->path()), 1u);
}

TEST_F(FilesTest, MapsEmptyAndRefusesFolders) {
  std::ofstream(dir_->path() / "empty").close();
  auto mapping = FileMapping::Open(dir_->path() / "empty");
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_TRUE((*mapping)->bytes().empty());
  EXPECT_EQ(FileMapping::Open(dir_->path()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FileMapping::Open(dir_->path() / "no").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(FilesTest, APipeIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo((dir_->path() / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(FileMapping::Open(dir_->path() / "pipe").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(FilesTest, AFileIsThereWhenItIsCommitted) {
  const auto path = dir_->path() / "a";
  const auto append = [](AtomicFile& file, std::string_view text) {
    return file.Append(std::as_bytes(std::span(text)));
  };
  {
    auto file = AtomicFile::Create(path);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(append(**file, "lost").ok());
  }
  EXPECT_EQ(FilesIn(dir_->path()), 0u);
  auto file = AtomicFile::Create(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(append(**file, "one ").ok());
  ASSERT_TRUE(append(**file, "two").ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_EQ((*file)->size(), 7u);
  EXPECT_EQ(*ReadFile(path), "one two");
  EXPECT_EQ(FilesIn(dir_->path()), 1u);
}

TEST_F(FilesTest, ReadFileHoldsItsLimit) {
  ASSERT_TRUE(WriteFileAtomically(dir_->path() / "a", "12345").ok());
  EXPECT_TRUE(ReadFile(dir_->path() / "a", 5).ok());
  EXPECT_EQ(ReadFile(dir_->path() / "a", 4).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(FilesTest, TempDirGoesWithItsContents) {
  std::filesystem::path kept, gone;
  {
    auto first = TempDir::Create(dir_->path());
    auto second = TempDir::Create(dir_->path());
    ASSERT_TRUE(first.ok() && second.ok());
    gone = first->path();
    kept = second->Release();
    ASSERT_TRUE(WriteFileAtomically(gone / "x", "x").ok());
  }
  EXPECT_FALSE(std::filesystem::exists(gone));
  EXPECT_TRUE(std::filesystem::exists(kept));
}

}  // namespace
}  // namespace quench::files_test
