#include "services/cli/remote/fleet_client.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/rpc/unary_call.h"

namespace quench::cli {
namespace {

namespace pb = ::quench::gateway::v1;

constexpr int kCellsAtOnce = 2000;

}  // namespace

template <typename Request, typename Response>
absl::Status FleetClient::Call(grpc::Status (pb::Fleets::Stub::*method)(grpc::ClientContext*,
                                                                        const Request&, Response*),
                               const Request& request, Response* response,
                               const StepContext& context) {
  return rpc::CallWithRetry(*channel_, context, kFleetPatience, [&](grpc::ClientContext* call) {
    return (*stub_.*method)(call, request, response);
  });
}

absl::StatusOr<pb::Fleet> FleetClient::Get(const std::string& id, const StepContext& context,
                                           const std::string& tenant) {
  pb::GetFleetRequest request;
  request.set_id(id);
  request.set_tenant(tenant);
  pb::GetFleetResponse response;
  QUENCH_RETURN_IF_ERROR(Call(&pb::Fleets::Stub::GetFleet, request, &response, context));
  return std::move(*response.mutable_fleet());
}

absl::StatusOr<std::vector<pb::Fleet>> FleetClient::List(int limit, const StepContext& context,
                                                         const std::string& tenant) {
  std::vector<pb::Fleet> fleets;
  pb::ListFleetsRequest request;
  request.set_tenant(tenant);
  do {
    request.set_page_size(std::min(limit - static_cast<int>(fleets.size()), 200));
    pb::ListFleetsResponse page;
    QUENCH_RETURN_IF_ERROR(Call(&pb::Fleets::Stub::ListFleets, request, &page, context));
    fleets.insert(fleets.end(), page.fleets().begin(), page.fleets().end());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && static_cast<int>(fleets.size()) < limit);
  return fleets;
}

absl::Status FleetClient::ForEachCell(const std::string& id, const std::vector<int>& shards,
                                      const Visit& visit, const StepContext& context) {
  pb::ListFleetCellsRequest request;
  request.set_id(id);
  request.set_page_size(kCellsAtOnce);
  request.mutable_shards()->Assign(shards.begin(), shards.end());
  do {
    pb::ListFleetCellsResponse page;
    QUENCH_RETURN_IF_ERROR(Call(&pb::Fleets::Stub::ListFleetCells, request, &page, context));
    for (const pb::FleetCell& cell : page.cells()) QUENCH_RETURN_IF_ERROR(visit(cell));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return absl::OkStatus();
}

// Workflows that have ended stay as they are: it may be repeated.
absl::StatusOr<int> FleetClient::Cancel(const std::string& id, const StepContext& context,
                                        const std::string& tenant) {
  pb::CancelFleetRequest request;
  request.set_id(id);
  request.set_tenant(tenant);
  pb::CancelFleetResponse response;
  QUENCH_RETURN_IF_ERROR(Call(&pb::Fleets::Stub::CancelFleet, request, &response, context));
  return response.cancelled();
}

// One that runs again is not retried twice: it may be repeated.
absl::StatusOr<int> FleetClient::Retry(const std::string& id, const StepContext& context,
                                       const std::string& tenant) {
  pb::RetryFleetRequest request;
  request.set_id(id);
  request.set_tenant(tenant);
  pb::RetryFleetResponse response;
  QUENCH_RETURN_IF_ERROR(Call(&pb::Fleets::Stub::RetryFleet, request, &response, context));
  return response.retried();
}

}  // namespace quench::cli
