// The files of a blob folder, for the classes of this folder only.
#pragma once

#include <absl/status/statusor.h>

#include <ctime>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/base/copy_range.h"
#include "common/blobs/digest.h"

namespace quench::blobs {

class UniqueFd {
 public:
  explicit UniqueFd(int fd = -1) : fd_(fd) {}
  ~UniqueFd() { (void)Close(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.Release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  int get() const { return fd_; }
  int Release();
  // 0, or errno.
  int Close();

 private:
  int fd_;
};

absl::Status MakeFolders(const std::filesystem::path& path);
absl::Status SyncFolder(const std::filesystem::path& path);
absl::Status WriteAllAt(int fd, std::span<const std::byte> bytes, uint64_t offset,
                        const std::filesystem::path& path);
// Like WriteAllAt, but also hashes `bytes` meanwhile, even if they cannot be written.
absl::Status WriteHashedAt(int fd, std::span<const std::byte> bytes, uint64_t offset, Sha256* sha,
                           const std::filesystem::path& path);
// The first `size` bytes of a file, piece by piece: each is hashed while `copy` takes it elsewhere.
absl::Status CopyHashed(
    const FileRange& from, uint64_t size, Sha256* sha, const StepContext& step,
    const std::function<absl::Status(const FileRange& piece, uint64_t size)>& copy);
// Fills `into`; `*read` is less than its size only at the end of the file.
absl::Status ReadAllAt(int fd, uint64_t offset, std::span<std::byte> into, size_t* read,
                       const std::filesystem::path& path);

// Moves a complete file from `temporary` to its place in the folder `blobs`: makes it read-only, flushes
// and renames it, and flushes the folder. The file stays open, and thus locked, until it is in place.
absl::Status Publish(UniqueFd fd, const std::filesystem::path& temporary,
                     const std::filesystem::path& blobs, const std::string& digest);

struct StoredFile {
  std::filesystem::path path;
  uint64_t bytes = 0;
  timespec used{};
  uint64_t reserved = 0;  // by ListFiles: including space that is allocated but not yet written
};
// Orders by last use.
bool UsedBefore(const StoredFile& a, const StoredFile& b);

// The files named by a digest in the folders `ab` below `root`; those that vanish meanwhile
// (another process prunes) are left out.
std::vector<StoredFile> ListDigests(const std::filesystem::path& root);
// The regular files of one folder.
std::vector<StoredFile> ListFiles(const std::filesystem::path& folder);

// Marks a file as used now: the files' own time stamps carry the order of use.
void MarkUsed(const std::filesystem::path& path);

// A new file in `folder`, open for writing and locked: while it is locked, RemoveAbandoned of any process
// keeps it. `path` is its path.
absl::StatusOr<UniqueFd> MakeTemporary(const std::filesystem::path& folder,
                                       std::filesystem::path* path);
// Removes the files of `folder` whose writers have ended without finishing, for example by a crash.
void RemoveAbandoned(const std::filesystem::path& folder);

}  // namespace quench::blobs
