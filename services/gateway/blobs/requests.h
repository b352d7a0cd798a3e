// Code shared by the servers of blobs: their options, and limits of requests.
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
  int64_t max_batch_bytes = int64_t{4} << 20;  // of data; less than the limit of a message
  int64_t max_blob_bytes = int64_t{1} << 40;
};

// The objects shared by the services, which it outlives. Calls run on `pool`: file I/O, hashing and
// fsync.
struct BlobServerParts {
  BlobFolders& folders;
  rpc::CallPool& pool;
  BlobServerOptions options;
  metrics::Counter& read;
  metrics::Counter& written;
};

// Errors are INVALID_ARGUMENT and name the field at fault.
absl::Status CheckFunction(reapi::DigestFunction::Value function);
absl::StatusOr<BlobId> BlobIdOf(const reapi::Digest& digest, const std::string& field);

// Whether the caller's token is a service's: whoever writes a result decides what others get for the same request.
bool MayUpdateActions(const StepContext& step);

// The blobs of the tenant named by REAPI's instance name, by the rules of rpc::TenantOfCall.
absl::StatusOr<std::shared_ptr<TenantBlobs>> BlobsOf(const BlobServerParts& parts,
                                                     const std::string& instance,
                                                     const StepContext& step);

// Opens a blob for reading, wherever the tenant's blobs are stored. NOT_FOUND also if its size differs.
absl::StatusOr<std::unique_ptr<BlobReader>> OpenBlob(const TenantBlobs& blobs, const BlobId& id,
                                                     const StepContext& step);

}  // namespace quench::gateway
