// The store in which a service finds and leaves bytes: a folder that it shares with the gateway, or a
// store of the Remote Execution API, of whose blobs it keeps copies.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>

#include "common/steps/runner.h"
#include "quench/config/v1/config.pb.h"

namespace quench::rpc {
class Channel;
}

namespace quench::steps {

// The folder of this machine in which the blobs lie, or copies of a remote store's: `blobs.folder` or
// `blobs.cache_folder`, or their defaults below.
std::filesystem::path FolderOf(const config::v1::BlobStore& blobs,
                               const std::filesystem::path& scratch);

// Opens the store given by `blobs`: a folder (default: the local user's store), within the limits of
// the gateway that owns it, or a remote store, with copies in `blobs.cache_folder` (default:
// `scratch`/blobs, without `scratch` the local user's store). `action_cache` false: results are neither
// looked up nor remembered.
absl::StatusOr<StepRunner::StorageOf> OpenStorage(const config::v1::BlobStore& blobs,
                                                  bool action_cache,
                                                  const std::filesystem::path& scratch = {},
                                                  metrics::Registry& registry = metrics::Global());

// One tenant's part of the store given by `blobs.remote`, with copies in `local`, limited by `copies`.
std::shared_ptr<rpc::TenantStore> RemoteStoreOf(const config::v1::BlobStore& blobs,
                                                const std::shared_ptr<rpc::Channel>& channel,
                                                const std::string& tenant,
                                                std::shared_ptr<LocalBlobStore> local,
                                                std::shared_ptr<rpc::BlobCopies> copies,
                                                bool action_cache);
// The channel to the remote store.
absl::StatusOr<std::shared_ptr<rpc::Channel>> OpenRemote(const config::v1::BlobStore& blobs);

}  // namespace quench::steps
