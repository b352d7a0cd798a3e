// How much one or more blob folders may hold together.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>
#include <vector>

namespace quench {

// What is left free on a disk of this size for others, who must go on when blobs have filled it: a
// database beside them, above all. 2 %, at most 1 GiB.
uint64_t DefaultReserve(const std::filesystem::path& folder);

// Other processes add to the same folders, so what lies there is measured - by Measure, and before
// a write is refused - and what this process adds in between is counted. Thread-safe.
class BlobSpace {
 public:
  static constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

  // `reserve`: bytes of the disk that no write may take.
  explicit BlobSpace(uint64_t max_bytes, uint64_t reserve = 0)
      : max_bytes_(max_bytes), reserve_(reserve) {}

  // The root of a store: its blobs and its unfinished files count. The first one's disk is theirs.
  void AddRoot(const std::filesystem::path& root);
  // Called before a write is refused, by one thread at a time: removes what can be spared, so that
  // so many bytes more fit in. Null: nothing can be.
  void SetMakeRoom(std::function<void(uint64_t bytes)> make_room);

  // Before bytes are written. RESOURCE_EXHAUSTED if there would be more than `max_bytes`, or less
  // than the reserve left on the disk.
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
  uint64_t reserve() const { return reserve_; }
  // What is left on the disk for blobs: without the reserve. kNoLimit when nobody knows.
  uint64_t FreeOnDisk();

 private:
  bool TryTake(uint64_t bytes);
  absl::Status Full(uint64_t bytes);

  const uint64_t max_bytes_, reserve_;
  std::mutex making_room_;  // before mutex_
  std::function<void(uint64_t)> make_room_;
  std::chrono::steady_clock::time_point made_room_{};
  std::mutex mutex_;
  std::vector<std::filesystem::path> roots_;
  uint64_t used_ = 0;
  uint64_t taken_meanwhile_ = 0;  // while folders are being looked at
  std::chrono::steady_clock::time_point measured_{};
};

}  // namespace quench
