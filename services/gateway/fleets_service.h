// The service Fleets over WorkflowApi.
#pragma once

#include "common/rpc/on_pool.h"
#include "quench/gateway/v1/fleets.grpc.pb.h"
#include "services/gateway/workflow_api.h"

namespace quench::gateway {

class FleetsService final : public v1::Fleets::CallbackService {
 public:
  // Neither is owned.
  FleetsService(WorkflowApi& api, rpc::CallPool& control);

  grpc::ServerUnaryReactor* GetFleet(grpc::CallbackServerContext* context,
                                     const v1::GetFleetRequest* request,
                                     v1::GetFleetResponse* response) override;
  grpc::ServerUnaryReactor* ListFleets(grpc::CallbackServerContext* context,
                                       const v1::ListFleetsRequest* request,
                                       v1::ListFleetsResponse* response) override;
  grpc::ServerUnaryReactor* ListFleetCells(grpc::CallbackServerContext* context,
                                           const v1::ListFleetCellsRequest* request,
                                           v1::ListFleetCellsResponse* response) override;
  grpc::ServerUnaryReactor* CancelFleet(grpc::CallbackServerContext* context,
                                        const v1::CancelFleetRequest* request,
                                        v1::CancelFleetResponse* response) override;
  grpc::ServerUnaryReactor* RetryFleet(grpc::CallbackServerContext* context,
                                       const v1::RetryFleetRequest* request,
                                       v1::RetryFleetResponse* response) override;

 private:
  WorkflowApi& api_;
  const rpc::Method get_, list_, cells_, cancel_, retry_;
};

}  // namespace quench::gateway
