// Bytes from one file to another.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <filesystem>

namespace quench {

struct FileRange {
  int fd = -1;
  uint64_t offset = 0;
  std::filesystem::path path;  // for errors
};

// Copies `size` bytes: file systems that can (XFS, Btrfs) have both files share them, else the kernel
// copies, else they go through memory. ABORTED when `from` has fewer.
absl::Status CopyRange(const FileRange& from, const FileRange& to, uint64_t size);

}  // namespace quench
