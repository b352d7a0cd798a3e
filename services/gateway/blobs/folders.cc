#include "services/gateway/blobs/folders.h"

#include <system_error>

#include "common/base/status.h"
#include "common/rpc/tenants.h"

namespace quench::gateway {

absl::StatusOr<std::unique_ptr<BlobFolders>> BlobFolders::Open(const std::filesystem::path& root,
                                                               uint64_t max_bytes, uint64_t reserve,
                                                               MakeShared make_shared,
                                                               metrics::Registry& registry) {
  std::unique_ptr<BlobFolders> folders(
      new BlobFolders(root, max_bytes, reserve, std::move(make_shared), registry));
  QUENCH_RETURN_IF_ERROR(folders->Of(rpc::kDefaultTenant).status());
  std::error_code error;
  for (std::filesystem::directory_iterator each(root / "tenants", error), end;
       !error && each != end; each.increment(error)) {
    const std::string tenant = each->path().filename().string();
    if (rpc::IsTenant(tenant)) QUENCH_RETURN_IF_ERROR(folders->Of(tenant).status());
  }
  if (!folders->make_shared_) QUENCH_RETURN_IF_ERROR(folders->space_->Share(rpc::SpaceFile(root)));
  return folders;
}

absl::StatusOr<std::shared_ptr<TenantBlobs>> BlobFolders::Of(const std::string& name) {
  // They become names of folders.
  QUENCH_ASSIGN_OR_RETURN(const std::string tenant, rpc::TenantOfCall("", name));
  const std::lock_guard lock(mutex_);
  std::shared_ptr<TenantBlobs>& blobs = tenants_[tenant];
  if (blobs != nullptr) return blobs;
  const std::filesystem::path folder = rpc::TenantFolder(root_, tenant);
  auto opened = std::make_shared<TenantBlobs>();
  opened->tenant = tenant;
  QUENCH_ASSIGN_OR_RETURN(opened->store, LocalBlobStore::Open(folder, space_));
  QUENCH_ASSIGN_OR_RETURN(opened->uploads,
                          Uploads::Open(opened->store, std::chrono::hours(1), max_upload_bytes()));
  rpc::CountFindings(*opened->store,
                     make_shared_ ? metrics::CasPlace::kCopies : metrics::CasPlace::kStore,
                     registry_);
  if (make_shared_) {
    opened->shared = make_shared_(tenant, opened->store);
  } else {
    QUENCH_ASSIGN_OR_RETURN(auto actions, LocalActionCache::Open(folder));
    opened->shared = rpc::MakeLocalStore(opened->store, std::move(actions));
  }
  // Clients take it for granted, says REAPI.
  QUENCH_RETURN_IF_ERROR(opened->store->Put({}).status());
  blobs = std::move(opened);
  return blobs;
}

std::vector<std::shared_ptr<TenantBlobs>> BlobFolders::All() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<TenantBlobs>> all;
  for (const auto& [tenant, blobs] : tenants_) {
    if (blobs != nullptr) all.push_back(blobs);
  }
  return all;
}

}  // namespace quench::gateway
