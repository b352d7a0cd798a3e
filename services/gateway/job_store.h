// Where workflows outlive their gateway. Writes are queued and answered when they are durable, reads
// see what was answered. Several gateways may share a store that is made for it: a change needs the
// revision that it was made from.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/blobs/blob_id.h"
#include "quench/gateway/v1/workflows.pb.h"

namespace quench::gateway {

struct StoredWorkflow {
  v1::Workflow workflow;
  v1::WorkflowSpec spec;    // presets written out; empty when it has ended
  v1::WorkflowSpec asked;   // as it came; empty when it has succeeded: that is never run again
  std::string spec_hash;    // of the spec as it came
  std::string traceparent;  // of the call that created it
};

struct WorkflowUpdate {
  v1::Workflow header;  // without steps
  int64_t previous_revision = 0;
  std::vector<std::pair<int, std::shared_ptr<const v1::Step>>> steps;  // by position: what changed
  std::vector<BlobId> kept;                      // what header.outputs_expire_time promises
  std::shared_ptr<const v1::WorkflowSpec> spec;  // written out, of one that is taken up again
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
  std::string tenant;
  std::vector<v1::State> states;  // none: all
  int page_size = 100;
  std::string page_token;
};

struct WorkflowPage {
  std::vector<v1::Workflow> workflows;  // newest first, without steps
  std::string next_page_token;
};

// Thread-safe. Workflows are named by id: `workflows/{id}` without what stands before.
class JobStore {
 public:
  // Called once, on any thread, maybe before the call returns.
  using Done = std::function<void(const absl::Status&)>;

  virtual ~JobStore() = default;

  // Writes take effect in the order of the calls. RESOURCE_EXHAUSTED when there is no room: nothing
  // of that write has happened.
  //
  // ALREADY_EXISTS when the tenant has a workflow with this request_id, unless that is empty.
  virtual void Create(StoredWorkflow workflow, Done done) = 0;
  // ABORTED when the workflow has another revision than `previous_revision`, NOT_FOUND without it.
  virtual void Update(WorkflowUpdate update, Done done) = 0;
  // NOT_FOUND, or FAILED_PRECONDITION for one that has not ended.
  virtual void Delete(const std::string& tenant, const std::string& id, Done done) = 0;
  // Forgets what ended and whose expire_time has come, and of tenants above `limits` what ended first;
  // `now_us` is Unix time in microseconds. `done` with the ids of what is forgotten, also where not all is.
  using Forgotten = std::function<void(const absl::Status&, const std::vector<std::string>&)>;
  virtual void Expire(int64_t now_us, const EndedLimits& limits, Forgotten done) = 0;

  // With its steps; NOT_FOUND also for those of other tenants.
  virtual absl::StatusOr<StoredWorkflow> Get(const std::string& tenant, const std::string& id) = 0;
  virtual absl::StatusOr<std::optional<StoredRequest>> FindRequest(
      const std::string& tenant, const std::string& request_id) = 0;
  // INVALID_ARGUMENT for a page token that no page gave.
  virtual absl::StatusOr<WorkflowPage> List(const ListQuery& query) = 0;
  // Workflows that have not ended, oldest first: for a gateway at its start.
  virtual absl::StatusOr<std::vector<StoredWorkflow>> LoadUnfinished() = 0;
  // Outputs promised by ended workflows, one workflow after the other until `visit` gives false.
  virtual absl::Status ForEachKept(const std::function<bool(KeptOutputs)>& visit) = 0;
};

std::string WorkflowName(const std::string& id);
std::string OperationName(const std::string& id);
// The id in `workflows/{id}` or `operations/{id}`; "" for anything else.
std::string IdOf(const std::string& name);
// 32 hex digits that nobody has drawn before.
std::string NewWorkflowId();

bool HasEnded(v1::State state);
int64_t Microseconds(const google::protobuf::Timestamp& time);
google::protobuf::Timestamp TimestampOf(int64_t microseconds);

// Where a page begins: after this workflow, in the order newest first, then by id downwards.
struct PagePosition {
  int64_t create_us = 0;
  std::string id;
  bool operator<(const PagePosition& other) const {
    return std::pair(create_us, id) < std::pair(other.create_us, other.id);
  }
};
std::string PageToken(const PagePosition& position);
absl::StatusOr<PagePosition> ParsePageToken(const std::string& token);

absl::Status NoSuchWorkflow(const std::string& id);
absl::Status NotEnded(const std::string& id);
absl::Status RequestIdInUse(const std::string& request_id);

}  // namespace quench::gateway
