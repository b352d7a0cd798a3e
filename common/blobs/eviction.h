// The choice of blobs to remove when blob folders grow too large, and of blobs that are never
// removed.
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
  // Blobs used within `spare` stay, unless they are more than `max` bytes: a client may be about to
  // name blobs that it found there.
  uint64_t max = 0;
  std::chrono::seconds spare{300};
};

struct EvictableStore {
  LocalBlobStore* store = nullptr;
  // Whether a blob must stay, whatever the limits; called from Evict. Null: none must.
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
