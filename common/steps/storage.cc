#include "common/steps/storage.h"

#include <google/protobuf/util/time_util.h>

#include <map>
#include <mutex>

#include "common/base/status.h"
#include "common/rpc/remote_action_cache.h"
#include "common/rpc/tenants.h"
#include "common/steps/config.h"

namespace quench::steps {
namespace {

namespace fs = std::filesystem;
using StorePtr = std::shared_ptr<rpc::TenantStore>;
using Make = std::function<absl::StatusOr<StorePtr>(const std::string& tenant)>;

constexpr int64_t kCopies = int64_t{20} << 30;

// Each tenant's is made once. That of kDefaultTenant at once, so that what cannot work is known
// before the first step.
absl::StatusOr<StepRunner::StorageOf> MadeOnce(Make make) {
  struct Stores {
    std::mutex mutex;
    std::map<std::string, StorePtr> open;
  };
  StepRunner::StorageOf of = [stores = std::make_shared<Stores>(), make = std::move(make)](
                                 const std::string& tenant) -> absl::StatusOr<StorePtr> {
    const std::lock_guard lock(stores->mutex);
    if (const auto known = stores->open.find(tenant); known != stores->open.end()) {
      return known->second;
    }
    QUENCH_ASSIGN_OR_RETURN(StorePtr store, make(tenant));
    stores->open.emplace(tenant, store);
    return store;
  };
  QUENCH_RETURN_IF_ERROR(of(rpc::kDefaultTenant).status());
  return of;
}

absl::StatusOr<StepRunner::StorageOf> OpenFolder(const fs::path& root, bool action_cache,
                                                 metrics::Registry& registry) {
  const auto space = std::make_shared<BlobSpace>(BlobSpace::kNoLimit, DefaultReserve(root));
  space->Follow(rpc::SpaceFile(root));
  return MadeOnce([root, space, action_cache,
                   &registry](const std::string& tenant) -> absl::StatusOr<StorePtr> {
    const fs::path folder = rpc::TenantFolder(root, tenant);
    QUENCH_ASSIGN_OR_RETURN(auto blobs, LocalBlobStore::Open(folder, space));
    rpc::CountFindings(*blobs, metrics::CasPlace::kStore, registry);
    QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<ActionCache> records,
                            LocalActionCache::Open(folder));
    return rpc::MakeLocalStore(std::move(blobs), action_cache ? records : nullptr, records);
  });
}

absl::Status CheckStore(const config::v1::BlobStore& blobs) {
  const bool has_cache = !blobs.cache_folder().empty() || blobs.cache_max_bytes() != 0;
  if (has_cache && !blobs.has_remote()) {
    return InvalidArgument("blobs: `cache_folder` and `cache_max_bytes` are of `remote`");
  }
  if (blobs.cache_max_bytes() < 0) {
    return InvalidArgument("blobs.cache_max_bytes: {}, must not be negative",
                           blobs.cache_max_bytes());
  }
  return absl::OkStatus();
}

}  // namespace

fs::path FolderOf(const config::v1::BlobStore& blobs, const fs::path& scratch) {
  if (!blobs.has_remote()) {
    return blobs.folder().empty() ? LocalBlobStore::DefaultRoot() : fs::path(blobs.folder());
  }
  return !blobs.cache_folder().empty() ? fs::path(blobs.cache_folder())
         : !scratch.empty()            ? scratch / "blobs"
                                       : LocalBlobStore::DefaultRoot();
}

absl::StatusOr<std::shared_ptr<rpc::Channel>> OpenRemote(const config::v1::BlobStore& blobs) {
  QUENCH_RETURN_IF_ERROR(CheckStore(blobs));
  absl::StatusOr<rpc::ChannelOptions> options = ChannelOptionsOf(blobs.remote());
  if (!options.ok()) return Annotate(options.status(), "blobs.remote");
  absl::StatusOr<std::shared_ptr<rpc::Channel>> channel = rpc::Channel::Open(*options);
  return channel.ok() ? std::move(channel) : Annotate(channel.status(), "blobs.remote");
}

StorePtr RemoteStoreOf(const config::v1::BlobStore& blobs,
                       const std::shared_ptr<rpc::Channel>& channel, const std::string& tenant,
                       std::shared_ptr<LocalBlobStore> local,
                       std::shared_ptr<rpc::BlobCopies> copies, bool action_cache) {
  rpc::RemoteBlobsOptions options;
  options.instance = rpc::InstanceOf(blobs.remote().instance(), tenant);
  if (blobs.has_retry_time()) {
    options.retry_time = std::chrono::milliseconds(
        google::protobuf::util::TimeUtil::DurationToMilliseconds(blobs.retry_time()));
  }
  const std::shared_ptr<ActionCache> records =
      std::make_shared<rpc::RemoteActionCache>(channel, options.instance, options.retry_time);
  return rpc::MakeRemoteStore(std::make_shared<rpc::RemoteBlobs>(channel, options),
                              std::move(local), std::move(copies), action_cache ? records : nullptr,
                              records);
}

absl::StatusOr<StepRunner::StorageOf> OpenStorage(const config::v1::BlobStore& blobs,
                                                  bool action_cache, const fs::path& scratch,
                                                  metrics::Registry& registry) {
  QUENCH_RETURN_IF_ERROR(CheckStore(blobs));
  const fs::path folder = FolderOf(blobs, scratch);
  if (!blobs.has_remote()) return OpenFolder(folder, action_cache, registry);
  QUENCH_ASSIGN_OR_RETURN(auto channel, OpenRemote(blobs));
  const int64_t most = blobs.cache_max_bytes() > 0 ? blobs.cache_max_bytes() : kCopies;
  absl::StatusOr<std::shared_ptr<rpc::BlobCopies>> copies =
      rpc::BlobCopies::Open(folder, static_cast<uint64_t>(most), registry);
  if (!copies.ok()) return Annotate(copies.status(), "blobs.cache_folder");
  return MadeOnce([blobs, channel, copies = *std::move(copies),
                   action_cache](const std::string& tenant) -> absl::StatusOr<StorePtr> {
    QUENCH_ASSIGN_OR_RETURN(auto local, copies->Of(tenant));
    return RemoteStoreOf(blobs, channel, tenant, std::move(local), copies, action_cache);
  });
}

}  // namespace quench::steps
