#include "services/gateway/blobs/blob_services.h"

#include <algorithm>

#include "common/runtime/quench_rt.h"
#include "services/gateway/blobs/action_cache.h"
#include "services/gateway/blobs/byte_stream.h"
#include "services/gateway/blobs/capabilities.h"
#include "services/gateway/blobs/local_blobs.h"
#include "services/gateway/blobs/samples.h"
#include "services/gateway/blobs/storage.h"

namespace quench::gateway {

struct BlobServices::Servers {
  explicit Servers(BlobServerParts& parts)
      : bytes(parts),
        storage(parts),
        actions(parts),
        capabilities(parts),
        samples(parts),
        local(parts) {}
  ByteStreamService bytes;
  StorageService storage;
  ActionCacheService actions;
  CapabilitiesService capabilities;
  SamplesService samples;
  LocalBlobsService local;
};

rpc::CallPool::Options BlobPoolOptions() {
  rpc::CallPool::Options options;
  // Some wait for the disk while others hash.
  options.threads = std::max(4, static_cast<int>(quench_rt_cpus()));
  options.queue = 1000;
  options.shared = true;
  return options;
}

BlobServices::BlobServices(BlobFolders& folders, rpc::CallPool& pool,
                           const BlobServerOptions& options)
    : parts_{folders, pool, options,
             pool.options().registry->Get(metrics::kCasBytes, metrics::CasOp::kRead),
             pool.options().registry->Get(metrics::kCasBytes, metrics::CasOp::kWritten)},
      servers_(new Servers(parts_)) {}

BlobServices::~BlobServices() = default;

std::vector<grpc::Service*> BlobServices::services() const {
  return {&servers_->bytes,        &servers_->storage, &servers_->actions,
          &servers_->capabilities, &servers_->samples, &servers_->local};
}

std::vector<std::string> BlobServices::names() {
  return {bytestream::ByteStream::service_full_name(),
          reapi::ContentAddressableStorage::service_full_name(),
          reapi::ActionCache::service_full_name(),
          reapi::Capabilities::service_full_name(),
          v1::Samples::service_full_name(),
          local::v1::LocalBlobs::service_full_name()};
}

}  // namespace quench::gateway
