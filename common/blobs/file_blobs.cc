#include "common/blobs/file_blobs.h"

#include <fcntl.h>

#include <cerrno>
#include <tuple>

#include "common/base/status.h"
#include "common/blobs/folder.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPieceBytes = size_t{1} << 20;

auto Version(const struct stat& info) {
  return std::tie(info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec,
                  info.st_mtim.tv_nsec);
}

absl::Status Changed(const fs::path& path) {
  return absl::AbortedError(
      fmt::format("`{}` changed while it was read, it must stay as it is", path.string()));
}

}  // namespace

absl::StatusOr<BlobId> FileBlobs::Add(const fs::path& file, const StepContext& step) {
  // Not to wait for the other end of a pipe.
  const blobs::UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return ErrnoStatus(errno, "open", file);
  File added{file, {}};
  if (::fstat(fd.get(), &added.added) != 0) return ErrnoStatus(errno, "inspect", file);
  if (!S_ISREG(added.added.st_mode)) {
    return InvalidArgument("`{}` is not a regular file", file.string());
  }
  const auto size = static_cast<uint64_t>(added.added.st_size);
  if (const auto known = digests_ == nullptr ? std::nullopt : digests_->Find(added.added)) {
    added.remembered = true;
    BlobId id{*known, size};
    files_.emplace(id, std::move(added));
    return id;
  }
  timespec begun{};
  ::clock_gettime(CLOCK_REALTIME, &begun);
  Sha256 sha;
  std::vector<std::byte> buffer(kPieceBytes);
  uint64_t done = 0;
  for (size_t read = buffer.size(); read == buffer.size();) {
    QUENCH_RETURN_IF_ERROR(step.Check());
    QUENCH_RETURN_IF_ERROR(blobs::ReadAllAt(fd.get(), done, buffer, &read, file));
    sha.Update(std::span<const std::byte>(buffer).first(read));
    done += read;
    step.Report({"read", file.filename().string(), static_cast<int64_t>(done),
                 static_cast<int64_t>(std::max(done, size))});
  }
  struct stat read{};
  if (done != size || ::fstat(fd.get(), &read) != 0 || Version(read) != Version(added.added)) {
    return Changed(file);
  }
  BlobId id{sha.HexDigest(), size};
  if (digests_ != nullptr) digests_->Add(added.added, begun, id.hash);
  files_.emplace(id, std::move(added));
  return id;
}

absl::StatusOr<std::unique_ptr<BlobReader>> FileBlobs::OpenReader(const BlobId& id) {
  const auto found = files_.find(id);
  if (found == files_.end()) {
    return absl::NotFoundError(fmt::format("blob `{}` is not one of these files", id.hash));
  }
  const fs::path& path = found->second.path;
  blobs::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return ErrnoStatus(errno, "open", path);
  return std::make_unique<BlobReader>(fd.Release(), id.size, path);
}

absl::Status FileBlobs::CheckUnchanged() const {
  for (const auto& [id, file] : files_) {
    struct stat now{};
    if (::stat(file.path.c_str(), &now) != 0 || Version(now) != Version(file.added)) {
      return Changed(file.path);
    }
  }
  return absl::OkStatus();
}

bool FileBlobs::ForgetRemembered() const {
  bool any = false;
  for (const auto& [id, file] : files_) {
    if (!file.remembered) continue;
    digests_->Forget(file.added);
    any = true;
  }
  return any;
}

absl::StatusOr<std::unique_ptr<FileBlobWriter>> FileBlobWriter::Create(const fs::path& path) {
  QUENCH_ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  return std::unique_ptr<FileBlobWriter>(new FileBlobWriter(std::move(file)));
}

absl::Status FileBlobWriter::Append(std::span<const std::byte> bytes) {
  QUENCH_RETURN_IF_ERROR(failure_);
  HashBeside(bytes, &sha_, [&] { failure_ = file_->Append(bytes); });
  return failure_;
}

absl::Status FileBlobWriter::AppendAll(const BlobReader& from, const StepContext& step) {
  QUENCH_RETURN_IF_ERROR(failure_);
  failure_ = blobs::CopyHashed(
      {from.fd(), 0, from.path()}, from.size(), &sha_, step,
      [&](const FileRange& piece, uint64_t count) { return file_->AppendRange(piece, count); });
  return failure_;
}

absl::StatusOr<std::string> FileBlobWriter::Commit() {
  QUENCH_RETURN_IF_ERROR(failure_);
  failure_ = absl::FailedPreconditionError("the blob is already committed");
  QUENCH_RETURN_IF_ERROR(file_->Commit());
  return sha_.HexDigest();
}

absl::Status FileBlobWriter::CommitAs(const BlobId& id) {
  QUENCH_RETURN_IF_ERROR(failure_);
  failure_ = absl::FailedPreconditionError("the blob is already committed");
  const std::string digest = sha_.HexDigest();
  if (digest == id.hash && size() == id.size) return file_->Commit();
  return WrongBlob(digest, size(), id);
}

}  // namespace quench
