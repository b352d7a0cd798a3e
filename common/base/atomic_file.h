// A file that appears whole or not at all, written piece by piece.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "common/base/copy_range.h"

namespace quench {

// Written under a temporary name beside `path`. One that ends before Commit leaves nothing.
class AtomicFile {
 public:
  // An existing path that is neither a file nor a folder (a device, a pipe) is refused.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  uint64_t size() const { return size_; }  // bytes appended
  absl::Status Append(std::span<const std::byte> bytes);
  // `size` bytes of another file, as CopyRange has it.
  absl::Status AppendRange(const FileRange& from, uint64_t size);
  // Flushes to the disk and takes the place of what was at `path`; mode 0644, minus the umask.
  absl::Status Commit();

 private:
  AtomicFile(int fd, std::filesystem::path path, std::string temporary)
      : fd_(fd), path_(std::move(path)), temporary_(std::move(temporary)) {}
  void Appended(uint64_t bytes);

  int fd_;
  std::filesystem::path path_;
  std::string temporary_;  // empty after Commit
  uint64_t size_ = 0;
};

// After `size` bytes were written at `offset`: the disk begins with each 8 MiB of a file that is
// complete, so that a large file's fsync finds little left. Only a hint.
void FlushAsWritten(int fd, uint64_t offset, uint64_t size);

}  // namespace quench
