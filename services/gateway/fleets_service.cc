#include "services/gateway/fleets_service.h"

#include "common/base/status.h"

namespace quench::gateway {
namespace {

using metrics::GrpcType;
using rpc::Effect;

}  // namespace

FleetsService::FleetsService(WorkflowApi& api, rpc::CallPool& control)
    : api_(api),
      get_(control, v1::Fleets::service_full_name(), "GetFleet", GrpcType::kUnary),
      list_(control, v1::Fleets::service_full_name(), "ListFleets", GrpcType::kUnary),
      cells_(control, v1::Fleets::service_full_name(), "ListFleetCells", GrpcType::kUnary),
      cancel_(control, v1::Fleets::service_full_name(), "CancelFleet", GrpcType::kUnary,
              Effect::kChanges),
      retry_(control, v1::Fleets::service_full_name(), "RetryFleet", GrpcType::kUnary,
             Effect::kChanges) {}

grpc::ServerUnaryReactor* FleetsService::GetFleet(grpc::CallbackServerContext* context,
                                                  const v1::GetFleetRequest* request,
                                                  v1::GetFleetResponse* response) {
  return rpc::UnaryOnPool(
      get_, context, request, response,
      [this](const auto& asked, const StepContext& step) -> absl::StatusOr<v1::GetFleetResponse> {
        v1::GetFleetResponse found;
        QUENCH_ASSIGN_OR_RETURN(*found.mutable_fleet(), api_.GetFleet(asked, step));
        return found;
      });
}

grpc::ServerUnaryReactor* FleetsService::ListFleets(grpc::CallbackServerContext* context,
                                                    const v1::ListFleetsRequest* request,
                                                    v1::ListFleetsResponse* response) {
  return rpc::UnaryOnPool(
      list_, context, request, response,
      [this](const auto& asked, const StepContext& step) { return api_.ListFleets(asked, step); });
}

grpc::ServerUnaryReactor* FleetsService::ListFleetCells(grpc::CallbackServerContext* context,
                                                        const v1::ListFleetCellsRequest* request,
                                                        v1::ListFleetCellsResponse* response) {
  return rpc::UnaryOnPool(
      cells_, context, request, response,
      [this](const auto& asked, const StepContext& step) { return api_.ListCells(asked, step); });
}

grpc::ServerUnaryReactor* FleetsService::CancelFleet(grpc::CallbackServerContext* context,
                                                     const v1::CancelFleetRequest* request,
                                                     v1::CancelFleetResponse* response) {
  return rpc::UnaryLater(cancel_, context, request, response,
                         [this](const auto& asked, const StepContext& step,
                                const rpc::Answer<v1::CancelFleetResponse>& answer) {
                           api_.CancelFleet(asked, step, [answer](absl::StatusOr<int> count) {
                             if (!count.ok()) {
                               answer(count.status());
                               return;
                             }
                             v1::CancelFleetResponse ended;
                             ended.set_cancelled(*count);
                             answer(ended);
                           });
                         });
}

grpc::ServerUnaryReactor* FleetsService::RetryFleet(grpc::CallbackServerContext* context,
                                                    const v1::RetryFleetRequest* request,
                                                    v1::RetryFleetResponse* response) {
  return rpc::UnaryLater(retry_, context, request, response,
                         [this](const auto& asked, const StepContext& step,
                                const rpc::Answer<v1::RetryFleetResponse>& answer) {
                           api_.RetryFleet(asked, step, [answer](absl::StatusOr<int> count) {
                             if (!count.ok()) {
                               answer(count.status());
                               return;
                             }
                             v1::RetryFleetResponse queued;
                             queued.set_retried(*count);
                             answer(queued);
                           });
                         });
}

}  // namespace quench::gateway
