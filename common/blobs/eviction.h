// Choice of the blobs that are removed when blob folders grow too large, and of those that never
// are.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "common/blobs/blob_store.h"

namespace quench {

struct EvictionLimits {
  // Above `high` bytes, blobs are removed until `low` remain.
  uint64_t low = 0;
  uint64_t high = 0;
  // Blobs used within `spare` stay, unless more than `max` bytes would: somebody may just be about
  // to name what he found there.
  uint64_t max = 0;
  std::chrono::seconds spare{300};
};

struct EvictableStore {
  LocalBlobStore* store = nullptr;
  // Blobs that must stay, whatever the limits say; called from Evict. Null: none.
  std::function<bool(const std::string& hash)> pinned;
};

struct Eviction {
  BlobStat removed;
  BlobStat left;
};

// Removes the least recently used blobs of all the stores together. Sizes come from the folders,
// which other processes may share.
absl::StatusOr<Eviction> Evict(const std::vector<EvictableStore>& stores,
                               const EvictionLimits& limits);

}  // namespace quench
