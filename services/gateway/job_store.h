// The store in which workflows outlive their gateway. Writes are queued and answered once durable;
// reads see all answered writes. Several gateways may share a store that is made for it: a change
// names the revision that it was made from.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/blobs/blob_id.h"
#include "quench/gateway/v1/fleets.pb.h"
#include "quench/gateway/v1/workflows.pb.h"
#include "services/gateway/event_queue.h"
#include "services/gateway/filter.h"
#include "services/gateway/tenant_usage.h"

namespace quench::gateway {

struct StoredWorkflow {
  v1::Workflow workflow;
  v1::WorkflowSpec spec;    // presets written out; empty when it has ended
  v1::WorkflowSpec asked;   // as requested; empty once it has succeeded: then it is never run again
  std::string spec_hash;    // of the spec as requested
  std::string traceparent;  // of the call that created it
};

struct WorkflowUpdate {
  v1::Workflow header;  // without steps
  int64_t previous_revision = 0;
  std::vector<std::pair<int, std::shared_ptr<const v1::Step>>> steps;  // changed ones, by position
  std::vector<BlobId> kept;                      // outputs promised by header.outputs_expire_time
  std::shared_ptr<const v1::WorkflowSpec> spec;  // expanded; set if it is retried
  std::vector<QueuedEvent> events;               // posted once the update is durable
  std::vector<std::string> fleet_urls;           // told if this ends the workflow's fleet
};

// Outputs that a workflow promised to keep when it ended.
struct KeptOutputs {
  std::string id, tenant;
  std::vector<BlobId> blobs;
  int64_t until_us = 0;
};

// Limits for a tenant's workflows that have ended: their number, and their size in the store.
struct EndedLimits {
  int64_t workflows = 100'000;
  int64_t bytes = int64_t{1} << 30;
};

struct StoredRequest {
  std::string id;
  std::string spec_hash;
};

struct ListQuery {
  std::string tenant;             // "": all
  std::vector<v1::State> states;  // none: all
  int page_size = 100;
  std::string page_token;
  std::vector<Condition> filter;
  ListOrder order;
};

struct WorkflowPage {
  std::vector<v1::Workflow> workflows;  // in the order of the query, without steps
  std::string next_page_token;
};

struct FleetQuery {
  std::string tenant;  // "": all
  int page_size = 50;
  std::string page_token;
};

struct FleetPage {
  std::vector<v1::Fleet> fleets;  // newest first
  std::string next_page_token;
};

// Thread-safe. Workflows are named by id: the `{id}` of `workflows/{id}`.
class JobStore : public EventQueue {
 public:
  // Called once, on any thread, possibly before the call returns.
  using Done = std::function<void(const absl::Status&)>;

  // Writes take effect in the order of the calls. RESOURCE_EXHAUSTED if there is no room: then the
  // write has changed nothing.
  //
  // ALREADY_EXISTS if the tenant has a workflow with this request_id, unless that is empty, or one that is the same
  // shard of the same fleet; INVALID_ARGUMENT if that fleet has another number of shards.
  virtual void Create(StoredWorkflow workflow, Done done) = 0;
  // ABORTED if the workflow's revision is not `previous_revision`, NOT_FOUND if it does not exist.
  virtual void Update(WorkflowUpdate update, Done done) = 0;
  // NOT_FOUND if it does not exist, FAILED_PRECONDITION if it has not ended.
  virtual void Delete(const std::string& tenant, const std::string& id, Done done) = 0;
  // Forgets workflows that have ended and whose expire_time has come, and the oldest ended ones of tenants above
  // `limits`. The workflows of a fleet are forgotten together, once all have ended, and not before the last expires or
  // the first is above the limits. `now_us` is Unix time in microseconds. Calls `done` with the ids it forgot, also if it then failed.
  using Forgotten = std::function<void(const absl::Status&, const std::vector<std::string>&)>;
  virtual void Expire(int64_t now_us, const EndedLimits& limits, Forgotten done) = 0;

  // The workflow with its steps; NOT_FOUND also if it belongs to another tenant. `tenant` "": any.
  virtual absl::StatusOr<StoredWorkflow> Get(const std::string& tenant, const std::string& id) = 0;
  virtual absl::StatusOr<std::optional<StoredRequest>> FindRequest(
      const std::string& tenant, const std::string& request_id) = 0;
  // At most kMostBytes, but one workflow at least. INVALID_ARGUMENT for a page token that did not come from a page.
  virtual absl::StatusOr<WorkflowPage> List(const ListQuery& query) = 0;
  // The workflows of a fleet by shard, without steps; none if there is no such fleet.
  virtual absl::StatusOr<std::vector<v1::Workflow>> ListFleet(const std::string& tenant,
                                                              const std::string& fleet) = 0;
  virtual absl::StatusOr<FleetPage> ListFleets(const FleetQuery& query) = 0;
  // Visits workflows that have not ended, oldest first, for the start of a gateway.
  virtual absl::Status ForEachUnfinished(const std::function<void(StoredWorkflow)>& visit) = 0;
  // Step-seconds of a day by tenant; a row replaces the one before. 35 days are kept.
  virtual void PutStepSeconds(std::vector<StepSecondsRow> rows, Done done) = 0;
  virtual absl::StatusOr<std::vector<StepSecondsRow>> LoadStepSeconds(int64_t day) = 0;
  // Visits the outputs promised by ended workflows, one workflow at a time, until `visit` gives false.
  virtual absl::Status ForEachKept(const std::function<bool(KeptOutputs)>& visit) = 0;
};

std::string WorkflowName(const std::string& id);
std::string OperationName(const std::string& id);
// The id in `workflows/{id}` or `operations/{id}`; "" for anything else.
std::string IdOf(const std::string& name);
// 32 random hex digits.
std::string NewWorkflowId();

bool HasEnded(v1::State state);
int64_t Microseconds(const google::protobuf::Timestamp& time);
google::protobuf::Timestamp TimestampOf(int64_t microseconds);

// The position of a page: it begins after this workflow, in the order of the time that orders the list, then of the id.
struct PagePosition {
  int64_t us = 0;
  std::string id;
  bool operator<(const PagePosition& other) const {
    return std::pair(us, id) < std::pair(other.us, other.id);
  }
};
PagePosition PositionOf(const v1::Workflow& workflow, const ListOrder& order);
// Before all workflows of the order.
PagePosition StartOf(const ListOrder& order);
std::string PageToken(const PagePosition& position);
absl::StatusOr<PagePosition> ParsePageToken(const std::string& token);

absl::Status NoSuchWorkflow(const std::string& id);
absl::Status NotEnded(const std::string& id);
absl::Status RequestIdInUse(const std::string& request_id);
absl::Status ShardExists(const v1::FleetShard& shard);
absl::Status OtherShards(const v1::FleetShard& shard, int shards);

}  // namespace quench::gateway
