#include "common/blobs/space.h"

#include <sys/statvfs.h>

#include <algorithm>

#include "common/base/status.h"
#include "common/blobs/folder.h"

namespace quench {
namespace {

// A full store is looked at once in a while, not for each write that it refuses.
constexpr auto kFresh = std::chrono::milliseconds(200);

bool IsFresh(std::chrono::steady_clock::time_point time) {
  return std::chrono::steady_clock::now() - time <= kFresh;
}

}  // namespace

uint64_t DefaultReserve(const std::filesystem::path& folder) {
  struct statvfs disk{};
  if (::statvfs(folder.c_str(), &disk) != 0) return 0;
  return std::min<uint64_t>(uint64_t{1} << 30, disk.f_frsize * disk.f_blocks / 50);
}

void BlobSpace::AddRoot(const std::filesystem::path& root) {
  {
    const std::lock_guard lock(mutex_);
    roots_.push_back(root);
  }
  if (max_bytes_ != kNoLimit) (void)Measure();
}

void BlobSpace::SetMakeRoom(std::function<void(uint64_t)> make_room) {
  const std::lock_guard lock(making_room_);
  make_room_ = std::move(make_room);
}

uint64_t BlobSpace::FreeOnDisk() {
  std::filesystem::path root;
  {
    const std::lock_guard lock(mutex_);
    if (roots_.empty()) return kNoLimit;
    root = roots_.front();
  }
  struct statvfs disk{};
  if (::statvfs(root.c_str(), &disk) != 0) return kNoLimit;
  const uint64_t free = disk.f_frsize * disk.f_bavail;
  return free - std::min(free, reserve_);
}

bool BlobSpace::TryTake(uint64_t bytes) {
  if (reserve_ > 0 && FreeOnDisk() < bytes) return false;
  const std::lock_guard lock(mutex_);
  if (bytes > max_bytes_ || used_ > max_bytes_ - bytes) return false;
  used_ += bytes;
  taken_meanwhile_ += bytes;
  return true;
}

absl::Status BlobSpace::Take(uint64_t bytes) {
  if (TryTake(bytes)) return absl::OkStatus();
  if (bytes > max_bytes_) return Full(bytes);
  const std::lock_guard lock(making_room_);
  if (TryTake(bytes)) return absl::OkStatus();  // whoever was here before has made room
  bool measured = false;
  {
    const std::lock_guard measuring(mutex_);
    measured = IsFresh(measured_);
  }
  if (!measured) {
    (void)Measure();
    if (TryTake(bytes)) return absl::OkStatus();
  }
  if (make_room_ && !IsFresh(made_room_)) {
    make_room_(bytes);
    (void)Measure();
    if (TryTake(bytes)) return absl::OkStatus();
    made_room_ = std::chrono::steady_clock::now();
  }
  return Full(bytes);
}

absl::Status BlobSpace::Full(uint64_t bytes) {
  const uint64_t free = FreeOnDisk();
  const std::lock_guard lock(mutex_);
  if (bytes <= max_bytes_ && used_ <= max_bytes_ - bytes) {
    return absl::ResourceExhaustedError(fmt::format(
        "no space left on the disk of the blob store: {} bytes more, where {} are free beside the "
        "{} that blobs leave to others",
        bytes, free, reserve_));
  }
  return absl::ResourceExhaustedError(fmt::format(
      "the blob store is full: {} bytes more, where {} of {} are used", bytes, used_, max_bytes_));
}

void BlobSpace::Give(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= std::min(bytes, used_);
}

uint64_t BlobSpace::Measure() {
  std::vector<std::filesystem::path> roots;
  {
    const std::lock_guard lock(mutex_);
    roots = roots_;
    taken_meanwhile_ = 0;
  }
  uint64_t bytes = 0;
  for (const std::filesystem::path& root : roots) {
    for (const auto& file : blobs::ListDigests(root / "blobs" / "sha256")) bytes += file.bytes;
    for (const auto& file : blobs::ListFiles(root / "tmp")) bytes += file.bytes;
    for (const auto& file : blobs::ListFiles(root / "uploads")) bytes += file.reserved;
  }
  const std::lock_guard lock(mutex_);
  used_ = bytes + taken_meanwhile_;
  measured_ = std::chrono::steady_clock::now();
  return bytes;
}

}  // namespace quench
