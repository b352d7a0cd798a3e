#include "common/blobs/blob_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <system_error>

#include "common/base/status.h"
#include "common/blobs/digest.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr time_t kUnfinishedSeconds = 3600;

absl::Status MakeFolders(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? ErrnoStatus(error.value(), "create folder", path) : absl::OkStatus();
}

absl::Status SyncFolder(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  return result == 0 ? absl::OkStatus() : ErrnoStatus(error, "flush", path);
}

// A file under `tmp/` that becomes `<folder of digest>/<digest>`.
class LocalBlobWriter : public BlobWriter {
 public:
  LocalBlobWriter(int fd, fs::path temporary, fs::path blobs)
      : fd_(fd), temporary_(std::move(temporary)), blobs_(std::move(blobs)) {}
  ~LocalBlobWriter() override {
    if (fd_ >= 0) ::close(fd_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }
  LocalBlobWriter(const LocalBlobWriter&) = delete;
  LocalBlobWriter& operator=(const LocalBlobWriter&) = delete;

  absl::Status Append(std::span<const std::byte> bytes) override;
  uint64_t size() const override { return size_; }
  absl::StatusOr<std::string> Commit() override;

 private:
  int fd_;
  fs::path temporary_;
  fs::path blobs_;
  Sha256 sha_;
  uint64_t size_ = 0;
  absl::Status failure_;  // the first failed write; nothing is committed after it
};

absl::Status LocalBlobWriter::Append(std::span<const std::byte> bytes) {
  QUENCH_RETURN_IF_ERROR(failure_);
  if (fd_ < 0) return absl::FailedPreconditionError("the blob is already committed");
  if (bytes.size() > kMaxBlobBytes - size_) {
    failure_ = absl::ResourceExhaustedError(
        fmt::format("a blob of more than {} bytes, at most that is stored", kMaxBlobBytes));
    return failure_;
  }
  sha_.Update(bytes);
  size_ += bytes.size();
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      failure_ = ErrnoStatus(errno, "write", temporary_);
      return failure_;
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> LocalBlobWriter::Commit() {
  QUENCH_RETURN_IF_ERROR(failure_);
  if (fd_ < 0) return absl::FailedPreconditionError("the blob is already committed");
  std::string digest = sha_.HexDigest();
  const fs::path folder = blobs_ / digest.substr(0, 2);
  const fs::path target = folder / digest;
  const int fd = std::exchange(fd_, -1);
  absl::Status status;
  if (::fchmod(fd, 0444) != 0) status = ErrnoStatus(errno, "make read-only", temporary_);
  if (status.ok() && ::fsync(fd) != 0) status = ErrnoStatus(errno, "flush", temporary_);
  if (::close(fd) != 0 && status.ok()) status = ErrnoStatus(errno, "close", temporary_);
  QUENCH_RETURN_IF_ERROR(status);
  QUENCH_RETURN_IF_ERROR(MakeFolders(folder));
  if (::rename(temporary_.c_str(), target.c_str()) != 0) {
    return ErrnoStatus(errno, "rename to", target);
  }
  temporary_.clear();
  QUENCH_RETURN_IF_ERROR(SyncFolder(folder));
  return digest;
}

struct StoredBlob {
  fs::path path;
  uint64_t bytes = 0;
  timespec used{};
};

// Every blob of the store; files that vanish meanwhile (another process prunes) are left out.
std::vector<StoredBlob> ListBlobs(const fs::path& blobs) {
  std::vector<StoredBlob> found;
  std::error_code error;
  for (fs::directory_iterator folder(blobs, error), end; !error && folder != end;
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

void RemoveUnfinished(const fs::path& folder) {
  std::error_code error;
  const time_t now = ::time(nullptr);
  for (fs::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error)) {
    struct stat info{};
    if (::lstat(file->path().c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
        now - info.st_mtim.tv_sec > kUnfinishedSeconds) {
      ::unlink(file->path().c_str());
    }
  }
}

}  // namespace

absl::StatusOr<std::string> BlobStore::Put(std::span<const std::byte> bytes) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<BlobWriter> writer, Create());
  QUENCH_RETURN_IF_ERROR(writer->Append(bytes));
  return writer->Commit();
}

absl::StatusOr<std::shared_ptr<LocalBlobStore>> LocalBlobStore::Open(const fs::path& root,
                                                                     uint64_t limit_bytes) {
  QUENCH_RETURN_IF_ERROR(MakeFolders(root / "blobs" / "sha256"));
  QUENCH_RETURN_IF_ERROR(MakeFolders(root / "tmp"));
  std::shared_ptr<LocalBlobStore> store(new LocalBlobStore(root, limit_bytes));
  // Nine tenths, so that not every start prunes.
  if (store->Stat()->bytes > limit_bytes) {
    QUENCH_RETURN_IF_ERROR(store->Prune(limit_bytes / 10 * 9).status());
  }
  return store;
}

fs::path LocalBlobStore::DefaultRoot() {
  // XDG base directory specification: relative values are ignored.
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return fs::path(cache) / "quench";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return fs::path(home) / ".cache" / "quench";
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  return (error ? fs::path("/tmp") : temporary) / ("quench-" + std::to_string(::getuid()));
}

fs::path LocalBlobStore::PathOf(const std::string& digest) const {
  return root_ / "blobs" / "sha256" / digest.substr(0, 2) / digest;
}

absl::StatusOr<std::unique_ptr<BlobWriter>> LocalBlobStore::Create() {
  std::string temporary = (root_ / "tmp" / "XXXXXX").string();
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "create a file in", root_ / "tmp");
  return std::make_unique<LocalBlobWriter>(fd, temporary, root_ / "blobs" / "sha256");
}

absl::StatusOr<std::shared_ptr<const FileMapping>> LocalBlobStore::Open(const std::string& digest) {
  if (!IsDigest(digest)) {
    return InvalidArgument("`{}` is not a blob digest, those have 64 lower-case hex characters",
                           digest.substr(0, 80));
  }
  const fs::path path = PathOf(digest);
  absl::StatusOr<std::shared_ptr<const FileMapping>> mapping = FileMapping::Open(path);
  if (absl::IsNotFound(mapping.status())) {
    return absl::NotFoundError(fmt::format("blob `{}` is not in the store", digest));
  }
  // The file's own time stamps carry the order of use; a read-only store simply has none.
  if (mapping.ok()) (void)::utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  return mapping;
}

bool LocalBlobStore::Contains(const std::string& digest) {
  return IsDigest(digest) && ::access(PathOf(digest).c_str(), R_OK) == 0;
}

absl::StatusOr<BlobStat> LocalBlobStore::Stat() const {
  BlobStat stat{0, 0, limit_bytes_};
  for (const StoredBlob& blob : ListBlobs(root_ / "blobs" / "sha256")) {
    ++stat.count;
    stat.bytes += blob.bytes;
  }
  return stat;
}

absl::StatusOr<BlobStat> LocalBlobStore::Prune(uint64_t keep_bytes) {
  RemoveUnfinished(root_ / "tmp");
  std::vector<StoredBlob> blobs = ListBlobs(root_ / "blobs" / "sha256");
  std::sort(blobs.begin(), blobs.end(), [](const StoredBlob& a, const StoredBlob& b) {
    return std::tie(a.used.tv_sec, a.used.tv_nsec, a.path) <
           std::tie(b.used.tv_sec, b.used.tv_nsec, b.path);
  });
  uint64_t kept = 0;
  for (const StoredBlob& blob : blobs) kept += blob.bytes;
  BlobStat removed{0, 0, limit_bytes_};
  for (const StoredBlob& blob : blobs) {
    if (kept <= keep_bytes) break;
    // Whoever has it open or mapped keeps it until done.
    if (::unlink(blob.path.c_str()) != 0) {
      if (errno == ENOENT) continue;
      return ErrnoStatus(errno, "remove", blob.path);
    }
    kept -= blob.bytes;
    ++removed.count;
    removed.bytes += blob.bytes;
  }
  return removed;
}

}  // namespace quench
