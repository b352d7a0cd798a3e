#include "common/steps/storage.h"

#include <map>
#include <mutex>

#include "common/base/status.h"

namespace quench::steps {
namespace {

// The tenants' parts of one folder, each opened once.
class Folders {
 public:
  Folders(std::filesystem::path root, bool action_cache)
      : root_(std::move(root)), action_cache_(action_cache) {}

  absl::StatusOr<Storage> Of(const std::string& tenant) {
    const std::lock_guard lock(mutex_);
    if (const auto known = open_.find(tenant); known != open_.end()) return known->second;
    const std::filesystem::path folder = TenantFolder(root_, tenant);
    Storage storage;
    QUENCH_ASSIGN_OR_RETURN(storage.blobs, LocalBlobStore::Open(folder, nullptr));
    if (action_cache_) {
      QUENCH_ASSIGN_OR_RETURN(storage.cache, LocalActionCache::Open(folder));
    }
    open_.emplace(tenant, storage);
    return storage;
  }

 private:
  const std::filesystem::path root_;
  const bool action_cache_;
  std::mutex mutex_;
  std::map<std::string, Storage> open_;
};

}  // namespace

std::filesystem::path TenantFolder(const std::filesystem::path& root, const std::string& tenant) {
  return tenant == "default" ? root : root / "tenants" / tenant;
}

absl::StatusOr<StepRunner::StorageOf> OpenStorage(const config::v1::BlobStore& blobs,
                                                  bool action_cache) {
  const std::filesystem::path root = blobs.folder().empty() ? LocalBlobStore::DefaultRoot()
                                                            : std::filesystem::path(blobs.folder());
  const auto folders = std::make_shared<Folders>(root, action_cache);
  QUENCH_RETURN_IF_ERROR(folders->Of("default").status());
  return StepRunner::StorageOf(
      [folders](const std::string& tenant) { return folders->Of(tenant); });
}

}  // namespace quench::steps
