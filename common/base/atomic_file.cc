#include "common/base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>

#include "common/base/errno_status.h"
#include "common/base/status.h"

namespace quench {
namespace {

constexpr int kMostTries = 100;

// A name that no other file of this machine is likely to have.
std::string Beside(const std::filesystem::path& path) {
  static std::atomic<uint32_t> count = 0;
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return fmt::format("{}.{:x}-{:x}-{:x}", path.string(), ::getpid(), now & 0xffffff, count++);
}

}  // namespace

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::filesystem::path& path) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode) &&
      !S_ISDIR(status.st_mode)) {  // of a folder, renaming fails
    return InvalidArgument("`{}` is not a regular file: it would be replaced", path.string());
  }
  std::string temporary;
  int fd = -1;
  // Not mkstemp: its file is its owner's alone, and where steps run nothing may change a mode.
  for (int tries = 0; tries < kMostTries && (fd < 0 && (tries == 0 || errno == EEXIST)); ++tries) {
    temporary = Beside(path);
    fd = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  }
  if (fd < 0) return ErrnoStatus(errno, "create", path);
  return std::unique_ptr<AtomicFile>(new AtomicFile(fd, path, std::move(temporary)));
}

AtomicFile::~AtomicFile() {
  ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

absl::Status AtomicFile::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(errno, "write", path_);
    bytes = bytes.subspan(static_cast<size_t>(written));
    Appended(static_cast<uint64_t>(written));
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::AppendRange(const FileRange& from, uint64_t size) {
  QUENCH_RETURN_IF_ERROR(CopyRange(from, {fd_, size_, path_}, size));
  Appended(size);
  return absl::OkStatus();
}

void AtomicFile::Appended(uint64_t bytes) {
  FlushAsWritten(fd_, size_, bytes);
  size_ += bytes;
}

absl::Status AtomicFile::Commit() {
  if (::fsync(fd_) != 0) return ErrnoStatus(errno, "flush", path_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return ErrnoStatus(errno, "rename to", path_);
  }
  temporary_.clear();
  return absl::OkStatus();
}

void FlushAsWritten(int fd, uint64_t offset, uint64_t size) {
  constexpr uint64_t kPiece = uint64_t{8} << 20;
  const uint64_t begin = offset / kPiece * kPiece, end = (offset + size) / kPiece * kPiece;
  if (end == begin) return;
  (void)::sync_file_range(fd, static_cast<off_t>(begin), static_cast<off_t>(end - begin),
                          SYNC_FILE_RANGE_WRITE);
}

}  // namespace quench
