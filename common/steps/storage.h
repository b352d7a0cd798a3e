// Where a service finds and leaves bytes: a folder that it shares with the gateway, or a store of
// the Remote Execution API, of which it keeps a copy of what it uses.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>

#include "common/steps/runner.h"
#include "quench/config/v1/config.pb.h"

namespace quench::steps {

// Opens what `blobs` says: a folder (default: the local user's store), or a remote store.
// `action_cache` false: results are neither looked up nor remembered.
absl::StatusOr<StepRunner::StorageOf> OpenStorage(const config::v1::BlobStore& blobs,
                                                  bool action_cache);

// One tenant's part of a store folder; that of rpc::kDefaultTenant is the folder itself.
std::filesystem::path TenantFolder(const std::filesystem::path& root, const std::string& tenant);

}  // namespace quench::steps
