// How much one or more blob folders may hold together.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <vector>

namespace quench {

// Other processes add to the same folders, so what lies there is measured - by Measure, and before
// a write is refused - and what this process adds in between is counted. Thread-safe.
class BlobSpace {
 public:
  explicit BlobSpace(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // The root of a store: its blobs and its unfinished files count.
  void AddRoot(const std::filesystem::path& root);

  // Before bytes are written. RESOURCE_EXHAUSTED if there would be more than `max_bytes`.
  absl::Status Take(uint64_t bytes);
  // Bytes that were taken and are not stored after all.
  void Give(uint64_t bytes);
  // Looks at the folders; returns what they hold.
  uint64_t Measure();

  // As far as this process knows.
  uint64_t used() {
    const std::lock_guard lock(mutex_);
    return used_;
  }
  uint64_t max_bytes() const { return max_bytes_; }

 private:
  const uint64_t max_bytes_;
  std::mutex mutex_;
  std::vector<std::filesystem::path> roots_;
  uint64_t used_ = 0;
  uint64_t taken_meanwhile_ = 0;  // while folders are being looked at
  std::chrono::steady_clock::time_point measured_{};
};

}  // namespace quench
