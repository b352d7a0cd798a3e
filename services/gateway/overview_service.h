// The gateway at a glance, over gRPC.
#pragma once

#include <functional>

#include "common/rpc/on_pool.h"
#include "quench/gateway/v1/overview.grpc.pb.h"
#include "services/gateway/engine.h"
#include "services/gateway/worker_watch.h"

namespace quench::gateway {

// Fills in what the store knows of itself; may look at the disk.
using TellStore = std::function<void(v1::StoreState*)>;

class OverviewService final : public v1::Overview::CallbackService {
 public:
  // None is owned. `tell_store` may be null.
  OverviewService(Engine& engine, const Pins& pins, const WorkerWatch& workers,
                  TellStore tell_store, metrics::Registry& registry, rpc::CallPool& control);

  grpc::ServerUnaryReactor* GetOverview(grpc::CallbackServerContext* context,
                                        const v1::GetOverviewRequest* request,
                                        v1::GetOverviewResponse* response) override;

 private:
  void AddServices(const Engine::Loads& loads, CallerRole role,
                   v1::GetOverviewResponse* response) const;

  Engine& engine_;
  const Pins& pins_;
  const WorkerWatch& workers_;
  const TellStore tell_store_;
  metrics::Registry& registry_;
  const int64_t start_us_;
  const rpc::Method get_;
};

}  // namespace quench::gateway
