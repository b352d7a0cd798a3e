// REAPI's ActionCache over the action cache of the caller's tenant.
#pragma once

#include "build/bazel/remote/execution/v2/remote_execution.grpc.pb.h"
#include "common/rpc/call.h"
#include "services/gateway/blobs/requests.h"

namespace quench::gateway {

// Whether the store has every blob that a result names and, for folders, every file of their trees;
// counts as a use of these blobs.
absl::StatusOr<bool> IsComplete(const reapi::ActionResult& result, rpc::TenantStore& store,
                                const StepContext& step);

// A result is found only as long as it is complete.
class ActionCacheService final : public reapi::ActionCache::CallbackService {
 public:
  explicit ActionCacheService(BlobServerParts& parts);

 private:
  grpc::ServerUnaryReactor* GetActionResult(grpc::CallbackServerContext* context,
                                            const reapi::GetActionResultRequest* request,
                                            reapi::ActionResult* response) override;
  grpc::ServerUnaryReactor* UpdateActionResult(grpc::CallbackServerContext* context,
                                               const reapi::UpdateActionResultRequest* request,
                                               reapi::ActionResult* response) override;

  BlobServerParts& parts_;
  const rpc::Method get_, update_;
};

}  // namespace quench::gateway
