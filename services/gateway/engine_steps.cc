#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/rpc/errors.h"
#include "common/steps/digests.h"
#include "services/gateway/engine.h"
#include "services/gateway/traces.h"

namespace quench::gateway {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kLongestRetry = std::chrono::minutes(1);  // whatever the service says

step::v1::StepOptions* OptionsOf(google::protobuf::Message* request) {
  const auto* field = request->GetDescriptor()->FindFieldByName("step");
  return static_cast<step::v1::StepOptions*>(
      request->GetReflection()->MutableMessage(request, field));
}

// Whether there is something to do, or to wait for.
bool IsDue(const LiveStep& step) {
  return step.rerunning || step.value->state() == v1::STATE_QUEUED ||
         step.value->state() == v1::STATE_RUNNING;
}

}  // namespace

absl::Status Engine::MakeRequest(LiveWorkflow& workflow, int step) {
  LiveStep& live = workflow.steps[step];
  QUENCH_ASSIGN_OR_RETURN(live.request,
                          BindRequest(*live.spec, [&](const auto& from, const auto& output) {
                            return workflow.FindOutput(from, output);
                          }));
  step::v1::StepOptions* options = OptionsOf(live.request.get());
  options->set_tenant(workflow.header.tenant());
  options->set_cache(workflow.spec.cache());
  options->set_salt(workflow.spec.salt());
  live.key.clear();
  if (workflow.spec.cache() != step::v1::CACHE_MODE_OFF) {
    // Steps are told apart as services do it, whatever their build and CPU. Requests to do the work
    // again share it with others that want that too.
    live.key = steps::StepKey(live.row->method, *live.request, workflow.header.tenant(), "", "") +
               step::v1::CacheMode_Name(workflow.spec.cache());
  }
  return absl::OkStatus();
}

// All that it waited for is there: it waits for its turn.
void Engine::Ready(const WorkflowPtr& workflow, int step) {
  LiveStep& live = workflow->steps[step];
  if (!IsDue(live)) return;
  ++live.epoch;
  if (!runner_.Serves(live.row->service_label)) {
    Fail(workflow, step,
         rpc::Error(
             rpc::Reason::kUnavailable,
             fmt::format("service `{}` is not configured at this gateway", live.row->service)));
    return;
  }
  if (live.request == nullptr) {
    if (const absl::Status made = MakeRequest(*workflow, step); !made.ok()) {
      Fail(workflow, step, made);
      return;
    }
  }
  if (!live.value->has_ready_time()) *workflow->Edit(step).mutable_ready_time() = Now();
  if (live.order == 0) live.order = next_order_++;
  Touch(workflow);
  if (Follow(workflow, step)) return;
  Enqueue(*workflow, step, loop_.UnixMicroseconds());
}

// Whether an identical step runs already, whose result it takes.
bool Engine::Follow(const WorkflowPtr& workflow, int step) {
  LiveStep& live = workflow->steps[step];
  const auto twin = by_key_.find(live.key);
  if (live.key.empty() || twin == by_key_.end()) return false;
  runs_.at(twin->second).followers.push_back({workflow, step, loop_.Now()});
  live.run = twin->second;
  return true;
}

void Engine::Pump() {
  if (draining_) return;
  const auto now = loop_.Now();
  for (int i = 0; i < FairQueue::kServices; ++i) {
    const auto service = static_cast<metrics::Service>(i);
    ServiceLoad& load = loads_[i];
    while (load.CanStart(now)) {
      const std::optional<FairQueue::Entry> entry = queue_.Pop(service);
      if (!entry) break;
      const WorkflowPtr workflow = workflows_.at(entry->ref.workflow);
      if (!Follow(workflow, entry->ref.step)) Launch(workflow, entry->ref.step);
    }
    if (load.NextChance(now) > now && !chance_planned_[i]) {
      chance_planned_[i] = true;
      After(std::chrono::ceil<milliseconds>(load.NextChance(now) - now),
            [this, i] { chance_planned_[i] = false; });
    }
  }
}

void Engine::Launch(const WorkflowPtr& workflow, int step) {
  LiveStep& live = workflow->steps[step];
  const uint64_t id = next_run_++;
  Run& run = runs_[id];
  run.workflow = workflow;
  run.step = step;
  run.service = live.row->service_label;
  run.last_event = loop_.Now();
  run.start_us = loop_.UnixMicroseconds();
  live.run = id;
  if (!live.key.empty()) by_key_[live.key] = id;
  loads_[static_cast<size_t>(run.service)].Started();
  queue_.Started(workflow->header.tenant(), run.service);
  StepCall call;
  call.run = id;
  call.row = live.row;
  call.request_id = fmt::format("{}.{}.{}", workflow->id, step, live.value->attempt() + 1);
  call.traceparent = TraceparentOf(*workflow, *live.value);
  std::shared_ptr<google::protobuf::Message> request(live.request->New());
  request->CopyFrom(*live.request);
  OptionsOf(request.get())->set_request_id(call.request_id);
  call.request = std::move(request);
  runner_.Start(call, [this, alive = std::weak_ptr<bool>(alive_), id](StepEvent event) {
    if (alive.expired()) return;
    Post([this, id, event = std::move(event)] { OnEvent(id, event); });
  });
}

void Engine::OnEvent(uint64_t id, const StepEvent& event) {
  const auto found = runs_.find(id);
  if (halted_ || found == runs_.end()) return;
  Run& run = found->second;
  const LiveStep& live = run.workflow->steps[run.step];
  if (event.kind == StepEvent::kDone) {
    loads_[static_cast<size_t>(run.service)].Ended();
    queue_.Ended(run.workflow->header.tenant(), run.service);
    if (event.result == nullptr || !event.result->execution.cache_hit()) CountSeconds(run);
    Run ended = std::move(run);
    runs_.erase(found);
    if (ended.abandoned) {
      if (!event.status.ok()) return;
      options_.registry->Get(metrics::kStepsRefused, live.row->stage).Increment();
      spdlog::warn("workflow={} step={}: a late completion of {} is refused", ended.workflow->id,
                   live.spec->name(), ended.server);
      return;
    }
    if (!live.key.empty()) by_key_.erase(live.key);
    if (event.status.ok() && !ended.accepted) OnAccepted(ended);
    OnDone(std::move(ended), event.status, event.result.get());
    return;
  }
  if (event.kind == StepEvent::kUnstored) {
    OnUnstored(id, run, event.status);
    return;
  }
  if (run.abandoned) return;
  run.last_event = loop_.Now();
  if (event.kind == StepEvent::kAccepted) {
    run.server = event.server;
    if (!run.accepted) OnAccepted(run);
  } else {
    v1::Step& step = run.workflow->EditProgress(run.step);
    run.log_lines = AddLogOf(event.progress, run.log_lines, loop_.UnixMicroseconds(), &step);
    *step.mutable_progress() = event.progress;
    step.mutable_progress()->clear_log();
    step.mutable_progress()->clear_log_lines();
    Touch(run.workflow);
  }
}

void Engine::OnAccepted(Run& run) {
  loads_[static_cast<size_t>(run.service)].Accepted();
  Begin(run);
}

std::string Engine::TraceparentOf(const LiveWorkflow& workflow, const v1::Step& step) const {
  if (options_.tracer == nullptr) return workflow.traceparent;
  return StepTraceparent(workflow.traceparent, workflow.header, step);
}

// A step that runs, or that is done with another's run.
void Engine::Begin(Run& run) {
  LiveWorkflow& workflow = *run.workflow;
  LiveStep& live = workflow.steps[run.step];
  run.accepted = true;
  run.accepted_at = loop_.Now();
  live.refused_since_us = 0;
  live.without_device.clear();
  live.without_memory.clear();
  live.device_rounds = 0;
  const int64_t now = loop_.UnixMicroseconds();
  v1::Step& step = workflow.Edit(run.step);
  options_.registry->Get(metrics::kQueuedSeconds, live.row->stage)
      .Observe(static_cast<double>(now - Microseconds(step.ready_time())) / 1e6,
               TraceparentOf(workflow, step));
  step.set_attempt(step.attempt() + 1);
  step.clear_waiting_reason();
  Log(workflow, run.step,
      run.server.empty() ? "shares the run of an equal step" : "taken by " + run.server);
  if (!live.rerunning) {
    step.set_state(v1::STATE_RUNNING);
    *step.mutable_start_time() = TimestampOf(now);
  }
  if (workflow.header.state() == v1::STATE_QUEUED) {
    SetState(workflow, v1::STATE_RUNNING);
    if (!workflow.header.has_start_time()) {
      *workflow.header.mutable_start_time() = TimestampOf(now);
    }
  }
  Touch(run.workflow);
}

// `run` is no longer among runs_.
void Engine::OnDone(Run run, const absl::Status& status, const StepResult* result) {
  const WorkflowPtr workflow = run.workflow;
  LiveStep& live = workflow->steps[run.step];
  live.run = 0;
  Touch(workflow);
  std::vector<Follower> followers = std::move(run.followers);
  if (status.ok() && result != nullptr) {
    Succeed(workflow, run.step, *result);
    for (const auto& [other, step, since] : followers) {
      LiveStep& follower = other->steps[step];
      follower.run = 0;
      if (!IsDue(follower)) continue;
      options_.registry->Get(metrics::kStepsMerged, follower.row->stage).Increment();
      Run shared;  // begun and ended at once
      shared.workflow = other;
      shared.step = step;
      shared.service = run.service;
      Begin(shared);
      Succeed(other, step, *result);
    }
    return;
  }
  const Ending ending = status.ok() ? Ending::kFinal : Classify(status, run.accepted);
  switch (ending) {
    case Ending::kShed: {
      const milliseconds delay = std::clamp(*rpc::RetryAfterOf(status), {}, kLongestRetry);
      CountRetry(live, metrics::RetryReason::kShed);
      queue_.Refused(workflow->header.tenant(), run.service);
      if (WaitsAside(run, status, delay, &followers)) break;
      SetWaitingReason(*workflow, run.step, ReasonToWait(live, status));
      loads_[static_cast<size_t>(run.service)].Shed(loop_.Now(), delay);
      Requeue(workflow, run.step);
      break;
    }
    case Ending::kUnreached:
      Unreached(run, status);
      break;
    case Ending::kNoDevice:
      LacksDevice(run, status);
      break;
    case Ending::kLost:
    case Ending::kCrashed:
      RetryStep(run, status, ending);
      break;
    case Ending::kDrained:
      Drained(run, status);
      break;
    case Ending::kNodeFault:
      NodeFailed(run, status);
      break;
    case Ending::kMissingBlob:
      NoteFailure(run, status);
      Rewind(workflow, run.step, status);
      break;
    case Ending::kFinal: {
      const absl::Status error =
          status.ok() ? Internal("the service ended the step without a result") : status;
      NoteFailure(run, error);
      Fail(workflow, run.step, error);
      // How long a step may take is its own workflow's to say: others do it again.
      if (rpc::ReasonOf(error) == rpc::ReasonName(rpc::Reason::kStepTimedOut)) break;
      for (const auto& [other, step, since] : std::exchange(followers, {})) {
        other->steps[step].run = 0;
        if (IsDue(other->steps[step])) Fail(other, step, error);
      }
    }
  }
  ReleaseFollowers(followers);
}

void Engine::ReleaseFollowers(const std::vector<Follower>& followers) {
  for (const auto& [workflow, step, since] : followers) {
    workflow->steps[step].run = 0;
    Ready(workflow, step);
  }
}

void Engine::Succeed(const WorkflowPtr& workflow, int step, const StepResult& result) {
  LiveStep& live = workflow->steps[step];
  v1::Step& value = workflow->Edit(step);
  value.clear_progress();
  value.clear_outputs();
  for (const v1::StepOutput& output : result.outputs) *value.add_outputs() = output;
  *value.mutable_execution() = result.execution;
  value.set_cache_hit(result.execution.cache_hit());
  Log(*workflow, step, LogTextOf(result.execution));
  pins_.Add(workflow->id, HashesOf(value));
  live.request = nullptr;
  live.faulty_since_us = 0;
  std::vector<int> freed = live.dependents;
  if (live.rerunning) {
    live.rerunning = false;
    freed = std::exchange(live.waiters, {});
  } else {
    EndStep(workflow, step, v1::STATE_SUCCEEDED, absl::OkStatus());
  }
  for (const int waiting : freed) {
    LiveStep& waiter = workflow->steps[waiting];
    if (--waiter.unmet == 0) Ready(workflow, waiting);
  }
  Touch(workflow);
}

void Engine::Fail(const WorkflowPtr& workflow, int step, const absl::Status& status) {
  LiveStep& live = workflow->steps[step];
  if (std::exchange(live.rerunning, false)) {
    const absl::Status why = Annotate(
        status,
        fmt::format("blobs of step `{}` are gone and it cannot be done again", live.spec->name()));
    for (const int waiter : std::exchange(live.waiters, {})) {
      if (workflow->steps[waiter].rerunning || !HasEnded(workflow->steps[waiter].value->state())) {
        Fail(workflow, waiter, why);
      }
    }
    return;
  }
  if (!workflow->header.has_error()) {
    *workflow->header.mutable_error() =
        ToProto(Annotate(status, fmt::format("step `{}`", live.spec->name())));
  }
  EndStep(workflow, step, v1::STATE_FAILED, status);
  if (workflow->spec.fail_fast()) {
    CancelNow(workflow, rpc::Error(rpc::Reason::kCancelled,
                                   fmt::format("step `{}` failed", live.spec->name())));
  } else {
    CancelDependents(
        workflow, step,
        rpc::Error(rpc::Reason::kCancelled,
                   fmt::format("step `{}` failed, which it needs", live.spec->name())));
  }
}

// Steps stand behind what they depend on: one pass finds them all.
void Engine::CancelDependents(const WorkflowPtr& workflow, int step, const absl::Status& why) {
  std::set<int> ended = {step};
  for (size_t i = static_cast<size_t>(step) + 1; i < workflow->steps.size(); ++i) {
    const LiveStep& live = workflow->steps[i];
    const bool depends = std::any_of(live.dependencies.begin(), live.dependencies.end(),
                                     [&](int each) { return ended.contains(each); });
    if (!depends || HasEnded(live.value->state())) continue;
    ended.insert(static_cast<int>(i));
    EndStep(workflow, static_cast<int>(i), v1::STATE_CANCELLED, why);
  }
}

void Engine::EndStep(const WorkflowPtr& workflow, int step, v1::State state,
                     const absl::Status& why) {
  Detach(workflow, step);
  v1::Step& value = workflow->Edit(step);
  value.set_state(state);
  value.clear_progress();
  value.clear_waiting_reason();
  *value.mutable_end_time() = Now();
  if (!why.ok()) {
    *value.mutable_error() = ToProto(why);
    Log(*workflow, step,
        fmt::format("{}: {}", state == v1::STATE_FAILED ? "failed" : "cancelled", MessageOf(why)));
  }
  if (options_.tracer != nullptr) {
    options_.tracer->Record(StepSpan(workflow->traceparent, workflow->header, value));
  }
  workflow->steps[step].request = nullptr;
  --workflow->open;
  --open_steps_[workflow->header.tenant()];
  Touch(workflow);
}

// Nothing is done for the step any more.
void Engine::Detach(const WorkflowPtr& workflow, int step) {
  LiveStep& live = workflow->steps[step];
  ++live.epoch;
  queue_.Remove({workflow->id, step});
  const auto found = runs_.find(std::exchange(live.run, 0));
  if (found == runs_.end()) return;
  Run& run = found->second;
  if (run.workflow != workflow || run.step != step) {
    std::erase_if(run.followers, [&](const Follower& each) {
      return each.workflow == workflow && each.step == step;
    });
    return;
  }
  const std::vector<Follower> followers = std::exchange(run.followers, {});
  Abandon(found->first, run);
  ReleaseFollowers(followers);
}

// The call is ended; its slot counts until it has.
void Engine::Abandon(uint64_t id, Run& run) {
  if (std::exchange(run.abandoned, true)) return;
  const auto key = by_key_.find(run.workflow->steps[run.step].key);
  if (key != by_key_.end() && key->second == id) by_key_.erase(key);
  runner_.Cancel(id);
}

void Engine::ShowQueue() {
  for (const StepRow& row : StepTable()) {
    int depth = queue_.Depth(row.stage);
    for (const auto& [service, step] : aside_) depth += step.stage == row.stage ? 1 : 0;
    int& shown = shown_depth_[static_cast<size_t>(row.stage)];
    if (std::exchange(shown, depth) == depth) continue;
    options_.registry->Get(metrics::kQueueDepth, row.stage).Set(depth);
  }
}

void Engine::ShowAges() {
  const int64_t now = loop_.UnixMicroseconds();
  for (const StepRow& row : StepTable()) {
    int64_t ready = queue_.OldestReady(row.stage).value_or(now);
    for (const auto& [service, step] : aside_) {
      if (step.stage == row.stage) ready = std::min(ready, step.ready_us);
    }
    metrics::Gauge*& shown = shown_age_[static_cast<size_t>(row.stage)];
    if (shown == nullptr) shown = &options_.registry->Get(metrics::kQueueOldestAge, row.stage);
    shown->Set(static_cast<double>(now - ready) / 1e6);
  }
}

}  // namespace quench::gateway
