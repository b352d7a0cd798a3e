#include "common/blobs/eviction.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <tuple>

#include "common/base/status.h"
#include "common/blobs/folder.h"

namespace quench {
namespace {

using blobs::StoredFile;

struct Candidate {
  StoredFile file;
  const EvictableStore* owner;
};

bool IsRecent(const StoredFile& file, std::chrono::seconds spare) {
  return ::time(nullptr) - file.used.tv_sec < spare.count();
}

// Since the folder was listed.
bool WasUsedMeanwhile(const StoredFile& file) {
  struct stat info{};
  if (::lstat(file.path.c_str(), &info) != 0) return false;
  return std::tie(info.st_mtim.tv_sec, info.st_mtim.tv_nsec) !=
         std::tie(file.used.tv_sec, file.used.tv_nsec);
}

// Oldest first, without what takes no space: the empty blob is always there.
std::vector<Candidate> ListAll(const std::vector<EvictableStore>& stores) {
  std::vector<Candidate> all;
  for (const EvictableStore& each : stores) {
    for (StoredFile& file : blobs::ListDigests(each.store->blobs())) {
      all.push_back({std::move(file), &each});
    }
  }
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return blobs::UsedBefore(a.file, b.file);
  });
  return all;
}

}  // namespace

absl::StatusOr<Eviction> Evict(const std::vector<EvictableStore>& stores,
                               const EvictionLimits& limits) {
  const std::vector<Candidate> all = ListAll(stores);
  Eviction result;
  for (const Candidate& each : all) result.left.bytes += each.file.bytes;
  result.left.count = all.size();
  if (result.left.bytes <= limits.high) return result;
  for (const Candidate& each : all) {
    if (result.left.bytes <= limits.low) break;
    const StoredFile& file = each.file;
    if (file.bytes == 0) continue;
    // Sorted by use: all that follow are recent too.
    if (IsRecent(file, limits.spare) && result.left.bytes <= limits.max) break;
    const auto& pinned = each.owner->pinned;
    if (WasUsedMeanwhile(file) || (pinned && pinned(file.path.filename().string()))) continue;
    // A process that has it open or mapped keeps it until done.
    if (::unlink(file.path.c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, "remove", file.path);
    }
    if (const auto& space = each.owner->store->space()) space->Give(file.bytes);
    --result.left.count;
    result.left.bytes -= file.bytes;
    ++result.removed.count;
    result.removed.bytes += file.bytes;
  }
  return result;
}

absl::StatusOr<BlobStat> LocalBlobStore::Prune(uint64_t keep_bytes) {
  RemoveAbandoned();
  QUENCH_ASSIGN_OR_RETURN(
      Eviction eviction,
      Evict({{this, nullptr}}, {keep_bytes, keep_bytes, keep_bytes, std::chrono::seconds(0)}));
  eviction.removed.limit_bytes = limit_bytes_;
  return eviction.removed;
}

}  // namespace quench
