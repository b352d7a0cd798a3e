#include "common/steps/disk_watch.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/files.h"
#include "common/base/folder_tree.h"
#include "common/base/status.h"
#include "common/blobs/space.h"
#include "common/rpc/errors.h"
#include "common/steps/node_guard.h"

namespace quench::steps {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMostSeldom{1000}, kMostOften{20};
// Bytes that a process may write in a millisecond: 4 GiB/s.
constexpr int64_t kBytesEachMillisecond = (int64_t{4} << 30) / 1000;

DiskWatch::Disk DiskOf(const std::filesystem::path& folder) {
  struct statvfs disk{};
  if (::statvfs(folder.c_str(), &disk) != 0) return {std::numeric_limits<int64_t>::max(), 0};
  return {static_cast<int64_t>(disk.f_bavail * disk.f_frsize),
          static_cast<int64_t>(DefaultReserve(folder))};
}

// The time before which `bytes` bytes cannot have been written.
milliseconds Before(int64_t bytes) {
  return std::clamp(milliseconds(bytes / kBytesEachMillisecond), kMostOften, kMostSeldom);
}

}  // namespace

DiskWatch::DiskWatch(std::vector<std::filesystem::path> folders, int64_t max_bytes,
                     Clock::time_point now, std::function<Disk()> disk)
    : folders_(std::move(folders)),
      max_bytes_(max_bytes),
      disk_(disk ? std::move(disk) : [this] { return DiskOf(folders_.front()); }),
      next_(now + Before(max_bytes)) {}

absl::Status DiskWatch::Look(Clock::time_point now) {
  if (max_bytes_ <= 0 || now < next_) return absl::OkStatus();
  const Clock::time_point begin = Clock::now();
  int64_t bytes = 0;
  for (const std::filesystem::path& folder : folders_) {
    const absl::StatusOr<int64_t> beneath = BytesBeneath(folder, max_bytes_ - bytes);
    if (absl::IsResourceExhausted(beneath.status()) && ErrnoOf(beneath.status()) == 0) {
      return rpc::Error(rpc::Reason::kResourceLimit,
                        fmt::format("what the step has on the disk cannot be counted: {}",
                                    MessageOf(beneath.status())));
    }
    if (beneath.ok()) bytes += *beneath;
    if (bytes > max_bytes_) {
      return rpc::Error(rpc::Reason::kResourceLimit,
                        fmt::format("the step wrote more than the {} MiB that it may have on the "
                                    "disk",
                                    max_bytes_ >> 20));
    }
  }
  const Disk disk = disk_();
  if (disk.free_bytes < disk.reserve_bytes && bytes > disk.free_bytes) {
    return NodeFault(absl::ResourceExhaustedError(fmt::format(
        "the step wrote {} MiB, and {} MiB are left of the disk of `{}`, which others need",
        bytes >> 20, disk.free_bytes >> 20, folders_.front().string())));
  }
  const int64_t left =
      std::min(max_bytes_ - bytes, std::max<int64_t>(0, disk.free_bytes - disk.reserve_bytes));
  // Looking must not become the work.
  constexpr int kRest = 4;
  const auto took = std::chrono::ceil<milliseconds>(Clock::now() - begin);
  next_ = now + std::max(Before(left), kRest * took);
  return absl::OkStatus();
}

milliseconds DiskWatch::UntilNextLook(Clock::time_point now) const {
  if (max_bytes_ <= 0) return milliseconds::max();
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(next_ - now));
}

}  // namespace quench::steps
