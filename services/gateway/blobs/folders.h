// Where the gateway's blobs lie, tenant by tenant.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/blobs/action_cache.h"
#include "common/blobs/uploads.h"

namespace quench::gateway {

// What one tenant sees.
struct TenantBlobs {
  std::string tenant;
  std::shared_ptr<LocalBlobStore> store;
  std::unique_ptr<Uploads> uploads;
  std::shared_ptr<LocalActionCache> actions;
};

// Tenants share the space and nothing else: each has a whole folder of its own - blobs, unfinished
// uploads, action cache - so that no answer depends on what another one stored. A blob that two
// tenants have lies there twice. Where nobody needs a token, callers are of tenant "", which is also
// called rpc::kDefaultTenant, and whose folder is `root` itself: what LocalBlobStore::Open(root) of a service on this machine opens. The folder of
// tenant `t` is `root/tenants/t`. Thread-safe.
class BlobFolders {
 public:
  // Opens the folders that are there. `max_bytes`: of all tenants together, more is refused; as is
  // what would leave less than `reserve` bytes on the disk.
  static absl::StatusOr<std::unique_ptr<BlobFolders>> Open(const std::filesystem::path& root,
                                                           uint64_t max_bytes,
                                                           uint64_t reserve = 0);

  // Made when it is not there.
  absl::StatusOr<std::shared_ptr<TenantBlobs>> Of(const std::string& name);
  std::vector<std::shared_ptr<TenantBlobs>> All();
  const std::shared_ptr<BlobSpace>& space() const { return space_; }
  // What unfinished uploads of one tenant may take: nobody reserves all there is.
  uint64_t max_upload_bytes() const { return space_->max_bytes() / 2; }

  static std::filesystem::path FolderOf(const std::filesystem::path& root,
                                        const std::string& tenant);

 private:
  BlobFolders(std::filesystem::path root, uint64_t max_bytes, uint64_t reserve)
      : root_(std::move(root)), space_(std::make_shared<BlobSpace>(max_bytes, reserve)) {}

  const std::filesystem::path root_;
  const std::shared_ptr<BlobSpace> space_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<TenantBlobs>> tenants_;
};

}  // namespace quench::gateway
