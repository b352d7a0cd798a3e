#include "common/blobs/uploads.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>

#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/blobs/folder.h"

namespace quench {
namespace internal {

// Guarded by `mutex`, except for what says otherwise.
struct UploadFile {
  std::filesystem::path path;
  BlobId id;

  std::mutex mutex;  // held during I/O; before Uploads::mutex_
  blobs::UniqueFd fd;
  Sha256 sha;
  bool ready = false;  // `fd` is open, `sha` has what is committed
  std::atomic<uint64_t> committed{0};
  std::atomic<bool> gone{false};  // finished or dropped
  std::atomic<uint64_t> turn{0};  // of the writer who may write

  // Guarded by Uploads::mutex_.
  bool has_writer = false;
  std::function<void()> on_taken_over;
  std::chrono::steady_clock::time_point left;

  absl::Status Open(BlobSpace* space);
  absl::Status Hash();
  absl::Status Reserve(BlobSpace* space, uint64_t present);
};

// Opens the file and brings the running hash to its end.
absl::Status UploadFile::Open(BlobSpace* space) {
  fd = blobs::UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (fd.get() < 0) return ErrnoStatus(errno, "create", path);
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "inspect", path);
  uint64_t present = static_cast<uint64_t>(info.st_size);
  if (present > id.size) {  // not of our making
    if (::ftruncate(fd.get(), 0) != 0) return ErrnoStatus(errno, "truncate", path);
    present = 0;
  }
  if (present == 0) {
    // Otherwise space is reserved since the upload began.
    const absl::Status reserved = Reserve(space, present);
    if (!reserved.ok()) {
      ::unlink(path.c_str());
      return reserved;
    }
  }
  committed = present;
  QUENCH_RETURN_IF_ERROR(Hash());
  ready = true;
  return absl::OkStatus();
}

absl::Status UploadFile::Reserve(BlobSpace* space, uint64_t present) {
  const uint64_t bytes = id.size - present;
  if (bytes == 0) return absl::OkStatus();
  if (space != nullptr) QUENCH_RETURN_IF_ERROR(space->Take(bytes));
  const int failed = ::fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(present),
                                 static_cast<off_t>(bytes));
  // Some file systems cannot; there the disk may be found full later.
  if (failed == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return absl::OkStatus();
  const absl::Status status = ErrnoStatus(errno, fmt::format("reserve {} bytes for", bytes), path);
  if (space != nullptr) space->Give(bytes);
  return status;
}

absl::Status UploadFile::Hash() {
  sha = Sha256();
  std::vector<std::byte> buffer(size_t{1} << 20);
  for (uint64_t offset = 0; offset < committed;) {
    const auto piece = std::span<std::byte>(buffer).first(
        static_cast<size_t>(std::min<uint64_t>(buffer.size(), committed - offset)));
    size_t read = 0;
    QUENCH_RETURN_IF_ERROR(blobs::ReadAllAt(fd.get(), offset, piece, &read, path));
    if (read < piece.size()) return absl::AbortedError("the upload changed while it was read");
    sha.Update(piece);
    offset += read;
  }
  return absl::OkStatus();
}

}  // namespace internal

namespace {

using internal::UploadFile;

constexpr size_t kIdleFiles = 64;  // that stay open between two writers, with their running hash

// The size that a file will have, from its name.
uint64_t SizeInName(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  uint64_t size = 0;
  const char* const begin = name.data() + name.rfind('-') + 1;
  std::from_chars(begin, name.data() + name.size(), size);
  return size;
}

absl::Status CheckNames(const std::string& upload_id, const BlobId& id) {
  if (!IsUploadId(upload_id)) {
    return InvalidArgument("`{}` is not an upload's id: 1 to 64 letters, digits and `-`",
                           upload_id.substr(0, 80));
  }
  if (!IsDigest(id.hash)) {
    return InvalidArgument("`{}` is not a blob digest, those have 64 lower-case hex characters",
                           id.hash.substr(0, 80));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsUploadId(const std::string& text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return c == '-' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

Upload::Upload(Uploads* uploads, std::shared_ptr<UploadFile> file, uint64_t turn)
    : uploads_(uploads), file_(std::move(file)), turn_(turn) {}

Upload::~Upload() { uploads_->Leave(file_, turn_); }

uint64_t Upload::committed() const { return file_->committed; }

bool Upload::complete() {
  if (!uploads_->store_->Use(file_->id)) return false;
  if (file_->turn == turn_) uploads_->Drop(file_);  // another upload was faster
  return true;
}

absl::Status Upload::CheckTurn() const {
  if (file_->turn != turn_) return absl::AbortedError("another writer has taken over the upload");
  if (file_->gone) return absl::AbortedError("the upload has ended, begin another one");
  return absl::OkStatus();
}

absl::Status Upload::Append(uint64_t offset, std::span<const std::byte> bytes) {
  UploadFile& file = *file_;
  const std::lock_guard lock(file.mutex);
  QUENCH_RETURN_IF_ERROR(CheckTurn());
  const uint64_t committed = file.committed;
  if (offset > committed) {
    return absl::OutOfRangeError(
        fmt::format("bytes at {} were sent where {} are committed", offset, committed));
  }
  if (committed - offset >= bytes.size()) return absl::OkStatus();
  bytes = bytes.subspan(static_cast<size_t>(committed - offset));
  if (bytes.size() > file.id.size - committed) {
    uploads_->Drop(file_);
    return InvalidArgument("more than the {} bytes of blob `{}` were sent", file.id.size,
                           file.id.hash);
  }
  Sha256 sha = file.sha.Copy();
  if (const absl::Status status =
          blobs::WriteHashedAt(file.fd.get(), bytes, committed, &sha, file.path);
      !status.ok()) {
    // The file's size says what is committed. If not even this works, the rest is written anew.
    (void)!::ftruncate(file.fd.get(), static_cast<off_t>(committed));
    return status;
  }
  file.sha = std::move(sha);
  file.committed = committed + bytes.size();
  return absl::OkStatus();
}

absl::Status Upload::Finish() {
  UploadFile& file = *file_;
  const std::lock_guard lock(file.mutex);
  QUENCH_RETURN_IF_ERROR(CheckTurn());
  if (file.committed < file.id.size) {
    uploads_->Drop(file_);
    return InvalidArgument("the upload of blob `{}` was finished after {} of {} bytes",
                           file.id.hash, file.committed.load(), file.id.size);
  }
  if (const std::string digest = file.sha.HexDigest(); digest != file.id.hash) {
    uploads_->Drop(file_);
    return InvalidArgument("the bytes of blob `{}` have the digest `{}`", file.id.hash, digest);
  }
  absl::Status published =
      blobs::Publish(std::move(file.fd), file.path, uploads_->store_->blobs(), file.id.hash);
  if (!published.ok()) {
    uploads_->Drop(file_);
    return published;
  }
  file.gone = true;
  LocalBlobStore& store = *uploads_->store_;
  LocalBlobStore::AddRight(store.PathOf(file.id.hash), store.verified_.get());
  const std::lock_guard uploads_lock(uploads_->mutex_);
  uploads_->files_.erase(file.path.filename().string());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Uploads>> Uploads::Open(std::shared_ptr<LocalBlobStore> store,
                                                       std::chrono::seconds keep,
                                                       uint64_t max_bytes) {
  QUENCH_RETURN_IF_ERROR(blobs::MakeFolders(store->root() / "uploads"));
  return std::unique_ptr<Uploads>(new Uploads(std::move(store), keep, max_bytes));
}

Uploads::~Uploads() = default;

std::filesystem::path Uploads::PathOf(const std::string& upload_id, const BlobId& id) const {
  return store_->root() / "uploads" / fmt::format("{}-{}-{}", upload_id, id.hash, id.size);
}

absl::StatusOr<Uploads::State> Uploads::Query(const std::string& upload_id, const BlobId& id) {
  QUENCH_RETURN_IF_ERROR(CheckNames(upload_id, id));
  if (store_->Use(id)) return State{id.size, true};
  const std::filesystem::path path = PathOf(upload_id, id);
  {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(path.filename().string());
    if (found != files_.end() && found->second->committed > 0) {
      return State{found->second->committed, false};
    }
  }
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) return State{};
  return State{std::min(static_cast<uint64_t>(info.st_size), id.size), false};
}

absl::StatusOr<std::unique_ptr<Upload>> Uploads::Begin(const std::string& upload_id,
                                                       const BlobId& id,
                                                       std::function<void()> on_taken_over) {
  QUENCH_RETURN_IF_ERROR(CheckNames(upload_id, id));
  const std::filesystem::path path = PathOf(upload_id, id);
  std::shared_ptr<File> file;
  std::function<void()> taken_over;
  uint64_t turn = 0;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<File>& entry = files_[path.filename().string()];
    if (entry == nullptr) {
      entry = std::make_shared<File>();
      entry->path = path;
      entry->id = id;
    }
    file = entry;
    turn = ++file->turn;
    file->has_writer = true;
    taken_over = std::exchange(file->on_taken_over, std::move(on_taken_over));
  }
  if (taken_over) taken_over();
  auto upload = std::make_unique<Upload>(this, file, turn);
  if (store_->Use(id)) {
    Drop(file);  // somebody else was faster
    return upload;
  }
  const std::lock_guard lock(file->mutex);
  if (file->gone) {
    if (store_->Use(id)) return upload;
    return absl::AbortedError("the upload has just ended, ask for its status");
  }
  if (!file->ready) {
    absl::Status opened;
    {
      const std::lock_guard opening(opening_);
      opened = MakeRoom(*file);
      if (opened.ok()) opened = file->Open(store_->space().get());
    }
    if (!opened.ok()) {
      file->gone = true;
      const std::lock_guard uploads_lock(mutex_);
      files_.erase(path.filename().string());
      return opened;
    }
  }
  ::futimens(file->fd.get(), nullptr);  // it waits from now
  return upload;
}

absl::Status Uploads::MakeRoom(const File& file) {
  if (max_bytes_ == BlobSpace::kNoLimit) return absl::OkStatus();
  std::vector<blobs::StoredFile> others = blobs::ListFiles(store_->root() / "uploads");
  std::erase_if(others, [&](const blobs::StoredFile& each) { return each.path == file.path; });
  std::sort(others.begin(), others.end(), blobs::UsedBefore);
  uint64_t bytes = file.id.size;
  for (const blobs::StoredFile& each : others) bytes += SizeInName(each.path);
  for (const blobs::StoredFile& each : others) {
    if (bytes <= max_bytes_) return absl::OkStatus();
    if (DropIdle(each.path, each.reserved)) bytes -= SizeInName(each.path);
  }
  if (bytes <= max_bytes_) return absl::OkStatus();
  return absl::ResourceExhaustedError(fmt::format(
      "unfinished uploads: with blob `{}` of {} bytes they would be {} bytes, at most {} "
      "of one tenant are taken",
      file.id.hash, file.id.size, bytes, max_bytes_));
}

// Whether nobody writes it, and it is gone.
bool Uploads::DropIdle(const std::filesystem::path& path, uint64_t reserved) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(path.filename().string());
  if (found != files_.end()) {
    if (found->second->has_writer) return false;
    found->second->gone = true;
    files_.erase(found);
  }
  if (::unlink(path.c_str()) != 0) return false;
  if (store_->space() != nullptr) store_->space()->Give(reserved);
  return true;
}

void Uploads::Leave(const std::shared_ptr<File>& file, uint64_t turn) {
  std::function<void()> released;
  const std::lock_guard lock(mutex_);
  if (file->turn != turn) return;
  file->has_writer = false;
  file->left = std::chrono::steady_clock::now();
  released = std::move(file->on_taken_over);
  file->on_taken_over = nullptr;
  CloseIdle();
}

// Forgets the files that wait longest; their next writer hashes them again.
void Uploads::CloseIdle() {
  while (true) {
    size_t idle = 0;
    auto oldest = files_.end();
    for (auto file = files_.begin(); file != files_.end(); ++file) {
      if (file->second->has_writer) continue;
      ++idle;
      if (oldest == files_.end() || file->second->left < oldest->second->left) oldest = file;
    }
    if (idle <= kIdleFiles) return;
    files_.erase(oldest);
  }
}

void Uploads::Drop(const std::shared_ptr<File>& file) {
  if (file->gone.exchange(true)) return;
  if (::unlink(file->path.c_str()) == 0 && store_->space() != nullptr) {
    store_->space()->Give(file->id.size);
  }
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(file->path.filename().string());
  if (found != files_.end() && found->second == file) files_.erase(found);
}

int Uploads::DropExpired() {
  int dropped = 0;
  const time_t now = ::time(nullptr);
  for (const blobs::StoredFile& each : blobs::ListFiles(store_->root() / "uploads")) {
    if (now - each.used.tv_sec <= keep_.count()) continue;
    if (DropIdle(each.path, each.reserved)) ++dropped;
  }
  return dropped;
}

}  // namespace quench
