// REAPI's Capabilities: the functions and limits of the services for blobs.
#pragma once

#include "build/bazel/remote/execution/v2/remote_execution.grpc.pb.h"
#include "common/rpc/call.h"
#include "services/gateway/blobs/requests.h"

namespace quench::gateway {

class CapabilitiesService final : public reapi::Capabilities::CallbackService {
 public:
  explicit CapabilitiesService(BlobServerParts& parts);

 private:
  grpc::ServerUnaryReactor* GetCapabilities(grpc::CallbackServerContext* context,
                                            const reapi::GetCapabilitiesRequest* request,
                                            reapi::ServerCapabilities* response) override;

  BlobServerParts& parts_;
  const rpc::Method get_;
};

}  // namespace quench::gateway
