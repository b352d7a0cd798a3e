// The gateway's services for blobs, as a part of a server: ByteStream, ContentAddressableStorage,
// ActionCache, Capabilities, Samples and LocalBlobs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "services/gateway/blobs/requests.h"

namespace grpc {
class Service;
}

namespace quench::gateway {

// Options of a pool for BlobServices: a stream keeps its place until it ends, and takes a thread
// only while a chunk of it is worked on.
rpc::CallPool::Options BlobPoolOptions();

class BlobServices {
 public:
  // `folders` and `pool` outlive the services, which outlive the server. The pool's tokens identify callers.
  BlobServices(BlobFolders& folders, rpc::CallPool& pool, const BlobServerOptions& options = {});
  ~BlobServices();

  std::vector<grpc::Service*> services() const;
  static std::vector<std::string> names();  // for health checks

 private:
  struct Servers;
  BlobServerParts parts_;
  const std::unique_ptr<Servers> servers_;
};

}  // namespace quench::gateway
