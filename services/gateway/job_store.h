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
#include "quench/gateway/v1/workflows.pb.h"

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

// Thread-safe. Workflows are named by id: the `{id}` of `workflows/{id}`.
class JobStore {
 public:
  // Called once, on any thread, possibly before the call returns.
  using Done = std::function<void(const absl::Status&)>;

  virtual ~JobStore() = default;

  // Writes take effect in the order of the calls. RESOURCE_EXHAUSTED if there is no room: then the
  // write has changed nothing.
  //
  // ALREADY_EXISTS if the tenant has a workflow with this request_id, unless that is empty.
  virtual void Create(StoredWorkflow workflow, Done done) = 0;
  // ABORTED if the workflow's revision is not `previous_revision`, NOT_FOUND if it does not exist.
  virtual void Update(WorkflowUpdate update, Done done) = 0;
  // NOT_FOUND if it does not exist, FAILED_PRECONDITION if it has not ended.
  virtual void Delete(const std::string& tenant, const std::string& id, Done done) = 0;
  // Forgets workflows that have ended and whose expire_time has come, and the oldest ended ones of tenants above
  // `limits`; `now_us` is Unix time in microseconds. Calls `done` with the ids it forgot, also if it then failed.
  using Forgotten = std::function<void(const absl::Status&, const std::vector<std::string>&)>;
  virtual void Expire(int64_t now_us, const EndedLimits& limits, Forgotten done) = 0;

  // The workflow with its steps; NOT_FOUND also if it belongs to another tenant.
  virtual absl::StatusOr<StoredWorkflow> Get(const std::string& tenant, const std::string& id) = 0;
  virtual absl::StatusOr<std::optional<StoredRequest>> FindRequest(
      const std::string& tenant, const std::string& request_id) = 0;
  // INVALID_ARGUMENT for a page token that did not come from a page.
  virtual absl::StatusOr<WorkflowPage> List(const ListQuery& query) = 0;
  // Workflows that have not ended, oldest first, for the start of a gateway.
  virtual absl::StatusOr<std::vector<StoredWorkflow>> LoadUnfinished() = 0;
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

// The position of a page: it begins after this workflow, newest first, then by descending id.
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
