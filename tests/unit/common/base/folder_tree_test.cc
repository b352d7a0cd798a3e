#include "common/base/folder_tree.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "common/base/files.h"

namespace quench::folder_tree_test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMuch = int64_t{1} << 40;

// Folders in folders, deeper than any path can say.
void Nest(const fs::path& folder, int depth) {
  int at = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (int i = 0; i < depth; ++i) {
    ASSERT_EQ(::mkdirat(at, "another", 0700), 0);
    const int inner = ::openat(at, "another", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ::close(at);
    at = inner;
  }
  const int file = ::openat(at, "file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  ::close(file);
  ::close(at);
}

// Whether `check` holds in a process that has no rights beyond permissions, and few descriptors.
bool HoldsForAnybody(const fs::path& folder, const std::function<bool()>& check) {
  EXPECT_EQ(::chmod(folder.c_str(), 0777), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit few{64, 64};
    bool ok = ::setrlimit(RLIMIT_NOFILE, &few) == 0;
    if (::geteuid() == 0) ok = ok && ::setgid(65534) == 0 && ::setuid(65534) == 0;
    ::_exit(ok && check() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status == 0;
}

class FolderTreeTest : public ::testing::Test {
 protected:
  const TempDir folder_ = *TempDir::Create();
  const fs::path tree_ = folder_.path() / "tree";
};

TEST_F(FolderTreeTest, WhatLiesBeneathIsCountedAndAnEmptyFileTooAndNoLink) {
  fs::create_directories(tree_ / "a/b");
  EXPECT_EQ(*BytesBeneath(tree_, kMuch), 2 * (16 << 10));
  for (int i = 0; i < 10; ++i) std::ofstream(tree_ / "a/b" / std::to_string(i));
  EXPECT_EQ(*BytesBeneath(tree_, kMuch), 12 * (16 << 10));
  std::ofstream(tree_ / "a/file") << std::string(size_t{1} << 20, 'x');
  const int64_t all = *BytesBeneath(tree_, kMuch);
  EXPECT_GE(all, (12 * (16 << 10)) + (1 << 20));
  fs::create_directory_symlink(tree_ / "a", tree_ / "a/again");
  EXPECT_EQ(*BytesBeneath(tree_, kMuch), all + (16 << 10));
  EXPECT_GT(*BytesBeneath(tree_, 20), 20);
  EXPECT_LT(*BytesBeneath(tree_, 20), 100 << 10) << "it goes on though there are enough";
}

TEST_F(FolderTreeTest, WhatCannotBeCountedIsTooMuch) {
  fs::create_directory(tree_);
  Nest(tree_, 30);
  EXPECT_TRUE(BytesBeneath(tree_, kMuch).ok());
  fs::create_directory(tree_ / "b");
  Nest(tree_ / "b", 2000);
  EXPECT_EQ(BytesBeneath(tree_, kMuch).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(HoldsForAnybody(folder_.path(), [&] {
    const fs::path closed = folder_.path() / "closed";
    return ::mkdir(closed.c_str(), 0700) == 0 && ::mkdir((closed / "in").c_str(), 0) == 0 &&
           absl::IsResourceExhausted(BytesBeneath(closed, kMuch).status());
  }));
}

TEST_F(FolderTreeTest, GoesHoweverDeepItIsAndWhateverItsModes) {
  EXPECT_TRUE(HoldsForAnybody(folder_.path(), [&] {
    fs::create_directory(tree_);
    Nest(tree_, 3000);
    fs::create_directories(tree_ / "a/b/c/d");
    std::ofstream(tree_ / "a/b/c/d/file");
    fs::create_directory_symlink("/usr", tree_ / "a/b/link");
    for (const char* each : {"a/b/c/d", "a/b/c", "a/b", "a"}) ::chmod((tree_ / each).c_str(), 0);
    RemoveTree(tree_);
    return !fs::exists(tree_);
  }));
  RemoveTree(tree_);  // what is not there
}

}  // namespace
}  // namespace quench::folder_tree_test
