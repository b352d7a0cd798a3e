#include "common/base/copy_range.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/atomic_file.h"
#include "common/base/files.h"

namespace quench::copy_range_test {
namespace {

struct Opened {
  explicit Opened(const std::filesystem::path& file, int flags = O_RDONLY)
      : path(file), fd(::open(file.c_str(), flags | O_CLOEXEC)) {}
  ~Opened() { ::close(fd); }
  FileRange At(uint64_t offset) const { return {fd, offset, path}; }
  const std::filesystem::path path;
  const int fd;
};

std::string Text(size_t size) {
  std::string text(size, 0);
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7919 >> 4);
  return text;
}

// Within a file system and, where there are two, from one to the other.
std::vector<TempDir> Folders() {
  std::vector<TempDir> folders;
  folders.push_back(*TempDir::Create());
  auto other = TempDir::Create("/dev/shm");
  if (other.ok()) folders.push_back(*std::move(other));
  return folders;
}

TEST(CopyRangeTest, CopiesWhatIsAsked) {
  const TempDir folder = *TempDir::Create();
  const std::string text = Text(3'000'001);
  ASSERT_TRUE(WriteFileAtomically(folder.path() / "from", text).ok());
  const Opened from(folder.path() / "from");
  for (const TempDir& there : Folders()) {
    const std::filesystem::path path = there.path() / "to";
    ASSERT_TRUE(WriteFileAtomically(path, "begin").ok());
    const Opened to(path, O_RDWR);
    ASSERT_EQ(CopyRange(from.At(100), to.At(5), 2'500'000), absl::OkStatus());
    ASSERT_EQ(CopyRange(from.At(0), to.At(0), 0), absl::OkStatus());
    EXPECT_TRUE(*ReadFile(path) == "begin" + text.substr(100, 2'500'000));
    const absl::Status shorter = CopyRange(from.At(3'000'000), to.At(0), 2);
    EXPECT_EQ(shorter.code(), absl::StatusCode::kAborted);
    EXPECT_EQ(CopyRange(from.At(0), Opened(path).At(0), 1).code(),
              absl::StatusCode::kFailedPrecondition);
  }
}

TEST(CopyRangeTest, AnAtomicFileTakesBytesBothWays) {
  const std::string text = Text(300'000);
  for (const TempDir& folder : Folders()) {
    ASSERT_TRUE(WriteFileAtomically(folder.path() / "from", text).ok());
    const Opened from(folder.path() / "from");
    const auto file = AtomicFile::Create(folder.path() / "to");
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Append(std::as_bytes(std::span("abc", 3))).ok());
    ASSERT_EQ((*file)->AppendRange(from.At(0), text.size()), absl::OkStatus());
    ASSERT_TRUE((*file)->Append(std::as_bytes(std::span("end", 3))).ok());
    EXPECT_EQ((*file)->size(), text.size() + 6);
    ASSERT_TRUE((*file)->Commit().ok());
    EXPECT_TRUE(*ReadFile(folder.path() / "to") == "abc" + text + "end");
  }
}

}  // namespace
}  // namespace quench::copy_range_test
