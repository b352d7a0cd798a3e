// Keeps the gateway's blobs within their limits, in the background.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "common/blobs/eviction.h"
#include "common/metrics/metrics.h"
#include "services/gateway/blobs/folders.h"

namespace quench::gateway {

struct BlobKeeperOptions {
  EvictionLimits limits;  // for all tenants together
  // Blobs that queued or running work needs; null: none. Called from the keeper's thread.
  std::function<bool(const std::string& tenant, const std::string& hash)> pinned;
  std::chrono::milliseconds period{60'000};    // between two rounds over the folders
  uint64_t scrub_bytes = uint64_t{256} << 20;  // of blobs that each round reads and checks, in turn
  metrics::Registry* registry = &metrics::Global();
};

// Evicts blobs, drops expired uploads and updates metrics: every period, and soon (5 s) after the used
// space exceeds `high` or others fill the disk into the space left to blobs. Also makes room for writes
// that would be refused, those of this process and those of services in the same folders. Failures
// are logged, and tried again.
class BlobKeeper {
 public:
  BlobKeeper(BlobFolders& folders, BlobKeeperOptions options);
  ~BlobKeeper();

  // Runs one round now, in this thread, so that `room` more bytes fit; returns what it removed.
  absl::StatusOr<BlobStat> Sweep(uint64_t room = 0);

 private:
  EvictionLimits LimitsFor(uint64_t room, uint64_t blobs);
  void Scrub(TenantBlobs& blobs, uint64_t bytes);
  void Work();

  BlobFolders& folders_;
  const BlobKeeperOptions options_;
  metrics::Registry::Refresh free_;  // updates the disk's free space
  std::mutex sweeping_;
  std::map<std::string, std::string> scrubbed_;  // the last digest checked, by tenant
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace quench::gateway
