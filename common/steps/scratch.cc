#include "common/steps/scratch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "common/base/folder_tree.h"
#include "common/base/status.h"

namespace quench::steps {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "quench-steps-";
constexpr char kLock[] = "lock";

// A descriptor that holds the folder's lock, or -1 when another process does.
int TryLock(const fs::path& folder, int flags) {
  const int fd = ::open((folder / kLock).c_str(), flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}

void RemoveLeftovers(const fs::path& parent) {
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(kPrefix)) continue;
    const int fd = TryLock(entry->path(), 0);
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
  const int lock = TryLock(path, O_CREAT);
  if (lock < 0) return ErrnoStatus(errno, "lock", path);
  return ScratchFolder(path, lock);
}

ScratchFolder::ScratchFolder(ScratchFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_(std::exchange(other.lock_, -1)) {}

ScratchFolder::~ScratchFolder() {
  if (path_.empty()) return;
  RemoveTree(path_);
  ::close(lock_);
}

}  // namespace quench::steps
