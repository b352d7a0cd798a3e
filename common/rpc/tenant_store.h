// Where the bytes of one tenant lie, for those who read and write them on this machine.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/blobs/action_cache.h"
#include "common/metrics/metrics.h"
#include "common/rpc/remote_blobs.h"

namespace quench::rpc {

// Thread-safe.
class TenantStore {
 public:
  virtual ~TenantStore() = default;

  // Where bytes are read and written: the store itself, or copies of what is used of it.
  virtual LocalBlobStore& local() = 0;
  // Results of actions; null: none are remembered.
  virtual ActionCache* actions() = 0;
  // Records that services write about blobs, beside results; null: nowhere.
  virtual ActionCache* records() = 0;

  // The blobs that the store does not have. Counts as a use of the others.
  virtual absl::StatusOr<std::vector<BlobId>> Missing(const std::vector<BlobId>& blobs,
                                                      const StepContext& step) = 0;
  // Sees that they are in `local`. BlobsMissing names all that the store has not.
  virtual absl::Status Fetch(const std::vector<BlobId>& blobs, const StepContext& step) = 0;
  // Puts what lies in `local` where everybody finds it.
  virtual absl::Status Publish(const std::vector<BlobId>& blobs, const StepContext& step) = 0;
  // As long as it lives, none of them leaves `local` to make room there. Null: none ever does.
  virtual std::shared_ptr<void> Hold(const std::vector<BlobId>& blobs) = 0;
};

// Counts blobs of the store that this process finds damaged, and those that it finds right again.
void CountFindings(LocalBlobStore& store, metrics::CasPlace place, metrics::Registry& registry);

// A folder. `actions` and `records` may be null, or one.
std::shared_ptr<TenantStore> MakeLocalStore(std::shared_ptr<LocalBlobStore> blobs,
                                            std::shared_ptr<ActionCache> actions,
                                            std::shared_ptr<ActionCache> records = nullptr);

// The copies that a process keeps of blobs in a remote store, those of all tenants together: at most
// `max_bytes`, beside what steps write until they end. The least recently used ones leave, but none
// that is held. Thread-safe.
class BlobCopies {
 public:
  // Makes the folder, and that of kDefaultTenant.
  static absl::StatusOr<std::shared_ptr<BlobCopies>> Open(
      const std::filesystem::path& root, uint64_t max_bytes,
      metrics::Registry& registry = metrics::Global());
  ~BlobCopies();

  // One tenant's part.
  absl::StatusOr<std::shared_ptr<LocalBlobStore>> Of(const std::string& tenant);
  std::shared_ptr<void> Hold(const std::vector<BlobId>& blobs);
  // Down to the limit, so that `room` bytes more fit in. Not more than once a second without `room`.
  void Trim(uint64_t room = 0);

 private:
  // Outlives the copies with those who hold some.
  struct Held {
    std::mutex mutex;
    std::map<std::string, int> counts;  // by hash
  };
  BlobCopies(std::filesystem::path root, uint64_t max_bytes, metrics::Registry& registry);

  const std::filesystem::path root_;
  const uint64_t max_bytes_;
  metrics::Registry& registry_;
  const std::shared_ptr<BlobSpace> space_;
  const std::shared_ptr<Held> held_ = std::make_shared<Held>();
  std::mutex trimming_;  // before mutex_
  std::chrono::steady_clock::time_point trimmed_{};
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<LocalBlobStore>> open_;  // by tenant
};

// A server of the Remote Execution API. `local` has copies of the blobs used, and `copies` limits
// their size (null: the caller does). `actions` and `records` may be null, or the same.
std::shared_ptr<TenantStore> MakeRemoteStore(std::shared_ptr<RemoteBlobs> remote,
                                             std::shared_ptr<LocalBlobStore> local,
                                             std::shared_ptr<BlobCopies> copies,
                                             std::shared_ptr<ActionCache> actions,
                                             std::shared_ptr<ActionCache> records = nullptr);

}  // namespace quench::rpc
