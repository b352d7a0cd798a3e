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
// WriteAllAt, and `bytes` are hashed meanwhile, also when they cannot be written.
absl::Status WriteHashedAt(int fd, std::span<const std::byte> bytes, uint64_t offset, Sha256* sha,
                           const std::filesystem::path& path);
// The first `size` bytes of a file, piece by piece: each is hashed while `copy` takes it elsewhere.
absl::Status CopyHashed(
    const FileRange& from, uint64_t size, Sha256* sha, const StepContext& step,
    const std::function<absl::Status(const FileRange& piece, uint64_t size)>& copy);
// Reads `into` whole; `*read` is less only at the end of the file.
absl::Status ReadAllAt(int fd, uint64_t offset, std::span<std::byte> into, size_t* read,
                       const std::filesystem::path& path);

// Gives a complete file at `temporary` its place in the folder `blobs`: read-only, on the disk,
// renamed, the folder on the disk too. Open, and thus locked, until it has its place.
absl::Status Publish(UniqueFd fd, const std::filesystem::path& temporary,
                     const std::filesystem::path& blobs, const std::string& digest);

struct StoredFile {
  std::filesystem::path path;
  uint64_t bytes = 0;
  timespec used{};
  uint64_t reserved = 0;  // of ListFiles: with space that no byte was written to yet
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

// A new file in `folder`, open for writing and locked: RemoveAbandoned lets it be as long as that
// lasts, in whichever process. `path` is where it lies.
absl::StatusOr<UniqueFd> MakeTemporary(const std::filesystem::path& folder,
                                       std::filesystem::path* path);
// Removes the files of `folder` whose writers have ended without a word, by a crash perhaps.
void RemoveAbandoned(const std::filesystem::path& folder);

}  // namespace quench::blobs
