// The store of one tenant's bytes, for code that reads and writes them on this machine.
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

  // The folder in which bytes are read and written: the store itself, or copies of its used blobs.
  virtual LocalBlobStore& local() = 0;
  // Results of actions; null if none are kept.
  virtual ActionCache* actions() = 0;
  // Records that services write about blobs, apart from results; null if none are kept.
  virtual ActionCache* records() = 0;

  // The blobs that the store lacks. Counts as a use of the others.
  virtual absl::StatusOr<std::vector<BlobId>> Missing(const std::vector<BlobId>& blobs,
                                                      const StepContext& step) = 0;
  // Brings the blobs into `local`. BlobsMissing names all that the store lacks.
  virtual absl::Status Fetch(const std::vector<BlobId>& blobs, const StepContext& step) = 0;
  // Copies the blobs from `local` into the shared store.
  virtual absl::Status Publish(const std::vector<BlobId>& blobs, const StepContext& step) = 0;
  // While the result lives, none of the blobs is removed from `local` to make room. Null if none ever is.
  virtual std::shared_ptr<void> Hold(const std::vector<BlobId>& blobs) = 0;
};

// Counts blobs of the store that this process finds damaged, and repaired.
void CountFindings(LocalBlobStore& store, metrics::CasPlace place, metrics::Registry& registry);

// A store in a folder. `actions` and `records` may be null, or the same.
std::shared_ptr<TenantStore> MakeLocalStore(std::shared_ptr<LocalBlobStore> blobs,
                                            std::shared_ptr<ActionCache> actions,
                                            std::shared_ptr<ActionCache> records = nullptr);

// A process's copies of blobs in a remote store, for all tenants together: at most `max_bytes`, not
// counting bytes of steps that have not ended. The least recently used copies are removed, but none that
// is held. Thread-safe.
class BlobCopies {
 public:
  // Makes the folder, and the folder of kDefaultTenant.
  static absl::StatusOr<std::shared_ptr<BlobCopies>> Open(
      const std::filesystem::path& root, uint64_t max_bytes,
      metrics::Registry& registry = metrics::Global());
  ~BlobCopies();

  // One tenant's part.
  absl::StatusOr<std::shared_ptr<LocalBlobStore>> Of(const std::string& tenant);
  std::shared_ptr<void> Hold(const std::vector<BlobId>& blobs);
  // Removes copies down to the limit, so that `room` more bytes fit. At most once a second if `room` is 0.
  void Trim(uint64_t room = 0);

 private:
  // Shared with the holders of copies, which may outlive this object.
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
