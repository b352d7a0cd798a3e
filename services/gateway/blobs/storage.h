// REAPI's ContentAddressableStorage over the blobs of the caller.
#pragma once

#include "build/bazel/remote/execution/v2/remote_execution.grpc.pb.h"
#include "common/rpc/call.h"
#include "services/gateway/blobs/requests.h"

namespace quench::gateway {

class StorageService final : public reapi::ContentAddressableStorage::CallbackService {
 public:
  explicit StorageService(BlobServerParts& parts);

 private:
  grpc::ServerUnaryReactor* FindMissingBlobs(grpc::CallbackServerContext* context,
                                             const reapi::FindMissingBlobsRequest* request,
                                             reapi::FindMissingBlobsResponse* response) override;
  grpc::ServerUnaryReactor* BatchUpdateBlobs(grpc::CallbackServerContext* context,
                                             const reapi::BatchUpdateBlobsRequest* request,
                                             reapi::BatchUpdateBlobsResponse* response) override;
  grpc::ServerUnaryReactor* BatchReadBlobs(grpc::CallbackServerContext* context,
                                           const reapi::BatchReadBlobsRequest* request,
                                           reapi::BatchReadBlobsResponse* response) override;
  // All three give UNIMPLEMENTED: the services do not look into blobs.
  grpc::ServerWriteReactor<reapi::GetTreeResponse>* GetTree(
      grpc::CallbackServerContext* context, const reapi::GetTreeRequest* request) override;
  grpc::ServerUnaryReactor* SplitBlob(grpc::CallbackServerContext* context,
                                      const reapi::SplitBlobRequest* request,
                                      reapi::SplitBlobResponse* response) override;
  grpc::ServerUnaryReactor* SpliceBlob(grpc::CallbackServerContext* context,
                                       const reapi::SpliceBlobRequest* request,
                                       reapi::SpliceBlobResponse* response) override;

  BlobServerParts& parts_;
  const rpc::Method find_, update_, read_, tree_, split_, splice_;
};

}  // namespace quench::gateway
