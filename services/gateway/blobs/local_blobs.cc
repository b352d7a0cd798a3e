#include "services/gateway/blobs/local_blobs.h"

#include <system_error>

#include "common/base/status.h"
#include "common/rpc/address.h"
#include "common/rpc/on_pool.h"

namespace quench::gateway {
namespace {

// Not looked at first: whoever copies the bytes compares them.
absl::StatusOr<local::v1::LocateBlobResponse> Locate(const BlobServerParts& parts,
                                                     const local::v1::LocateBlobRequest& request,
                                                     bool is_here, const StepContext& step) {
  QUENCH_ASSIGN_OR_RETURN(const BlobId id, BlobIdOf(request.digest(), "digest"));
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<TenantBlobs> blobs,
                          BlobsOf(parts, request.instance_name(), step));
  local::v1::LocateBlobResponse response;
  if (!is_here || !blobs->store->Use(id)) return response;
  std::error_code error;
  const std::filesystem::path path =
      std::filesystem::absolute(blobs->store->PathOf(id.hash), error);
  if (!error) response.set_path(path.string());
  return response;
}

}  // namespace

LocalBlobsService::LocalBlobsService(BlobServerParts& parts)
    : parts_(parts),
      locate_(parts.pool, local::v1::LocalBlobs::service_full_name(), "LocateBlob",
              metrics::GrpcType::kUnary) {}

grpc::ServerUnaryReactor* LocalBlobsService::LocateBlob(grpc::CallbackServerContext* context,
                                                        const local::v1::LocateBlobRequest* request,
                                                        local::v1::LocateBlobResponse* response) {
  return rpc::UnaryOnPool(locate_, context, request, response,
                          [this, is_here = rpc::IsLocalPeer(context->peer())](
                              const auto& asked, const StepContext& step) {
                            return Locate(parts_, asked, is_here, step);
                          });
}

}  // namespace quench::gateway
