// The folders of the gateway's blobs, one for each tenant.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/blobs/uploads.h"
#include "common/rpc/tenant_store.h"

namespace quench::gateway {

// One tenant's view of the blobs.
struct TenantBlobs {
  std::string tenant;
  // The store that clients' requests are served from. Its local part is `store`.
  std::shared_ptr<rpc::TenantStore> shared;
  std::shared_ptr<LocalBlobStore> store;
  std::unique_ptr<Uploads> uploads;
};

// Makes the store behind a tenant's folder, if blobs are stored remotely and `local` has copies.
using MakeShared = std::function<std::shared_ptr<rpc::TenantStore>(
    const std::string& tenant, std::shared_ptr<LocalBlobStore> local)>;

// Tenants share the space and nothing else: each has a whole folder of its own - blobs, unfinished
// uploads, action cache - so that no answer depends on what another tenant stored. A blob that two
// tenants have is stored twice. The folder of rpc::kDefaultTenant is `root` itself, as in
// rpc::TenantFolder. Thread-safe.
class BlobFolders {
 public:
  // Opens the existing folders. Refuses writes beyond `max_bytes` of all tenants together, or that
  // would leave less than `reserve` bytes on the disk. If `make_shared` is null, blobs are stored here,
  // and services that write into the same folders share the account in rpc::SpaceFile.
  static absl::StatusOr<std::unique_ptr<BlobFolders>> Open(
      const std::filesystem::path& root, uint64_t max_bytes, uint64_t reserve = 0,
      MakeShared make_shared = nullptr, metrics::Registry& registry = metrics::Global());

  // The blobs of tenant `name`; makes its folder if absent. INVALID_ARGUMENT if `name` is invalid.
  absl::StatusOr<std::shared_ptr<TenantBlobs>> Of(const std::string& name);
  std::vector<std::shared_ptr<TenantBlobs>> All();
  const std::shared_ptr<BlobSpace>& space() const { return space_; }
  // Limit for the unfinished uploads of one tenant, so that no tenant can reserve all the space.
  uint64_t max_upload_bytes() const { return space_->max_bytes() / 2; }

 private:
  BlobFolders(std::filesystem::path root, uint64_t max_bytes, uint64_t reserve,
              MakeShared make_shared, metrics::Registry& registry)
      : root_(std::move(root)),
        space_(std::make_shared<BlobSpace>(max_bytes, reserve)),
        make_shared_(std::move(make_shared)),
        registry_(registry) {}

  const std::filesystem::path root_;
  const std::shared_ptr<BlobSpace> space_;
  const MakeShared make_shared_;
  metrics::Registry& registry_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<TenantBlobs>> tenants_;
};

}  // namespace quench::gateway
