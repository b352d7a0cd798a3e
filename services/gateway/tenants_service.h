// The use that tenants make of the gateway, over gRPC.
#pragma once

#include "common/rpc/on_pool.h"
#include "quench/gateway/v1/tenants.grpc.pb.h"
#include "services/gateway/engine.h"

namespace quench::gateway {

// The use of tenant `named`, or, with "", of all that the caller may see. `usage` is the engine's.
absl::StatusOr<v1::ListTenantsResponse> TenantsFor(const std::string& named,
                                                   const StepContext& step, const Engine& engine,
                                                   const Engine::Usage& usage, const Pins& pins,
                                                   int64_t now_us);

class TenantsService final : public v1::Tenants::CallbackService {
 public:
  // None is owned.
  TenantsService(Engine& engine, const Pins& pins, rpc::CallPool& control);

  grpc::ServerUnaryReactor* ListTenants(grpc::CallbackServerContext* context,
                                        const v1::ListTenantsRequest* request,
                                        v1::ListTenantsResponse* response) override;

 private:
  Engine& engine_;
  const Pins& pins_;
  const rpc::Method list_;
};

}  // namespace quench::gateway
