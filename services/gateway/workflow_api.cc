#include "services/gateway/workflow_api.h"

#include <algorithm>
#include <charconv>
#include <chrono>

#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/rpc/errors.h"
#include "common/rpc/tenants.h"
#include "common/rpc/unknown_fields.h"
#include "google/longrunning/operations.pb.h"

namespace quench::gateway {
namespace {

constexpr int kLargestPage = 1000;
constexpr int kUsualPage = 100;
constexpr int kUsualStepsPage = 500;
constexpr char kAllTenants[] = "-";

int CheckedPageSize(int asked, int usual, Violations* violations) {
  if (asked < 0) violations->Add("page_size", fmt::format("is {}, must not be negative", asked));
  return asked == 0 ? usual : std::min(asked, kLargestPage);
}

std::vector<v1::State> CheckedStates(const google::protobuf::RepeatedField<int>& asked,
                                     Violations* violations) {
  std::vector<v1::State> states;
  for (int i = 0; i < asked.size(); ++i) {
    const auto state = static_cast<v1::State>(asked[i]);
    if (state == v1::STATE_UNSPECIFIED || !v1::State_IsValid(asked[i])) {
      violations->Add(fmt::format("states[{}]", i),
                      fmt::format("is {}, which is not a state", asked[i]));
    }
    states.push_back(state);
  }
  return states;
}

absl::Status CheckRequestId(const std::string& id) {
  const bool printable =
      std::all_of(id.begin(), id.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (id.size() <= 128 && printable) return absl::OkStatus();
  Violations violations;
  violations.Add("request_id", "must be at most 128 printable ASCII characters");
  return violations.Finish();
}

int64_t UnixMicroseconds() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::string TenantOf(const StepContext& step) { return *rpc::TenantOfCall(step.tenant(), ""); }

// The tenant whose workflows a caller sees by their names; "": all.
static std::string SeenBy(const StepContext& step) {
  return step.role() == CallerRole::kOperator ? "" : TenantOf(step);
}

absl::StatusOr<std::string> ListedTenant(const std::string& named, const StepContext& step) {
  std::string own = TenantOf(step);
  if (named.empty() || named == own) return own;
  if (named != kAllTenants && !rpc::IsTenant(named)) {
    Violations violations;
    violations.Add("tenant", "must be the name of a tenant, or `-` for all");
    return violations.Finish();
  }
  if (step.role() != CallerRole::kOperator) {
    return absl::PermissionDeniedError(
        fmt::format("the caller is a `{}` of tenant `{}`: to see other tenants needs an `operator`",
                    rpc::RoleName(step.role()), own));
  }
  return named == kAllTenants ? "" : named;
}

// The names of what a batch is about, as its cells have them.
static void AddNames(const v1::WorkflowSpec& spec, v1::Workflow* workflow) {
  constexpr int kMost = 250;
  const auto add_models = [workflow](const auto& models) {
    for (const v1::BatchModel& model : models) {
      if (workflow->models_size() < kMost) workflow->add_models(model.name());
    }
  };
  add_models(spec.compile().models());
  add_models(spec.analyse().models());
  for (const codegen::v1::Target& target : spec.compile().targets()) {
    if (workflow->targets_size() < kMost)
      workflow->add_targets(target.label().empty() ? target.name() : target.label());
  }
}

absl::StatusOr<ViewPtr> WorkflowApi::Prepare(const v1::CreateWorkflowRequest& request,
                                             const StepContext& step, StoredWorkflow* workflow) {
  QUENCH_RETURN_IF_ERROR(rpc::CheckKnownFields(request));
  QUENCH_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  Violations violations;
  CheckWebhooks(request.spec().webhooks(), allowed_webhooks_, &violations);
  QUENCH_RETURN_IF_ERROR(violations.Finish());
  const std::string tenant = TenantOf(step), spec_hash = Sha256Hex(Serialised(request.spec()));
  if (!request.request_id().empty()) {
    QUENCH_ASSIGN_OR_RETURN(ViewPtr earlier, FindEarlier(tenant, request.request_id(), spec_hash));
    if (earlier != nullptr) return earlier;
  }
  QUENCH_ASSIGN_OR_RETURN(const v1::WorkflowSpec spec, Expand(request.spec(), max_workflow_bytes_));
  *workflow = NewWorkflow(NewWorkflowId(), tenant, request.request_id(), spec, spec_hash,
                          UnixMicroseconds());
  AddNames(request.spec(), &workflow->workflow);
  workflow->asked = request.spec();
  workflow->traceparent = step.traceparent();
  return nullptr;
}

void WorkflowApi::Create(const v1::CreateWorkflowRequest& request, const StepContext& step,
                         const Created& created) {
  StoredWorkflow workflow;
  absl::StatusOr<ViewPtr> earlier = Prepare(request, step, &workflow);
  if (!earlier.ok() || *earlier != nullptr) {
    created(std::move(earlier));
    return;
  }
  const std::string id = IdOf(workflow.workflow.name()), tenant = workflow.workflow.tenant();
  const absl::StatusOr<WorkflowNeeds> needs = PinInputs(id, workflow);
  if (request.validate_only()) {
    pins_.Remove(id);
    workflow.workflow.clear_name();
    if (needs.ok()) {
      created(std::make_shared<WorkflowView>(ViewOf(workflow.workflow)));
    } else {
      created(needs.status());
    }
    return;
  }
  if (!needs.ok()) {
    pins_.Remove(id);
    created(needs.status());
    return;
  }
  const std::string& request_id = request.request_id();
  const std::string& spec_hash = workflow.spec_hash;
  const auto on_stored = [this, created, id, tenant, request_id,
                          spec_hash](const absl::Status& status) {
    if (status.ok()) {
      if (ViewPtr live = board_.Find(id)) return created(std::move(live));
      run_([this, created, tenant, id] { created(FindById(tenant, id, nullptr)); });  // asleep
      return;
    }
    // Not before: a store that takes long may create it still.
    pins_.Remove(id);
    if (!absl::IsAlreadyExists(status)) {
      created(status);
      return;
    }
    run_([this, created, tenant, request_id, spec_hash, status] {  // by a call beside this one
      absl::StatusOr<ViewPtr> beside = FindEarlier(tenant, request_id, spec_hash);
      if (beside.ok() && *beside == nullptr) beside = status;
      created(std::move(beside));
    });
  };
  engine_.Create(std::move(workflow), needs->bytes, on_stored);
}

// Blobs are pinned before they are looked for: nothing evicts them in between.
absl::StatusOr<WorkflowNeeds> WorkflowApi::PinInputs(const std::string& owner,
                                                     const StoredWorkflow& workflow) {
  const std::string& tenant = workflow.workflow.tenant();
  const v1::StepList& steps = workflow.spec.steps();
  WorkflowNeeds needs;
  const auto pin = [&](const std::vector<Digest>& digests) {
    std::vector<std::string> hashes;
    for (const Digest& digest : digests) hashes.push_back(digest.hash());
    pins_.Add(owner, hashes);
    needs.hashes.insert(needs.hashes.end(), hashes.begin(), hashes.end());
    return CheckBlobs(tenant, digests, blobs_.missing);
  };
  QUENCH_RETURN_IF_ERROR(pin(InputsOf(steps)));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Digest> samples,
                          SamplesIn(tenant, steps, blobs_.read, max_workflow_bytes_));
  QUENCH_RETURN_IF_ERROR(pin(samples));
  needs.bytes = BytesOf(workflow.spec, samples.size());
  return needs;
}

// Null: the id is free.
absl::StatusOr<ViewPtr> WorkflowApi::FindEarlier(const std::string& tenant,
                                                 const std::string& request_id,
                                                 const std::string& spec_hash) {
  QUENCH_ASSIGN_OR_RETURN(const std::optional<StoredRequest> found,
                          store_.FindRequest(tenant, request_id));
  if (!found) return nullptr;
  if (found->spec_hash != spec_hash) return RequestIdInUse(request_id);
  return FindById(tenant, found->id, nullptr);
}

absl::StatusOr<ViewPtr> WorkflowApi::FindById(const std::string& tenant, const std::string& id,
                                              const std::weak_ptr<Watcher>* watcher) {
  Board::Watched watched;
  if (watcher != nullptr) watched = board_.Watch(tenant, id, *watcher);
  ViewPtr live = watcher == nullptr ? board_.Find(id) : watched.view;
  if (live != nullptr) {
    if (!tenant.empty() && live->header.tenant() != tenant) return NoSuchWorkflow(id);
    return live;
  }
  QUENCH_ASSIGN_OR_RETURN(const StoredWorkflow stored, store_.Get(tenant, id));
  if (watcher != nullptr && !watched.watching && !HasEnded(stored.workflow.state())) {
    // It is about to be on the board, or its end about to be in the store: nobody would be told.
    return rpc::WithRetryAfter(
        rpc::Error(rpc::Reason::kUnavailable, "the workflow is just being taken up: ask again"),
        std::chrono::milliseconds(100));
  }
  return std::make_shared<WorkflowView>(ViewOf(stored.workflow));
}

absl::StatusOr<ViewPtr> WorkflowApi::Get(const std::string& name, const StepContext& step) {
  return FindById(SeenBy(step), IdOf(name), nullptr);
}

absl::StatusOr<ViewPtr> WorkflowApi::Watch(const std::string& name, const StepContext& step,
                                           const std::weak_ptr<Watcher>& watcher) {
  return FindById(SeenBy(step), IdOf(name), &watcher);
}

absl::StatusOr<v1::ListWorkflowStepsResponse> WorkflowApi::ListSteps(
    const v1::ListWorkflowStepsRequest& request, const StepContext& step) {
  Violations violations;
  const std::vector<v1::State> states = CheckedStates(request.states(), &violations);
  const int most = CheckedPageSize(request.page_size(), kUsualStepsPage, &violations);
  size_t next = 0;
  const std::string& token = request.page_token();
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), next);
  if (!token.empty() && (error != std::errc() || end != token.data() + token.size()))
    violations.Add("page_token", "was not returned with a page");
  QUENCH_RETURN_IF_ERROR(violations.Finish());
  QUENCH_ASSIGN_OR_RETURN(const ViewPtr view,
                          FindById(SeenBy(step), IdOf(request.name()), nullptr));
  v1::ListWorkflowStepsResponse response;
  size_t bytes = 0;
  for (; next < view->steps.size(); ++next) {
    const v1::Step& value = *view->steps[next].step;
    const bool wanted =
        states.empty() || std::find(states.begin(), states.end(), value.state()) != states.end();
    if (!wanted) continue;
    bytes += value.ByteSizeLong();
    const bool full = response.steps_size() == most || bytes > kMostBytes;
    if (full && !response.steps().empty()) break;
    *response.add_steps() = value;
  }
  if (next < view->steps.size()) response.set_next_page_token(std::to_string(next));
  return response;
}

absl::StatusOr<v1::ListWorkflowsResponse> WorkflowApi::List(const v1::ListWorkflowsRequest& request,
                                                            const StepContext& step) {
  QUENCH_ASSIGN_OR_RETURN(const std::string tenant, ListedTenant(request.tenant(), step));
  Violations violations;
  ListQuery query;
  query.tenant = tenant;
  query.states = CheckedStates(request.states(), &violations);
  query.page_size = CheckedPageSize(request.page_size(), kUsualPage, &violations);
  query.page_token = request.page_token();
  std::string filter_problem, order_problem;
  query.filter = ParseFilter(request.filter(), &filter_problem);
  query.order = ParseOrder(request.order_by(), &order_problem);
  if (!filter_problem.empty()) violations.Add("filter", filter_problem);
  if (!order_problem.empty()) violations.Add("order_by", order_problem);
  QUENCH_RETURN_IF_ERROR(violations.Finish());
  QUENCH_ASSIGN_OR_RETURN(WorkflowPage page, store_.List(query));
  v1::ListWorkflowsResponse response;
  for (v1::Workflow& workflow : page.workflows) response.add_workflows()->Swap(&workflow);
  response.set_next_page_token(page.next_page_token);
  return response;
}

absl::StatusOr<std::string> WorkflowApi::OwnerOf(const std::string& id, const StepContext& step) {
  std::string tenant = SeenBy(step);
  if (!tenant.empty()) return tenant;
  QUENCH_ASSIGN_OR_RETURN(const ViewPtr view, FindById("", id, nullptr));
  return view->header.tenant();
}

void WorkflowApi::Cancel(const std::string& name, const StepContext& step, const Done& done) {
  const std::string id = IdOf(name);
  const absl::StatusOr<std::string> owner = OwnerOf(id, step);
  if (!owner.ok()) {
    done(owner.status());
    return;
  }
  const std::string& tenant = *owner;
  engine_.Cancel(tenant, id, [this, tenant, id, done](const absl::Status& status) {
    if (!absl::IsNotFound(status)) {
      done(status);
      return;
    }
    // One that has ended stays as it is.
    run_([this, tenant, id, done] { done(store_.Get(tenant, id).status()); });
  });
}

absl::StatusOr<StoredWorkflow> WorkflowApi::Reopened(const std::string& tenant,
                                                     const std::string& id) {
  QUENCH_ASSIGN_OR_RETURN(StoredWorkflow stored, store_.Get(tenant, id));
  if (!HasEnded(stored.workflow.state())) return NotEnded(id);
  if (stored.workflow.state() != v1::STATE_SUCCEEDED) {
    QUENCH_ASSIGN_OR_RETURN(stored.spec, WriteOutAgain(stored));
  }
  return stored;
}

void WorkflowApi::Retry(const std::string& name, const StepContext& step, const Done& done) {
  const std::string id = IdOf(name);
  absl::StatusOr<StoredWorkflow> stored = Reopened(SeenBy(step), id);
  if (!stored.ok()) {
    done(stored.status());
    return;
  }
  // The pins belong to this call: another may retry the workflow at the same time.
  const std::string owner = id + ":" + NewWorkflowId();
  absl::StatusOr<WorkflowNeeds> needs = PinInputs(owner, *stored);
  if (!needs.ok()) {
    pins_.Remove(owner);
    done(needs.status());
    return;
  }
  std::vector<std::string> outputs;
  for (const v1::Step& each : stored->workflow.steps()) {
    for (std::string& hash : HashesOf(each)) outputs.push_back(std::move(hash));
  }
  pins_.Add(owner, outputs);
  needs->hashes.insert(needs->hashes.end(), outputs.begin(), outputs.end());
  engine_.Retry(*std::move(stored), *std::move(needs),
                [this, owner, done](const absl::Status& status) {
                  pins_.Remove(owner);
                  done(status);
                });
}

// Presets may have become other steps since; what the workflow has done would be taken for theirs.
absl::StatusOr<v1::WorkflowSpec> WorkflowApi::WriteOutAgain(const StoredWorkflow& ended) {
  if (ended.asked.work_case() == v1::WorkflowSpec::WORK_NOT_SET)
    return absl::FailedPreconditionError("the workflow ended before this gateway kept what it was");
  absl::StatusOr<v1::WorkflowSpec> spec = Expand(ended.asked, max_workflow_bytes_);
  const bool same =
      spec.ok() && std::equal(spec->steps().steps().begin(), spec->steps().steps().end(),
                              ended.workflow.steps().begin(), ended.workflow.steps().end(),
                              [](const v1::StepSpec& asked, const v1::Step& step) {
                                return asked.name() == step.name() &&
                                       RowOf(asked)->method == step.method();
                              });
  if (same) return spec;
  return absl::FailedPreconditionError(
      "this Quench makes other steps of the workflow than the one that ran it: create it again");
}

void WorkflowApi::Delete(const std::string& name, const StepContext& step, const Done& done) {
  const std::string id = IdOf(name);
  const absl::StatusOr<std::string> owner = OwnerOf(id, step);
  if (!owner.ok()) {
    done(owner.status());
    return;
  }
  store_.Delete(*owner, id, [this, id, done](const absl::Status& status) {
    if (status.ok()) pins_.Release(id);
    done(status);
  });
}

google::longrunning::Operation OperationOf(const WorkflowView& view) {
  const v1::Workflow& header = view.header;
  google::longrunning::Operation operation;
  if (!header.name().empty()) operation.set_name(OperationName(IdOf(header.name())));
  v1::WorkflowMetadata metadata;
  metadata.set_workflow(header.name());
  metadata.set_state(header.state());
  *metadata.mutable_create_time() = header.create_time();
  if (header.has_start_time()) *metadata.mutable_start_time() = header.start_time();
  if (header.has_end_time()) *metadata.mutable_end_time() = header.end_time();
  metadata.set_revision(header.revision());
  *metadata.mutable_counts() = header.counts();
  operation.mutable_metadata()->PackFrom(metadata);
  operation.set_done(view.ended());
  if (header.state() == v1::STATE_SUCCEEDED) {
    operation.mutable_response()->PackFrom(FullMessage(view));
  } else if (view.ended()) {
    *operation.mutable_error() = header.error();
  }
  return operation;
}

}  // namespace quench::gateway
