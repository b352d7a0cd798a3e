#include "common/blobs/space.h"

#include "common/base/status.h"
#include "common/blobs/folder.h"

namespace quench {

void BlobSpace::AddRoot(const std::filesystem::path& root) {
  {
    const std::lock_guard lock(mutex_);
    roots_.push_back(root);
  }
  (void)Measure();
}

absl::Status BlobSpace::Take(uint64_t bytes) {
  // A full store is looked at once in a while, not for each write that it refuses.
  constexpr auto kFresh = std::chrono::milliseconds(200);
  std::unique_lock lock(mutex_);
  if (bytes > max_bytes_ || used_ > max_bytes_ - bytes) {
    if (std::chrono::steady_clock::now() - measured_ > kFresh) {
      lock.unlock();
      (void)Measure();
      lock.lock();
    }
    if (bytes > max_bytes_ || used_ > max_bytes_ - bytes) {
      return absl::ResourceExhaustedError(
          fmt::format("the blob store is full: {} bytes more, where {} of {} are used", bytes,
                      used_, max_bytes_));
    }
  }
  used_ += bytes;
  taken_meanwhile_ += bytes;
  return absl::OkStatus();
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
