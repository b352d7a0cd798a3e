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
  int64_t max_batch_bytes = int64_t{4} << 20;  // data of a batch, less than a message may have
  int64_t max_blob_bytes = int64_t{1} << 40;
};

// The parts that the servers work on; outlives them. Calls run on `pool`: file I/O, hashing and
// fsync.
struct BlobServerParts {
  BlobFolders& folders;
  rpc::CallPool& pool;
  BlobServerOptions options;
  metrics::Counter& read;
  metrics::Counter& written;
};

// INVALID_ARGUMENT with the field at fault.
absl::Status CheckFunction(reapi::DigestFunction::Value function);
absl::StatusOr<BlobId> BlobIdOf(const reapi::Digest& digest, const std::string& field);

// Services may, by their token: whoever writes a result decides what others get for the same request.
bool MayUpdateActions(const StepContext& step);

// The blobs of the tenant named by REAPI's instance name, by the rules of rpc::TenantOfCall.
absl::StatusOr<std::shared_ptr<TenantBlobs>> BlobsOf(const BlobServerParts& parts,
                                                     const std::string& instance,
                                                     const StepContext& step);

// For reading, from wherever the tenant's blobs lie. NOT_FOUND also when it has another size.
absl::StatusOr<std::unique_ptr<BlobReader>> OpenBlob(const TenantBlobs& blobs, const BlobId& id,
                                                     const StepContext& step);

}  // namespace quench::gateway
