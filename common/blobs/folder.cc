#include "common/blobs/folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <tuple>

#include "common/base/atomic_file.h"
#include "common/base/beside.h"
#include "common/base/files.h"
#include "common/base/status.h"

namespace quench::blobs {
namespace fs = std::filesystem;

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    (void)Close();
    fd_ = other.Release();
  }
  return *this;
}

int UniqueFd::Release() { return std::exchange(fd_, -1); }

int UniqueFd::Close() {
  if (fd_ < 0) return 0;
  return ::close(std::exchange(fd_, -1)) == 0 ? 0 : errno;
}

absl::Status MakeFolders(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? ErrnoStatus(error.value(), "create folder", path) : absl::OkStatus();
}

absl::Status SyncFolder(const fs::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return ErrnoStatus(errno, "open", path);
  return ::fsync(fd.get()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "flush", path);
}

absl::Status WriteAllAt(int fd, std::span<const std::byte> bytes, uint64_t offset,
                        const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "write", path);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

absl::Status WriteHashedAt(int fd, std::span<const std::byte> bytes, uint64_t offset, Sha256* sha,
                           const fs::path& path) {
  absl::Status written;
  HashBeside(bytes, sha, [&] {
    written = WriteAllAt(fd, bytes, offset, path);
    if (written.ok()) FlushAsWritten(fd, offset, bytes.size());
  });
  return written;
}

absl::Status ReadAllAt(int fd, uint64_t offset, std::span<std::byte> into, size_t* read,
                       const fs::path& path) {
  *read = 0;
  while (*read < into.size()) {
    const ssize_t count =
        ::pread(fd, into.data() + *read, into.size() - *read, static_cast<off_t>(offset + *read));
    if (count < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "read", path);
    }
    if (count == 0) break;
    *read += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

absl::Status CopyHashed(
    const FileRange& from, uint64_t size, Sha256* sha, const StepContext& step,
    const std::function<absl::Status(const FileRange& piece, uint64_t size)>& copy) {
  constexpr uint64_t kPiece = uint64_t{8} << 20;
  std::vector<std::byte> buffer(size_t{256} << 10);  // stays in the processor's cache
  const auto hash = [&](uint64_t begin, uint64_t end) -> absl::Status {
    for (uint64_t at = begin; at < end;) {
      const std::span into(buffer.data(), std::min<uint64_t>(buffer.size(), end - at));
      size_t read = 0;
      QUENCH_RETURN_IF_ERROR(ReadAllAt(from.fd, from.offset + at, into, &read, from.path));
      if (read < into.size()) {
        return absl::AbortedError(
            fmt::format("`{}` became shorter while it was copied", from.path.string()));
      }
      sha->Update(into);
      at += read;
    }
    return absl::OkStatus();
  };
  for (uint64_t done = 0; done < size;) {
    QUENCH_RETURN_IF_ERROR(step.Check());
    const uint64_t count = std::min(kPiece, size - done);
    absl::Status hashed, copied;
    RunBeside([&] { hashed = hash(done, done + count); },
              [&] { copied = copy({from.fd, from.offset + done, from.path}, count); });
    QUENCH_RETURN_IF_ERROR(copied);
    QUENCH_RETURN_IF_ERROR(hashed);
    done += count;
    step.Report({"copy", "", static_cast<int64_t>(done), static_cast<int64_t>(size)});
  }
  return absl::OkStatus();
}

absl::Status Publish(UniqueFd fd, const fs::path& temporary, const fs::path& blobs,
                     const std::string& digest) {
  const fs::path folder = blobs / digest.substr(0, 2);
  const fs::path target = folder / digest;
  if (::fchmod(fd.get(), 0444) != 0) return ErrnoStatus(errno, "make read-only", temporary);
  if (::fsync(fd.get()) != 0) return ErrnoStatus(errno, "flush", temporary);
  QUENCH_RETURN_IF_ERROR(MakeFolders(folder));
  if (::rename(temporary.c_str(), target.c_str()) != 0) {
    return ErrnoStatus(errno, "rename to", target);
  }
  return SyncFolder(folder);
}

bool UsedBefore(const StoredFile& a, const StoredFile& b) {
  return std::tie(a.used.tv_sec, a.used.tv_nsec, a.path) <
         std::tie(b.used.tv_sec, b.used.tv_nsec, b.path);
}

std::vector<StoredFile> ListDigests(const fs::path& root) {
  std::vector<StoredFile> found;
  std::error_code error;
  for (fs::directory_iterator folder(root, error), end; !error && folder != end;
       folder.increment(error)) {
    std::error_code inner;
    for (fs::directory_iterator file(folder->path(), inner); !inner && file != end;
         file.increment(inner)) {
      struct stat info{};
      if (!IsDigest(file->path().filename().string())) continue;
      if (::lstat(file->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
      found.push_back({file->path(), static_cast<uint64_t>(info.st_size), info.st_mtim});
    }
  }
  return found;
}

std::vector<StoredFile> ListFiles(const fs::path& folder) {
  std::vector<StoredFile> found;
  std::error_code error;
  for (fs::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error)) {
    struct stat info{};
    if (::lstat(file->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    const auto bytes = static_cast<uint64_t>(info.st_size);
    constexpr uint64_t kBlock = 512;  // st_blocks' unit
    found.push_back({file->path(), bytes, info.st_mtim,
                     std::max(bytes, static_cast<uint64_t>(info.st_blocks) * kBlock)});
  }
  return found;
}

void MarkUsed(const fs::path& path) {
  // A read-only store simply has no order of use.
  (void)::utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

absl::StatusOr<UniqueFd> MakeTemporary(const fs::path& folder, fs::path* path) {
  while (true) {
    std::string name = (folder / "XXXXXX").string();
    UniqueFd fd(::mkostemp(name.data(), O_CLOEXEC));
    if (fd.get() < 0) return ErrnoStatus(errno, "create a file in", folder);
    *path = name;
    if (::flock(fd.get(), LOCK_EX) != 0) {
      const int error = errno;
      // File systems without locks: nothing is taken for abandoned there.
      if (error == ENOSYS || error == EOPNOTSUPP) return fd;
      ::unlink(name.c_str());
      return ErrnoStatus(error, "lock", *path);
    }
    struct stat info{};
    if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "inspect", *path);
    if (info.st_nlink > 0) return fd;  // else it was taken for abandoned before it was locked
  }
}

void RemoveAbandoned(const fs::path& folder) {
  for (const StoredFile& file : ListFiles(folder)) {
    const UniqueFd fd(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    // Shared: over NFS, only a file that is open for writing can be locked for itself.
    if (fd.get() < 0 || ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0) continue;
    ::unlink(file.path.c_str());
  }
}

}  // namespace quench::blobs
