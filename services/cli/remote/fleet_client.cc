#include "services/cli/remote/fleet_client.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>

#include "common/base/status.h"
#include "common/rpc/unary_call.h"

namespace quench::cli {
namespace {

namespace pb = ::quench::gateway::v1;

constexpr int kCellsAtOnce = 2000;

}  // namespace

template <typename Stub, typename Request, typename Response>
absl::Status FleetClient::Call(
    Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
    const Request& request, Response* response, const StepContext& context) {
  return rpc::CallWithRetry(*channel_, context, kFleetPatience, [&](grpc::ClientContext* call) {
    return (stub.*method)(call, request, response);
  });
}

absl::StatusOr<pb::Fleet> FleetClient::Get(const std::string& id, const StepContext& context,
                                           const std::string& tenant) {
  pb::GetFleetRequest request;
  request.set_id(id);
  request.set_tenant(tenant);
  pb::GetFleetResponse response;
  QUENCH_RETURN_IF_ERROR(Call(*fleets_, &pb::Fleets::Stub::GetFleet, request, &response, context));
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
    QUENCH_RETURN_IF_ERROR(Call(*fleets_, &pb::Fleets::Stub::ListFleets, request, &page, context));
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
    QUENCH_RETURN_IF_ERROR(
        Call(*fleets_, &pb::Fleets::Stub::ListFleetCells, request, &page, context));
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
  QUENCH_RETURN_IF_ERROR(
      Call(*fleets_, &pb::Fleets::Stub::CancelFleet, request, &response, context));
  return response.cancelled();
}

// An earlier try of the same call may have done it: then the workflow has another time of its last retry.
absl::Status FleetClient::RetryShard(const pb::Workflow& ended, const StepContext& context) {
  pb::RetryWorkflowRequest request;
  request.set_name(ended.name());
  pb::RetryWorkflowResponse response;
  const absl::Status retried =
      Call(*workflows_, &pb::Workflows::Stub::RetryWorkflow, request, &response, context);
  if (absl::IsNotFound(retried)) return absl::OkStatus();
  if (!absl::IsFailedPrecondition(retried) && !absl::IsAborted(retried)) return retried;
  pb::GetWorkflowRequest get;
  get.set_name(ended.name());
  get.set_view(pb::WORKFLOW_VIEW_BASIC);
  pb::GetWorkflowResponse now;
  const absl::Status got = Call(*workflows_, &pb::Workflows::Stub::GetWorkflow, get, &now, context);
  if (absl::IsNotFound(got)) return absl::OkStatus();
  QUENCH_RETURN_IF_ERROR(got);
  using google::protobuf::util::TimeUtil;
  const bool same = TimeUtil::TimestampToNanoseconds(now.workflow().retry_time()) ==
                    TimeUtil::TimestampToNanoseconds(ended.retry_time());
  return same ? retried : absl::OkStatus();
}

}  // namespace quench::cli
