// quench.local.v1.LocalBlobs over the blobs of the caller.
#pragma once

#include "common/rpc/call.h"
#include "quench/local/v1/blobs.grpc.pb.h"
#include "services/gateway/blobs/requests.h"

namespace quench::gateway {

class LocalBlobsService final : public local::v1::LocalBlobs::CallbackService {
 public:
  explicit LocalBlobsService(BlobServerParts& parts);

 private:
  grpc::ServerUnaryReactor* LocateBlob(grpc::CallbackServerContext* context,
                                       const local::v1::LocateBlobRequest* request,
                                       local::v1::LocateBlobResponse* response) override;

  BlobServerParts& parts_;
  const rpc::Method locate_;
};

}  // namespace quench::gateway
