// Watches the disk space of a step's process: the kernel has no limit for all of its files together.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

namespace quench::steps {

class DiskWatch {
 public:
  using Clock = std::chrono::steady_clock;
  // Free bytes of a disk, and the bytes that must be left for others (a database, blobs).
  struct Disk {
    int64_t free_bytes = 0, reserve_bytes = 0;
  };

  // If `max_bytes` is 0 there is no limit, and nothing is measured. All folders are on one disk; if `disk` is null, the
  // disk itself is asked.
  DiskWatch(std::vector<std::filesystem::path> folders, int64_t max_bytes, Clock::time_point now,
            std::function<Disk()> disk = nullptr);
  DiskWatch(const DiskWatch&) = delete;
  DiskWatch& operator=(const DiskWatch&) = delete;

  // Measures if it is time, which is sooner the less space is left. RESOURCE_LIMIT if the folders exceed their limit;
  // NODE_FAULT if the remaining space is needed by others, and these folders hold more than that space.
  absl::Status Look(Clock::time_point now);
  std::chrono::milliseconds UntilNextLook(Clock::time_point now) const;

 private:
  const std::vector<std::filesystem::path> folders_;
  const int64_t max_bytes_;
  const std::function<Disk()> disk_;
  Clock::time_point next_;
};

}  // namespace quench::steps
