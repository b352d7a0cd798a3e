#include "services/gateway/live_workflow.h"

#include <algorithm>

#include "services/gateway/expand.h"

namespace quench::gateway {
namespace {

v1::Workflow WithoutSteps(v1::Workflow workflow) {
  workflow.clear_steps();
  return workflow;
}

}  // namespace

LiveWorkflow::LiveWorkflow(StoredWorkflow stored)
    : id(IdOf(stored.workflow.name())),
      spec(std::move(stored.spec)),
      traceparent(std::move(stored.traceparent)),
      header(WithoutSteps(stored.workflow)),
      stored_revision(stored.workflow.revision()),
      known_since(stored.workflow.revision()) {
  const std::vector<std::vector<int>> dependencies = DependenciesOf(spec.steps());
  steps.resize(dependencies.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    LiveStep& step = steps[i];
    step.spec = &spec.steps().steps(static_cast<int>(i));
    step.row = RowOf(*step.spec);
    step.value = std::make_shared<v1::Step>(stored.workflow.steps(static_cast<int>(i)));
    step.revision = stored_revision;
    step.failures = FailuresOf(*step.value);
    step.dependencies = dependencies[i];
    if (!HasEnded(step.value->state())) ++open;
    for (const int dependency : dependencies[i]) {
      steps[dependency].dependents.push_back(static_cast<int>(i));
      if (steps[dependency].value->state() != v1::STATE_SUCCEEDED) ++step.unmet;
    }
  }
}

v1::Step& LiveWorkflow::Edit(int step) {
  changed = true;
  steps[step].unsaved = true;
  return EditProgress(step);
}

v1::Step& LiveWorkflow::EditProgress(int step) {
  LiveStep& live = steps[step];
  progressed = true;
  live.touched = true;
  if (live.shared) {
    live.value = std::make_shared<v1::Step>(*live.value);
    live.shared = false;
  }
  return *live.value;
}

ViewPtr LiveWorkflow::ViewNow() const {
  auto view = std::make_shared<WorkflowView>();
  view->known_since = known_since;
  for (const LiveStep& step : steps) view->steps.push_back({step.value, step.revision});
  view->header = header;
  return view;
}

ViewPtr LiveWorkflow::TakeView() {
  header.set_revision(header.revision() + 1);
  std::vector<StepView> views;
  for (LiveStep& step : steps) {
    if (step.touched) step.revision = header.revision();
    step.touched = false;
    step.shared = true;
    views.push_back({step.value, step.revision});
  }
  *header.mutable_counts() = CountsOf(views);
  progressed = false;
  return ViewNow();
}

WorkflowUpdate LiveWorkflow::TakeUpdate(const ViewPtr& view) {
  WorkflowUpdate update;
  update.header = view->header;
  update.previous_revision = stored_revision;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!steps[i].unsaved) continue;
    steps[i].unsaved = false;
    update.steps.emplace_back(static_cast<int>(i), view->steps[i].step);
  }
  if (header.has_outputs_expire_time()) {
    for (const StepView& step : view->steps) AddOutputs(*step.step, &update.kept);
  }
  changed = false;
  return update;
}

void LiveWorkflow::Unsave(const WorkflowUpdate& update) {
  for (const auto& [position, step] : update.steps) steps[position].unsaved = true;
  changed = true;
}

const v1::StepOutput* LiveWorkflow::FindOutput(const std::string& step,
                                               const std::string& output) const {
  for (const LiveStep& live : steps) {
    if (live.spec->name() != step) continue;
    for (const v1::StepOutput& each : live.value->outputs()) {
      if (each.name() == output) return &each;
    }
  }
  return nullptr;
}

int LiveWorkflow::ProducerOf(const std::string& hash, int step) const {
  for (int i = step - 1; i >= 0; --i) {
    const std::vector<std::string> hashes = HashesOf(*steps[i].value);
    if (std::find(hashes.begin(), hashes.end(), hash) != hashes.end()) return i;
  }
  return -1;
}

StoredWorkflow NewWorkflow(const std::string& id, const std::string& tenant,
                           const std::string& request_id, const v1::WorkflowSpec& spec,
                           const std::string& spec_hash, int64_t now_us) {
  StoredWorkflow stored;
  v1::Workflow& workflow = stored.workflow;
  workflow.set_name(WorkflowName(id));
  workflow.set_tenant(tenant);
  workflow.set_request_id(request_id);
  workflow.set_title(spec.title());
  *workflow.mutable_labels() = spec.labels();
  workflow.set_priority(spec.priority());
  if (spec.has_fleet()) *workflow.mutable_fleet() = spec.fleet();
  workflow.set_state(v1::STATE_QUEUED);
  *workflow.mutable_create_time() = TimestampOf(now_us);
  workflow.set_revision(1);
  workflow.mutable_counts()->set_queued(spec.steps().steps_size());
  const std::vector<std::vector<int>> dependencies = DependenciesOf(spec.steps());
  for (int i = 0; i < spec.steps().steps_size(); ++i) {
    v1::Step* step = workflow.add_steps();
    step->set_name(spec.steps().steps(i).name());
    step->set_method(RowOf(spec.steps().steps(i))->method);
    step->set_state(v1::STATE_QUEUED);
    step->set_max_attempts(kLostAttempts);
    for (const int dependency : dependencies[i]) {
      step->add_depends_on(spec.steps().steps(dependency).name());
    }
  }
  stored.spec = spec;
  stored.spec_hash = spec_hash;
  return stored;
}

std::vector<std::string> HashesOf(const v1::Step& step) {
  std::vector<BlobId> blobs;
  AddOutputs(step, &blobs);
  std::vector<std::string> hashes;
  for (BlobId& blob : blobs) hashes.push_back(std::move(blob.hash));
  return hashes;
}

void AddOutputs(const v1::Step& step, std::vector<BlobId>* blobs) {
  for (const v1::StepOutput& output : step.outputs()) {
    for (const Digest& digest : DigestsIn(output)) {
      blobs->push_back({digest.hash(), static_cast<uint64_t>(digest.size_bytes())});
    }
  }
}

}  // namespace quench::gateway
