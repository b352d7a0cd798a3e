// How much of the disk a step's process takes: no limit of the kernel's holds for all of its files together.
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
  // Free bytes of a disk, and how many of them must be left for others (a database, blobs).
  struct Disk {
    int64_t free_bytes = 0, reserve_bytes = 0;
  };

  // `max_bytes` 0: there is no limit, and nothing is looked at. The folders are of one disk; `disk` null: asks it.
  DiskWatch(std::vector<std::filesystem::path> folders, int64_t max_bytes, Clock::time_point now,
            std::function<Disk()> disk = nullptr);
  DiskWatch(const DiskWatch&) = delete;
  DiskWatch& operator=(const DiskWatch&) = delete;

  // Looks when it is time, which is the sooner the less is left. RESOURCE_LIMIT when the folders hold more than they
  // may; NODE_FAULT when others need what is left, and these folders hold more than that.
  absl::Status Look(Clock::time_point now);
  std::chrono::milliseconds UntilNextLook(Clock::time_point now) const;

 private:
  const std::vector<std::filesystem::path> folders_;
  const int64_t max_bytes_;
  const std::function<Disk()> disk_;
  Clock::time_point next_;
};

}  // namespace quench::steps
