#include "services/gateway/blobs/folders.h"

#include <system_error>

#include "common/base/status.h"
#include "common/rpc/tokens.h"

namespace quench::gateway {
namespace {

constexpr char kTenants[] = "tenants";

// As token files have them; they become names of folders.
bool IsTenant(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return c == '-' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z');
  });
}

}  // namespace

std::filesystem::path BlobFolders::FolderOf(const std::filesystem::path& root,
                                            const std::string& tenant) {
  return tenant.empty() ? root : root / kTenants / tenant;
}

absl::StatusOr<std::unique_ptr<BlobFolders>> BlobFolders::Open(const std::filesystem::path& root,
                                                               uint64_t max_bytes,
                                                               uint64_t reserve) {
  std::unique_ptr<BlobFolders> folders(new BlobFolders(root, max_bytes, reserve));
  QUENCH_RETURN_IF_ERROR(folders->Of("").status());
  std::error_code error;
  for (std::filesystem::directory_iterator each(root / kTenants, error), end; !error && each != end;
       each.increment(error)) {
    const std::string tenant = each->path().filename().string();
    if (IsTenant(tenant)) QUENCH_RETURN_IF_ERROR(folders->Of(tenant).status());
  }
  return folders;
}

absl::StatusOr<std::shared_ptr<TenantBlobs>> BlobFolders::Of(const std::string& name) {
  const std::string tenant = name == rpc::kDefaultTenant ? "" : name;
  if (!tenant.empty() && !IsTenant(tenant)) {
    return InvalidArgument("`{}` is not a tenant: 1 to 64 lower-case letters, digits and `-`",
                           tenant.substr(0, 80));
  }
  const std::lock_guard lock(mutex_);
  std::shared_ptr<TenantBlobs>& blobs = tenants_[tenant];
  if (blobs != nullptr) return blobs;
  const std::filesystem::path folder = FolderOf(root_, tenant);
  auto opened = std::make_shared<TenantBlobs>();
  opened->tenant = tenant;
  QUENCH_ASSIGN_OR_RETURN(opened->store, LocalBlobStore::Open(folder, space_));
  QUENCH_ASSIGN_OR_RETURN(opened->uploads,
                          Uploads::Open(opened->store, std::chrono::hours(1), max_upload_bytes()));
  QUENCH_ASSIGN_OR_RETURN(opened->actions, LocalActionCache::Open(folder));
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
