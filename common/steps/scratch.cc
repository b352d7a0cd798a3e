#include "common/steps/scratch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>

#include "common/base/folder_tree.h"
#include "common/base/status.h"

namespace quench::steps {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "quench-steps-";
constexpr char kLock[] = "lock";

// A descriptor that holds a lock on `file`, or -1 with errno set when another process holds it or there is
// no such file.
int TryLock(const fs::path& file, int flags) {
  const int fd = ::open(file.c_str(), flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0 || ::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

// The lock of a new folder gets its name once it is held: a server that looks for leftovers meanwhile finds
// either no lock or one in use.
int LockNew(const fs::path& folder) {
  const fs::path unnamed = folder / (std::string(kLock) + ".new");
  const int fd = TryLock(unnamed, O_CREAT);
  if (fd < 0 || ::rename(unnamed.c_str(), (folder / kLock).c_str()) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

void RemoveLeftovers(const fs::path& parent) {
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(kPrefix)) continue;
    const int fd = TryLock(entry->path() / kLock, 0);
    if (fd < 0) continue;  // in use, or not ours
    RemoveTree(entry->path());
    ::close(fd);
  }
}

}  // namespace

absl::StatusOr<ScratchFolder> ScratchFolder::Create(const fs::path& parent) {
  std::error_code error;
  const fs::path root = parent.empty() ? fs::temp_directory_path(error) : parent;
  if (error) return ErrnoStatus(error.value(), "find", "the folder for temporary files");
  fs::create_directories(root, error);
  if (error) return ErrnoStatus(error.value(), "create folder", root);
  RemoveLeftovers(root);
  std::string path = (root / kPrefix).string() + "XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return ErrnoStatus(errno, "create a folder in", root);
  const int lock = LockNew(path);
  if (lock < 0) return ErrnoStatus(errno, "lock", path);
  return ScratchFolder(path, lock);
}

absl::StatusOr<TempDir> ScratchFolder::Step() const {
  absl::StatusOr<TempDir> step = TempDir::Create(path_);
  if (!absl::IsNotFound(step.status())) return step;
  const std::lock_guard lock(mutex_);
  if (::mkdir(path_.c_str(), 0700) == 0) {
    if (lock_ >= 0) ::close(lock_);  // of a file that is gone
    lock_ = LockNew(path_);
  }
  return TempDir::Create(path_);
}

ScratchFolder::ScratchFolder(ScratchFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_(std::exchange(other.lock_, -1)) {}

ScratchFolder::~ScratchFolder() {
  if (path_.empty()) return;
  RemoveTree(path_);
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace quench::steps
