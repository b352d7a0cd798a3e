#include "common/blobs/blob_store.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "common/base/atomic_file.h"
#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/blobs/folder.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using blobs::UniqueFd;

constexpr size_t kHashedBytes = size_t{1} << 20;

// A file under `tmp/` that becomes `<folder of digest>/<digest>`, or `<drafts>/<digest>`.
class LocalBlobWriter : public BlobWriter {
 public:
  LocalBlobWriter(UniqueFd fd, fs::path temporary, fs::path blobs, bool are_drafts,
                  std::shared_ptr<BlobSpace> space, std::shared_ptr<blobs::VerifiedFiles> verified)
      : fd_(std::move(fd)),
        temporary_(std::move(temporary)),
        blobs_(std::move(blobs)),
        are_drafts_(are_drafts),
        space_(std::move(space)),
        verified_(std::move(verified)) {}
  ~LocalBlobWriter() override {
    if (temporary_.empty()) return;
    ::unlink(temporary_.c_str());
    if (space_ != nullptr) space_->Give(size_);
  }
  LocalBlobWriter(const LocalBlobWriter&) = delete;
  LocalBlobWriter& operator=(const LocalBlobWriter&) = delete;

  absl::Status Append(std::span<const std::byte> bytes) override;
  absl::Status AppendAll(const BlobReader& from, const StepContext& step) override;
  // The file whose name the writer's own has taken, open to the end: a process that has found it in
  // `tmp/` must not take its name for abandoned.
  void Keep(UniqueFd place) { place_ = std::move(place); }
  // The bytes that lie in the writer's own file before anything is appended.
  absl::Status CountOwn(uint64_t bytes, const StepContext& step);
  uint64_t size() const override { return size_; }
  absl::StatusOr<std::string> Commit() override;
  absl::Status CommitAs(const BlobId& id) override;

 private:
  absl::Status CheckOpen() const;
  absl::Status Take(uint64_t bytes);
  absl::Status Publish(const std::string& digest);

  UniqueFd place_;
  UniqueFd fd_;
  fs::path temporary_;
  fs::path blobs_;
  const bool are_drafts_;
  std::shared_ptr<BlobSpace> space_;
  std::shared_ptr<blobs::VerifiedFiles> verified_;
  Sha256 sha_;
  uint64_t size_ = 0;
  absl::Status failure_;  // the first failed write; nothing is committed after it
};

absl::Status LocalBlobWriter::CheckOpen() const {
  QUENCH_RETURN_IF_ERROR(failure_);
  if (fd_.get() < 0) return absl::FailedPreconditionError("the blob is already committed");
  return absl::OkStatus();
}

absl::Status LocalBlobWriter::Take(uint64_t bytes) {
  if (space_ != nullptr) QUENCH_RETURN_IF_ERROR(space_->Take(bytes));
  size_ += bytes;
  return absl::OkStatus();
}

absl::Status LocalBlobWriter::Append(std::span<const std::byte> bytes) {
  QUENCH_RETURN_IF_ERROR(CheckOpen());
  const uint64_t offset = size_;
  failure_ = Take(bytes.size());
  if (failure_.ok()) {
    failure_ = blobs::WriteHashedAt(fd_.get(), bytes, offset, &sha_, temporary_);
  }
  return failure_;
}

absl::Status LocalBlobWriter::AppendAll(const BlobReader& from, const StepContext& step) {
  QUENCH_RETURN_IF_ERROR(CheckOpen());
  failure_ = blobs::CopyHashed(
      {from.fd(), 0, from.path()}, from.size(), &sha_, step,
      [&](const FileRange& piece, uint64_t count) -> absl::Status {
        const uint64_t offset = size_;
        QUENCH_RETURN_IF_ERROR(Take(count));
        QUENCH_RETURN_IF_ERROR(CopyRange(piece, {fd_.get(), offset, temporary_}, count));
        FlushAsWritten(fd_.get(), offset, count);
        return absl::OkStatus();
      });
  return failure_;
}

absl::Status LocalBlobWriter::CountOwn(uint64_t bytes, const StepContext& step) {
  QUENCH_RETURN_IF_ERROR(Take(bytes));
  FlushAsWritten(fd_.get(), 0, bytes);
  std::vector<std::byte> buffer(kHashedBytes);
  for (uint64_t done = 0; done < bytes;) {
    QUENCH_RETURN_IF_ERROR(step.Check());
    size_t read = 0;
    QUENCH_RETURN_IF_ERROR(blobs::ReadAllAt(fd_.get(), done, buffer, &read, temporary_));
    if (read == 0) return absl::AbortedError("a file became shorter while it was taken over");
    sha_.Update(std::span<const std::byte>(buffer).first(read));
    done += read;
  }
  return absl::OkStatus();
}

absl::Status LocalBlobWriter::Publish(const std::string& digest) {
  if (are_drafts_) {
    const fs::path target = blobs_ / digest;
    if (::rename(temporary_.c_str(), target.c_str()) != 0) {
      return ErrnoStatus(errno, "rename to", target);
    }
    temporary_.clear();
    return absl::OkStatus();
  }
  struct stat info{};
  const bool known = ::fstat(fd_.get(), &info) == 0;
  QUENCH_RETURN_IF_ERROR(blobs::Publish(std::move(fd_), temporary_, blobs_, digest));
  temporary_.clear();
  if (known) verified_->Add(digest, info.st_ino);
  return absl::OkStatus();
}

absl::StatusOr<std::string> LocalBlobWriter::Commit() {
  QUENCH_RETURN_IF_ERROR(CheckOpen());
  std::string digest = sha_.HexDigest();
  QUENCH_RETURN_IF_ERROR(Publish(digest));
  return digest;
}

absl::Status LocalBlobWriter::CommitAs(const BlobId& id) {
  QUENCH_RETURN_IF_ERROR(CheckOpen());
  const std::string digest = sha_.HexDigest();
  if (digest != id.hash || size_ != id.size) {
    failure_ = WrongBlob(digest, size_, id);
    return failure_;
  }
  return Publish(digest);
}

absl::Status CheckDigest(const std::string& digest) {
  if (IsDigest(digest)) return absl::OkStatus();
  return InvalidArgument("`{}` is not a blob digest, those have 64 lower-case hex characters",
                         digest.substr(0, 80));
}

absl::Status Missing(const std::string& digest) {
  return absl::NotFoundError(fmt::format("blob `{}` is not in the store", digest));
}

}  // namespace

absl::Status WrongBlob(const std::string& digest, uint64_t size, const BlobId& expected) {
  return InvalidArgument("the bytes are blob `{}` of {} bytes, not `{}` of {}", digest, size,
                         expected.hash, expected.size);
}

BlobReader::~BlobReader() { ::close(fd_); }

absl::Status BlobReader::ReadAt(uint64_t offset, std::span<std::byte> into) const {
  size_t read = 0;
  QUENCH_RETURN_IF_ERROR(blobs::ReadAllAt(fd_, offset, into, &read, path_));
  if (read == into.size()) return absl::OkStatus();
  return absl::DataLossError(fmt::format("blob `{}` ends after {} of {} bytes",
                                         path_.filename().string(), offset + read, size_));
}

absl::Status BlobWriter::AppendAll(const BlobReader& from, const StepContext& step) {
  std::vector<std::byte> buffer(std::min<uint64_t>(from.size(), kHashedBytes));
  for (uint64_t done = 0; done < from.size(); done += buffer.size()) {
    QUENCH_RETURN_IF_ERROR(step.Check());
    buffer.resize(std::min<uint64_t>(buffer.size(), from.size() - done));
    QUENCH_RETURN_IF_ERROR(from.ReadAt(done, buffer));
    QUENCH_RETURN_IF_ERROR(Append(buffer));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> BlobStore::Put(std::span<const std::byte> bytes) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<BlobWriter> writer, Create());
  QUENCH_RETURN_IF_ERROR(writer->Append(bytes));
  return writer->Commit();
}

absl::StatusOr<std::shared_ptr<LocalBlobStore>> LocalBlobStore::Open(const fs::path& root,
                                                                     uint64_t limit_bytes) {
  QUENCH_ASSIGN_OR_RETURN(std::shared_ptr<LocalBlobStore> store, Open(root, nullptr));
  store->limit_bytes_ = limit_bytes;
  // Nine tenths, so that not every start prunes.
  if (store->Stat()->bytes > limit_bytes) {
    QUENCH_RETURN_IF_ERROR(store->Prune(limit_bytes / 10 * 9).status());
  }
  return store;
}

absl::StatusOr<std::shared_ptr<LocalBlobStore>> LocalBlobStore::Open(
    const fs::path& root, std::shared_ptr<BlobSpace> space) {
  QUENCH_RETURN_IF_ERROR(blobs::MakeFolders(root / "blobs" / "sha256"));
  QUENCH_RETURN_IF_ERROR(blobs::MakeFolders(root / "tmp"));
  blobs::RemoveAbandoned(root / "tmp");
  const uint64_t limit = space == nullptr ? 0 : space->max_bytes();
  if (space != nullptr) space->AddRoot(root);
  return std::shared_ptr<LocalBlobStore>(new LocalBlobStore(root, limit, std::move(space)));
}

std::shared_ptr<LocalBlobStore> LocalBlobStore::OpenDrafts(const fs::path& drafts,
                                                           const fs::path& lent,
                                                           std::shared_ptr<BlobSpace> space) {
  if (space != nullptr) space->AddRoot(drafts);
  std::shared_ptr<LocalBlobStore> store(new LocalBlobStore(lent, 0, std::move(space)));
  store->drafts_ = drafts;
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
  if (!drafts_.empty()) {
    const fs::path draft = drafts_ / digest;
    return ::access(draft.c_str(), F_OK) == 0 ? draft : root_ / digest;
  }
  return root_ / "blobs" / "sha256" / digest.substr(0, 2) / digest;
}

absl::StatusOr<std::unique_ptr<BlobWriter>> LocalBlobStore::Create() {
  fs::path temporary;
  QUENCH_ASSIGN_OR_RETURN(UniqueFd fd, blobs::MakeTemporary(Temporaries(), &temporary));
  return std::make_unique<LocalBlobWriter>(std::move(fd), temporary,
                                           drafts_.empty() ? blobs() : drafts_, !drafts_.empty(),
                                           space_, verified_);
}

absl::StatusOr<std::shared_ptr<const FileMapping>> LocalBlobStore::Open(const std::string& digest) {
  QUENCH_RETURN_IF_ERROR(CheckDigest(digest));
  const fs::path path = PathOf(digest);
  if (drafts_.empty()) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.get() >= 0 && !IsRight(digest, fd.get())) return Missing(digest);
  }
  absl::StatusOr<std::shared_ptr<const FileMapping>> mapping = FileMapping::Open(path);
  if (absl::IsNotFound(mapping.status())) return Missing(digest);
  if (mapping.ok()) blobs::MarkUsed(path);
  return mapping;
}

absl::StatusOr<std::unique_ptr<BlobReader>> LocalBlobStore::OpenReader(const BlobId& id) {
  QUENCH_RETURN_IF_ERROR(CheckDigest(id.hash));
  const fs::path path = PathOf(id.hash);
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return errno == ENOENT ? Missing(id.hash) : ErrnoStatus(errno, "open", path);
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "inspect", path);
  if (static_cast<uint64_t>(info.st_size) != id.size) {
    return absl::NotFoundError(
        fmt::format("blob `{}` has {} bytes, not {}", id.hash, info.st_size, id.size));
  }
  if (!IsRight(id.hash, fd.get())) return Missing(id.hash);
  blobs::MarkUsed(path);
  return std::make_unique<BlobReader>(fd.Release(), id.size, path);
}

bool LocalBlobStore::Contains(const std::string& digest) {
  return IsDigest(digest) && ::access(PathOf(digest).c_str(), R_OK) == 0;
}

std::optional<uint64_t> LocalBlobStore::SizeOf(const std::string& digest) const {
  struct stat info{};
  if (!IsDigest(digest) || ::lstat(PathOf(digest).c_str(), &info) != 0) return std::nullopt;
  return static_cast<uint64_t>(info.st_size);
}

bool LocalBlobStore::Use(const BlobId& id) {
  if (SizeOf(id.hash) != id.size) return false;
  blobs::MarkUsed(PathOf(id.hash));
  return true;
}

bool LocalBlobStore::UseRight(const BlobId& id) {
  if (SizeOf(id.hash) != id.size) return false;
  const fs::path path = PathOf(id.hash);
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0 || !IsRight(id.hash, fd.get())) return false;
  blobs::MarkUsed(path);
  return true;
}

void LocalBlobStore::AddRight(const fs::path& path, blobs::VerifiedFiles* verified) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) == 0) verified->Add(path.filename().string(), info.st_ino);
}

bool LocalBlobStore::IsRight(const std::string& digest, int fd) {
  struct stat info{};
  if (!drafts_.empty()) return true;
  if (::fstat(fd, &info) == 0 && verified_->Contains(digest, info.st_ino)) return true;
  return Look(digest, fd);
}

// A file that cannot be read now may be right: its readers get the error.
bool LocalBlobStore::Look(const std::string& digest, int fd) {
  struct stat info{};
  const fs::path path = PathOf(digest);
  if (::fstat(fd, &info) != 0) return true;
  Sha256 sha;
  std::vector<std::byte> buffer(kHashedBytes);
  for (uint64_t offset = 0, read = buffer.size(); read == buffer.size(); offset += read) {
    size_t count = 0;
    if (!blobs::ReadAllAt(fd, offset, buffer, &count, path).ok()) return true;
    sha.Update(std::span<const std::byte>(buffer).first(count));
    read = count;
  }
  if (sha.HexDigest() == digest) {
    verified_->Add(digest, info.st_ino);
    return true;
  }
  spdlog::error("blob `{}` is damaged, its bytes have another digest: it is removed",
                path.string());
  if (::unlink(path.c_str()) == 0 && space_ != nullptr) {
    space_->Give(static_cast<uint64_t>(info.st_size));
  }
  verified_->AddDamaged(digest);
  return false;
}

absl::StatusOr<BlobStat> LocalBlobStore::Scrub(uint64_t bytes, std::string* cursor) {
  std::vector<blobs::StoredFile> files = blobs::ListDigests(blobs());
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.path.filename() < b.path.filename(); });
  BlobStat removed;
  uint64_t read = 0;
  for (const blobs::StoredFile& file : files) {
    const std::string digest = file.path.filename().string();
    if (digest <= *cursor) continue;
    if (read >= bytes) return removed;
    *cursor = digest;
    read += file.bytes;
    const UniqueFd fd(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.get() < 0 || Look(digest, fd.get())) continue;
    ++removed.count;
    removed.bytes += file.bytes;
  }
  cursor->clear();
  return removed;
}

absl::StatusOr<std::unique_ptr<BlobWriter>> LocalBlobStore::TakeOver(const fs::path& file,
                                                                     const StepContext& step) {
  // Not to wait for the other end of a pipe.
  UniqueFd source(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (source.get() < 0) return ErrnoStatus(errno, "open", file);
  struct stat info{};
  if (::fstat(source.get(), &info) != 0) return ErrnoStatus(errno, "inspect", file);
  if (!S_ISREG(info.st_mode)) return InvalidArgument("`{}` is not a regular file", file.string());
  QUENCH_RETURN_IF_ERROR(step.Check());
  fs::path temporary;
  QUENCH_ASSIGN_OR_RETURN(UniqueFd place, blobs::MakeTemporary(Temporaries(), &temporary));
  const bool moved = info.st_nlink == 1 && ::flock(source.get(), LOCK_EX | LOCK_NB) == 0 &&
                     ::rename(file.c_str(), temporary.c_str()) == 0;
  const auto bytes = static_cast<uint64_t>(info.st_size);
  UniqueFd own(moved ? source.Release() : ::dup(place.get()));
  auto writer = std::make_unique<LocalBlobWriter>(std::move(own), temporary,
                                                  drafts_.empty() ? blobs() : drafts_,
                                                  !drafts_.empty(), space_, verified_);
  writer->Keep(std::move(place));
  if (moved) {
    QUENCH_RETURN_IF_ERROR(writer->CountOwn(bytes, step));
  } else {  // it lies in another file system, perhaps
    QUENCH_RETURN_IF_ERROR(writer->AppendAll(BlobReader(source.Release(), bytes, file), step));
    if (::unlink(file.c_str()) != 0) return ErrnoStatus(errno, "remove", file);
  }
  return writer;
}

absl::StatusOr<BlobId> LocalBlobStore::Adopt(const fs::path& file, const StepContext& step) {
  QUENCH_ASSIGN_OR_RETURN(const auto writer, TakeOver(file, step));
  const uint64_t size = writer->size();
  QUENCH_ASSIGN_OR_RETURN(std::string digest, writer->Commit());
  return BlobId{std::move(digest), size};
}

absl::Status LocalBlobStore::AdoptAs(const BlobId& id, const fs::path& file,
                                     const StepContext& step) {
  QUENCH_ASSIGN_OR_RETURN(const auto writer, TakeOver(file, step));
  return writer->CommitAs(id);
}

absl::Status LocalBlobStore::Lend(const BlobId& id, const fs::path& folder) {
  QUENCH_RETURN_IF_ERROR(CheckDigest(id.hash));
  const fs::path lent = folder / id.hash;
  if (::link(PathOf(id.hash).c_str(), lent.c_str()) == 0 || errno == EEXIST) {
    return absl::OkStatus();
  }
  if (errno == ENOENT) return Missing(id.hash);
  QUENCH_ASSIGN_OR_RETURN(const auto reader, OpenReader(id));
  const UniqueFd copy(::open(lent.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0400));
  if (copy.get() < 0) return ErrnoStatus(errno, "create", lent);
  return CopyRange({reader->fd(), 0, reader->path()}, {copy.get(), 0, lent}, id.size);
}

absl::StatusOr<BlobStat> LocalBlobStore::Stat() const {
  BlobStat stat{0, 0, limit_bytes_};
  for (const blobs::StoredFile& blob : blobs::ListDigests(blobs())) {
    ++stat.count;
    stat.bytes += blob.bytes;
  }
  return stat;
}

void LocalBlobStore::RemoveAbandoned() { blobs::RemoveAbandoned(root_ / "tmp"); }

}  // namespace quench
