// The functions of both services of the gateway - Workflows and google.longrunning.Operations -
// without their transport.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "common/base/context.h"
#include "services/gateway/engine.h"
#include "services/gateway/expand.h"
#include "services/gateway/fleet.h"
#include "services/gateway/webhooks.h"

namespace google::longrunning {
class Operation;
}

namespace quench::gateway {

class WorkflowApi {
 public:
  // Runs a job that reads the store: soon, on another thread.
  using RunJob = std::function<void(std::function<void()>)>;
  // None is owned.
  WorkflowApi(Engine& engine, JobStore& store, Board& board, Pins& pins, BlobAccess blobs,
              int64_t max_workflow_bytes, RunJob run)
      : engine_(engine),
        store_(store),
        board_(board),
        pins_(pins),
        blobs_(std::move(blobs)),
        max_workflow_bytes_(max_workflow_bytes),
        run_(std::move(run)) {}

  // Before any call; without it, workflows with webhooks are refused.
  void AllowWebhooks(std::vector<http::Url> allowed) { allowed_webhooks_ = std::move(allowed); }

  // Calls that change something end once the store has the change, however long that takes: no thread
  // waits meanwhile, and `done` is called on any thread.
  using Done = JobStore::Done;
  using Created = std::function<void(absl::StatusOr<ViewPtr>)>;
  void Create(const v1::CreateWorkflowRequest& request, const StepContext& step,
              const Created& created);
  // `name` is the name of the workflow or of its operation.
  absl::StatusOr<ViewPtr> Get(const std::string& name, const StepContext& step);
  absl::StatusOr<v1::ListWorkflowStepsResponse> ListSteps(
      const v1::ListWorkflowStepsRequest& request, const StepContext& step);
  absl::StatusOr<v1::ListWorkflowsResponse> List(const v1::ListWorkflowsRequest& request,
                                                 const StepContext& step);
  absl::StatusOr<v1::Fleet> GetFleet(const v1::GetFleetRequest& request, const StepContext& step);
  absl::StatusOr<v1::ListFleetsResponse> ListFleets(const v1::ListFleetsRequest& request,
                                                    const StepContext& step);
  absl::StatusOr<v1::ListFleetCellsResponse> ListCells(const v1::ListFleetCellsRequest& request,
                                                       const StepContext& step);
  // For each workflow of the fleet that has not ended, or that has not succeeded: `done` gets their number, or the first
  // error.
  using Counted = std::function<void(absl::StatusOr<int>)>;
  void CancelFleet(const v1::CancelFleetRequest& request, const StepContext& step,
                   const Counted& done);
  void RetryFleet(const v1::RetryFleetRequest& request, const StepContext& step,
                  const Counted& done);
  void Retry(const std::string& name, const StepContext& step, const Done& done);
  void Cancel(const std::string& name, const StepContext& step, const Done& done);
  void Delete(const std::string& name, const StepContext& step, const Done& done);
  // Like Get; while the workflow is live, `watcher` is also told of every later view.
  absl::StatusOr<ViewPtr> Watch(const std::string& name, const StepContext& step,
                                const std::weak_ptr<Watcher>& watcher);

 private:
  absl::StatusOr<ViewPtr> FindEarlier(const std::string& tenant, const std::string& request_id,
                                      const std::string& spec_hash);
  // `tenant` "": any.
  absl::StatusOr<ViewPtr> FindById(const std::string& tenant, const std::string& id,
                                   const std::weak_ptr<Watcher>* watcher);
  // The existing workflow if this request was made before; null if it is new.
  absl::StatusOr<ViewPtr> Prepare(const v1::CreateWorkflowRequest& request, const StepContext& step,
                                  StoredWorkflow* workflow);
  // `tenant`: as a request names it.
  absl::StatusOr<std::vector<v1::Workflow>> WorkflowsOf(const std::string& tenant,
                                                        const std::string& fleet,
                                                        const StepContext& step);
  // Calls `change` for each, a few at a time.
  using Change = std::function<void(const std::string& name, const Done& done)>;
  void ForEach(std::vector<std::string> names, const Change& change, const Counted& done);
  // The tenant of a workflow that the caller may see.
  absl::StatusOr<std::string> OwnerOf(const std::string& id, const StepContext& step);
  absl::StatusOr<StoredWorkflow> Reopened(const std::string& tenant, const std::string& id);
  // The expanded spec of a workflow that has ended.
  absl::StatusOr<v1::WorkflowSpec> WriteOutAgain(const StoredWorkflow& ended);
  absl::StatusOr<WorkflowNeeds> PinInputs(const std::string& owner, const StoredWorkflow& workflow);

  Engine& engine_;
  JobStore& store_;
  Board& board_;
  Pins& pins_;
  const BlobAccess blobs_;
  const int64_t max_workflow_bytes_;
  const RunJob run_;
  std::vector<http::Url> allowed_webhooks_;
};

google::longrunning::Operation OperationOf(const WorkflowView& view);
// The tenant for which a caller works.
std::string TenantOf(const StepContext& step);
// The tenant that a request names for a list: "" is the caller's own; "" is given for `-`, all of them.
// PERMISSION_DENIED for another than the caller's own, unless the caller is an operator.
absl::StatusOr<std::string> ListedTenant(const std::string& named, const StepContext& step);

}  // namespace quench::gateway
