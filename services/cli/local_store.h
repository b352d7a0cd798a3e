// The blob store of the local user, in the cache folder.
#pragma once

#include <absl/status/statusor.h>

#include <memory>

#include "common/blobs/blob_store.h"

namespace quench::cli {

absl::StatusOr<std::shared_ptr<LocalBlobStore>> OpenStore();

}  // namespace quench::cli
