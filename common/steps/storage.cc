#include "common/steps/storage.h"

#include <google/protobuf/util/time_util.h>

#include <map>
#include <mutex>

#include "common/base/status.h"
#include "common/rpc/remote_action_cache.h"
#include "common/rpc/tokens.h"
#include "common/steps/config.h"

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

// A store of the Remote Execution API. What steps use of it is copied into the local user's store,
// in which equal bytes lie once; the tenant is REAPI's instance name.
class RemoteStores {
 public:
  RemoteStores(std::shared_ptr<rpc::Channel> channel, const config::v1::BlobStore& config,
               bool action_cache)
      : channel_(std::move(channel)), config_(config), action_cache_(action_cache) {}

  absl::StatusOr<Storage> Of(const std::string& tenant) {
    const std::lock_guard lock(mutex_);
    if (const auto known = open_.find(tenant); known != open_.end()) return known->second;
    rpc::RemoteBlobsOptions options;
    options.instance = InstanceOf(tenant);
    if (config_.has_retry_time()) {
      options.retry_time = std::chrono::milliseconds(
          google::protobuf::util::TimeUtil::DurationToMilliseconds(config_.retry_time()));
    }
    Storage storage;
    QUENCH_ASSIGN_OR_RETURN(
        storage.blobs, LocalBlobStore::Open(TenantFolder(LocalBlobStore::DefaultRoot(), tenant)));
    storage.remote = std::make_shared<rpc::RemoteBlobs>(channel_, options);
    if (action_cache_) {
      storage.cache =
          std::make_shared<rpc::RemoteActionCache>(channel_, options.instance, options.retry_time);
    }
    open_.emplace(tenant, storage);
    return storage;
  }

 private:
  std::string InstanceOf(const std::string& tenant) const {
    const std::string& instance = config_.remote().instance();
    if (tenant == rpc::kDefaultTenant) return instance;
    return instance.empty() ? tenant : instance + "/" + tenant;
  }

  const std::shared_ptr<rpc::Channel> channel_;
  const config::v1::BlobStore config_;
  const bool action_cache_;
  std::mutex mutex_;
  std::map<std::string, Storage> open_;
};

}  // namespace

std::filesystem::path TenantFolder(const std::filesystem::path& root, const std::string& tenant) {
  return tenant == rpc::kDefaultTenant ? root : root / "tenants" / tenant;
}

absl::StatusOr<StepRunner::StorageOf> OpenStorage(const config::v1::BlobStore& blobs,
                                                  bool action_cache) {
  if (blobs.has_remote()) {
    absl::StatusOr<rpc::ChannelOptions> options = ChannelOptionsOf(blobs.remote());
    if (!options.ok()) return Annotate(options.status(), "blobs.remote");
    QUENCH_ASSIGN_OR_RETURN(auto channel, rpc::Channel::Open(*options));
    const auto stores = std::make_shared<RemoteStores>(std::move(channel), blobs, action_cache);
    return StepRunner::StorageOf(
        [stores](const std::string& tenant) { return stores->Of(tenant); });
  }
  const std::filesystem::path root = blobs.folder().empty() ? LocalBlobStore::DefaultRoot()
                                                            : std::filesystem::path(blobs.folder());
  const auto folders = std::make_shared<Folders>(root, action_cache);
  QUENCH_RETURN_IF_ERROR(folders->Of(rpc::kDefaultTenant).status());
  return StepRunner::StorageOf(
      [folders](const std::string& tenant) { return folders->Of(tenant); });
}

}  // namespace quench::steps
