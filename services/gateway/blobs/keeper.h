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
  EvictionLimits limits;  // of all tenants together
  // Blobs that queued or running work needs; null: none. Called from the keeper's thread.
  std::function<bool(const std::string& tenant, const std::string& hash)> pinned;
  std::chrono::milliseconds period{60'000};    // between two looks at the folders
  uint64_t scrub_bytes = uint64_t{256} << 20;  // that are read and compared in each, in turn
  metrics::Registry* registry = &metrics::Global();
};

// Every period, and soon (5 s) after the space that is used went above `high` or others took of the
// disk what blobs leave them: evicts, drops uploads that expired, measures. Also makes room for writes
// that would be refused, those of this process and those of services in the same folders. Failures
// are logged, and tried again.
class BlobKeeper {
 public:
  BlobKeeper(BlobFolders& folders, BlobKeeperOptions options);
  ~BlobKeeper();

  // One round, now, in this thread, so that `room` bytes more fit in; returns what was removed.
  absl::StatusOr<BlobStat> Sweep(uint64_t room = 0);

 private:
  EvictionLimits LimitsFor(uint64_t room, uint64_t blobs);
  void Scrub(TenantBlobs& blobs, uint64_t bytes);
  void Work();

  BlobFolders& folders_;
  const BlobKeeperOptions options_;
  metrics::Registry::Refresh free_;  // tells how much the disk has left
  std::mutex sweeping_;
  std::map<std::string, std::string> scrubbed_;  // by tenant: the last digest
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace quench::gateway
