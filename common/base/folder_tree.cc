#include "common/base/folder_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/errno_status.h"
#include "common/base/status.h"

namespace quench {
namespace {

constexpr int kDeepest = 32;
// The space that file systems have one inode for.
constexpr int64_t kBytesOfEachFile = int64_t{16} << 10;

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;

Folder OpenFolder(int beside, const char* name) {
  const int fd = ::openat(beside, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR* const folder = fd < 0 ? nullptr : ::fdopendir(fd);
  const int error = errno;
  if (folder == nullptr && fd >= 0) ::close(fd);
  errno = error;
  return {folder, ::closedir};
}

// Null at the end.
const char* NextName(DIR* folder) {
  for (;;) {
    const dirent* const entry = ::readdir(folder);
    if (entry == nullptr) return nullptr;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") return entry->d_name;
  }
}

class Counter {
 public:
  explicit Counter(int64_t enough) : enough_(enough) {}
  int64_t bytes() const { return bytes_; }

  absl::Status Add(DIR* folder, int depth) {
    while (const char* name = NextName(folder)) {
      struct stat info{};
      if (::fstatat(::dirfd(folder), name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;  // gone
      constexpr int64_t kBlock = 512;  // st_blocks' unit
      bytes_ += std::max(kBytesOfEachFile, int64_t{info.st_blocks} * kBlock);
      if (bytes_ > enough_) return absl::OkStatus();
      if (!S_ISDIR(info.st_mode)) continue;
      QUENCH_RETURN_IF_ERROR(Enter(folder, name, depth + 1));
      if (bytes_ > enough_) return absl::OkStatus();
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Enter(DIR* folder, const char* name, int depth) {
    if (depth > kDeepest) {
      return absl::ResourceExhaustedError(
          fmt::format("folders lie more than {} deep in each other", kDeepest));
    }
    const Folder inner = OpenFolder(::dirfd(folder), name);
    if (inner != nullptr) return Add(inner.get(), depth);
    if (errno != EACCES) return absl::OkStatus();  // gone, or replaced
    return absl::ResourceExhaustedError("a folder cannot be looked into");
  }

  const int64_t enough_;
  int64_t bytes_ = 0;
};

// Empties a folder by moving what is in the folders beneath up into it.
class Emptier {
 public:
  explicit Emptier(DIR* top) : top_(::dirfd(top)), folder_(top) {}

  void Run() {
    do {
      has_changed_ = false;
      ::rewinddir(folder_);
      while (const char* name = NextName(folder_)) {
        if (!Remove(top_, name)) Flatten(name);
      }
    } while (has_changed_);
  }

 private:
  // False: it is a folder that is not empty.
  bool Remove(int folder, const char* name) {
    if (::unlinkat(folder, name, 0) == 0 || ::unlinkat(folder, name, AT_REMOVEDIR) == 0) {
      has_changed_ = true;
      return true;
    }
    return errno != ENOTEMPTY && errno != EEXIST;
  }

  void Flatten(const char* name) {
    (void)::fchmodat(top_, name, S_IRWXU, 0);  // it is not a link: that would be gone
    const Folder folder = OpenFolder(top_, name);
    if (folder == nullptr) return;
    while (const char* inner = NextName(folder.get())) {
      if (Remove(::dirfd(folder.get()), inner)) continue;
      // Moving a folder needs write permission in it.
      (void)::fchmodat(::dirfd(folder.get()), inner, S_IRWXU, 0);
      const std::string moved = fmt::format("{}{}", prefix_, ++count_);
      if (::renameat(::dirfd(folder.get()), inner, top_, moved.c_str()) == 0) has_changed_ = true;
    }
    if (::unlinkat(top_, name, AT_REMOVEDIR) == 0) has_changed_ = true;
  }

  const int top_;
  DIR* const folder_;
  // Nothing that was there can have guessed it.
  const std::string prefix_ = fmt::format(
      ".removed-{}-{}-", ::getpid(), std::chrono::steady_clock::now().time_since_epoch().count());
  int64_t count_ = 0;
  bool has_changed_ = false;
};

}  // namespace

absl::StatusOr<int64_t> BytesBeneath(const std::filesystem::path& folder, int64_t enough) {
  const Folder top = OpenFolder(AT_FDCWD, folder.c_str());
  if (top == nullptr) return ErrnoStatus(errno, "open", folder);
  Counter counter(enough);
  QUENCH_RETURN_IF_ERROR(counter.Add(top.get(), 0));
  return counter.bytes();
}

void RemoveTree(const std::filesystem::path& folder) {
  if (const Folder top = OpenFolder(AT_FDCWD, folder.c_str()); top != nullptr) {
    Emptier(top.get()).Run();
  }
  (void)::rmdir(folder.c_str());
}

}  // namespace quench
