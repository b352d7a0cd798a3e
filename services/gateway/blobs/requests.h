// What the servers of blobs have in common: their options, and what requests may ask for.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

#include "build/bazel/remote/execution/v2/remote_execution.pb.h"
#include "common/base/context.h"
#include "common/metrics/metrics.h"
#include "common/rpc/call_pool.h"
#include "services/gateway/blobs/folders.h"

namespace quench::gateway {

namespace reapi = ::build::bazel::remote::execution::v2;

struct BlobServerOptions {
  std::string instance;                        // REAPI's instance name, the only one
  int64_t max_batch_bytes = int64_t{4} << 20;  // data of a batch, less than a message may have
  int64_t max_blob_bytes = int64_t{1} << 40;
  bool update_actions = true;  // whether UpdateActionResult is served
};

// What the servers work on; outlives them. Calls run on `pool`: file I/O, hashing and fsync.
struct BlobServerParts {
  BlobFolders& folders;
  rpc::CallPool& pool;
  BlobServerOptions options;
  metrics::Counter& read;
  metrics::Counter& written;
};

// INVALID_ARGUMENT with the field at fault.
absl::Status CheckInstance(const BlobServerParts& parts, const std::string& instance);
absl::Status CheckFunction(reapi::DigestFunction::Value function);
absl::StatusOr<BlobId> BlobIdOf(const reapi::Digest& digest, const std::string& field);

// Those of the caller.
absl::StatusOr<std::shared_ptr<TenantBlobs>> BlobsOf(const BlobServerParts& parts,
                                                     const StepContext& step);

}  // namespace quench::gateway
