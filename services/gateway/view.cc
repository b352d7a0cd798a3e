#include "services/gateway/view.h"

#include <grpcpp/support/status.h>

#include "common/rpc/errors.h"

namespace quench::gateway {
namespace {

void DropBlobLists(v1::Workflow* workflow) {
  for (v1::Step& step : *workflow->mutable_steps()) {
    for (v1::StepOutput& output : *step.mutable_outputs()) output.mutable_module()->clear_blobs();
  }
}

void DropLogs(v1::Workflow* workflow) {
  for (v1::Step& step : *workflow->mutable_steps()) step.clear_log();
}

void DropAttempts(v1::Workflow* workflow) {
  for (v1::Step& step : *workflow->mutable_steps()) step.clear_failed_attempts();
}

void DropDetails(v1::Workflow* workflow) {
  for (v1::Step& step : *workflow->mutable_steps()) {
    if (step.has_error()) step.mutable_error()->clear_details();
    step.clear_execution();
  }
}

void DropOutputs(v1::Workflow* workflow) {
  for (v1::Step& step : *workflow->mutable_steps()) {
    step.clear_outputs();
    step.clear_error();
  }
}

}  // namespace

WorkflowView ViewOf(const v1::Workflow& stored) {
  WorkflowView view;
  view.header = stored;
  view.header.clear_steps();
  view.known_since = stored.revision();
  for (const v1::Step& step : stored.steps()) {
    view.steps.push_back({std::make_shared<v1::Step>(step), stored.revision()});
  }
  return view;
}

v1::Workflow FullMessage(const WorkflowView& view, size_t most_bytes) {
  v1::Workflow workflow = view.header;
  for (const StepView& step : view.steps) *workflow.add_steps() = *step.step;
  for (auto* drop : {DropLogs, DropBlobLists, DropAttempts, DropDetails, DropOutputs}) {
    if (workflow.ByteSizeLong() <= most_bytes) break;
    workflow.set_steps_truncated(true);
    drop(&workflow);
  }
  while (workflow.steps_size() > 0 && workflow.ByteSizeLong() > most_bytes)
    workflow.mutable_steps()->DeleteSubrange(workflow.steps_size() / 2,
                                             workflow.steps_size() - workflow.steps_size() / 2);
  return workflow;
}

v1::WatchWorkflowEvent EventSince(const WorkflowView& view, int64_t revision) {
  v1::WatchWorkflowEvent event;
  event.set_revision(view.header.revision());
  if (revision > 0 && revision >= view.known_since && revision <= view.header.revision()) {
    v1::WorkflowChange* change = event.mutable_change();
    if (revision == view.header.revision() && !view.ended()) return event;  // nothing changed
    *change->mutable_workflow() = view.header;
    for (const StepView& step : view.steps) {
      if (step.revision > revision) *change->add_steps() = *step.step;
    }
    if (change->ByteSizeLong() <= kMostBytes) return event;
  }
  *event.mutable_snapshot() = FullMessage(view);
  return event;
}

v1::Counts CountsOf(const std::vector<StepView>& steps) {
  v1::Counts counts;
  for (const StepView& view : steps) {
    const v1::Step& step = *view.step;
    if (step.state() == v1::STATE_QUEUED) counts.set_queued(counts.queued() + 1);
    if (step.state() == v1::STATE_RUNNING) counts.set_running(counts.running() + 1);
    if (step.state() == v1::STATE_SUCCEEDED) counts.set_succeeded(counts.succeeded() + 1);
    if (step.state() == v1::STATE_FAILED) counts.set_failed(counts.failed() + 1);
    if (step.state() == v1::STATE_CANCELLED) counts.set_cancelled(counts.cancelled() + 1);
    if (step.state() == v1::STATE_SUCCEEDED && step.cache_hit()) {
      counts.set_cache_hits(counts.cache_hits() + 1);
    }
  }
  return counts;
}

google::rpc::Status ToProto(const absl::Status& status) {
  google::rpc::Status proto;
  if (!status.ok()) proto.ParseFromString(rpc::ToGrpc(status).error_details());
  return proto;
}

}  // namespace quench::gateway
