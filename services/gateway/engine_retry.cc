// Steps that wait for a service, or begin again: what a failure means for a step, and when it has its next attempt.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "common/runner/device.h"
#include "common/steps/gpus.h"
#include "services/gateway/engine.h"

namespace quench::gateway {

using std::chrono::milliseconds;

namespace {

constexpr int kFailedAttemptsKept = 10;
constexpr auto kUnreachedPause = milliseconds(500);
constexpr auto kLongestPause = milliseconds(5000);
constexpr auto kAskNextServer = milliseconds(20);

// The service that such a step waits for: "an analyser with a GPU".
std::string WantedService(const LiveStep& step) {
  const std::string& service = step.row->service;
  const std::string device = steps::DeviceOf(*step.request);
  const std::string article =
      std::string("aeiou").find(service[0]) == std::string::npos ? "a" : "an";
  const uint32_t gpu = GpuOf(device).value_or(0);
  return fmt::format("{} {} with {}", article, service,
                     gpu == 0 ? "a GPU" : fmt::format("{} GPUs", gpu + 1));
}

// `blobs/{hash}/{size}` of what is missing.
std::set<std::string> MissingHashes(const absl::Status& status) {
  std::set<std::string> hashes;
  for (const rpc::PreconditionViolation& violation : rpc::PreconditionsOf(status)) {
    if (violation.type != "MISSING") continue;
    const size_t start = violation.subject.find('/') + 1;
    hashes.insert(violation.subject.substr(start, violation.subject.find('/', start) - start));
  }
  return hashes;
}

}  // namespace

// The work is done and its result in hand: no fault of the store makes it undone.
void Engine::OnUnstored(uint64_t id, Run& run, const absl::Status& status) {
  if (run.abandoned) {
    runner_.Cancel(id);
    return;
  }
  const LiveStep& live = run.workflow->steps[run.step];
  CountSeconds(run);
  if (run.unstored_since_us == 0) {
    run.unstored_since_us = loop_.UnixMicroseconds();
    spdlog::warn("workflow={} step={}: its result waits for the store: {}", run.workflow->id,
                 live.spec->name(), MessageOf(status));
  }
  const absl::Status end = OutOfPatience(*run.workflow, live, run.unstored_since_us);
  if (!end.ok()) {
    const Run lost = run;
    run.followers.clear();
    Abandon(id, run);
    lost.workflow->steps[lost.step].run = 0;
    NoteFailure(lost, status);
    Fail(lost.workflow, lost.step, Annotate(status, MessageOf(end)));
    ReleaseFollowers(lost.followers);
    return;
  }
  step::v1::Progress& progress = *run.workflow->EditProgress(run.step).mutable_progress();
  progress.Clear();
  progress.set_stage("wait for the store");
  progress.set_detail(MessageOf(status));
  Touch(run.workflow);
  After(std::min(kLongestPause, Backoff(options_.backoff, ++run.refused_stores, Jitter())),
        [this, id] {
          if (runs_.contains(id)) runner_.StoreAgain(id);
        });
}

void Engine::NoteFailure(const Run& run, const absl::Status& status) {
  if (!run.accepted) return;
  LiveWorkflow& workflow = *run.workflow;
  v1::Step& step = workflow.Edit(run.step);
  if (!workflow.steps[run.step].rerunning) step.set_state(v1::STATE_QUEUED);
  AddFailedAttempt(step, run.server, TimestampOf(run.start_us), status);
}

void Engine::AddFailedAttempt(v1::Step& step, const std::string& server,
                              const google::protobuf::Timestamp& start,
                              const absl::Status& status) {
  step.clear_progress();
  auto* attempts = step.mutable_failed_attempts();
  if (attempts->size() >= kFailedAttemptsKept) attempts->DeleteSubrange(0, 1);
  v1::FailedAttempt* attempt = attempts->Add();
  attempt->set_attempt(step.attempt());
  attempt->set_server(server);
  *attempt->mutable_start_time() = start;
  *attempt->mutable_end_time() = Now();
  *attempt->mutable_error() = ToProto(status);
  AddLogLine("attempt failed: " + MessageOf(status), loop_.UnixMicroseconds(), &step);
}

void Engine::RetryStep(const Run& run, const absl::Status& status, Ending ending) {
  const WorkflowPtr& workflow = run.workflow;
  LiveStep& live = workflow->steps[run.step];
  const bool crashed = ending == Ending::kCrashed;
  int& failures = crashed ? live.failures.crashed : live.failures.lost;
  ++failures;
  NoteFailure(run, status);
  const int most = crashed ? kCrashedAttempts : kLostAttempts;
  if (failures >= most || live.failures.crashed + live.failures.lost >= kLostAttempts) {
    Fail(workflow, run.step, status);
    return;
  }
  CountRetry(live, crashed ? metrics::RetryReason::kCrashed : metrics::RetryReason::kWorkerLost);
  RetryLater(workflow, run.step, failures);
}

void Engine::RetryLater(const WorkflowPtr& workflow, int step, int failures) {
  const uint64_t epoch = ++workflow->steps[step].epoch;
  After(Backoff(options_.backoff, failures, Jitter()), [this, workflow, step, epoch] {
    if (workflow->steps[step].epoch == epoch) Ready(workflow, step);
  });
}

// Costs no attempt: a server that is replaced says so in time.
void Engine::Drained(const Run& run, const absl::Status& status) {
  LiveStep& live = run.workflow->steps[run.step];
  NoteFailure(run, status);
  CountRetry(live, metrics::RetryReason::kDrained);
  if (run.accepted) run.workflow->Edit(run.step).set_max_attempts(live.value->max_attempts() + 1);
  RetryLater(run.workflow, run.step, std::min(++live.failures.drained, 3));
}

// Costs no attempt: the server takes no more steps until its machine works again. But a step may be
// what fills the disks of one machine after the other.
void Engine::NodeFailed(const Run& run, const absl::Status& status) {
  LiveStep& live = run.workflow->steps[run.step];
  NoteFailure(run, status);
  if (live.faulty_since_us == 0) live.faulty_since_us = run.start_us;
  absl::Status end = OutOfPatience(*run.workflow, live, live.faulty_since_us);
  if (end.ok() && !run.accepted) {  // the server was out of service before
    CountRetry(live, metrics::RetryReason::kOutOfService);
    loads_[static_cast<size_t>(run.service)].Shed(
        loop_.Now(), rpc::RetryAfterOf(status).value_or(options_.backoff));
    SetWaitingReason(*run.workflow, run.step,
                     fmt::format("service `{}`: {}", live.row->service, MessageOf(status)));
    Requeue(run.workflow, run.step);
    return;
  }
  if (run.accepted && ++live.failures.node_faults >= kNodeFaults) {
    end = absl::UnavailableError(
        fmt::format("{} times in turn a machine could not do the step", kNodeFaults));
  }
  if (!end.ok()) {
    Fail(run.workflow, run.step, Annotate(status, MessageOf(end)));
    return;
  }
  CountRetry(live, metrics::RetryReason::kNodeFault);
  if (run.accepted) run.workflow->Edit(run.step).set_max_attempts(live.value->max_attempts() + 1);
  RetryLater(run.workflow, run.step, live.failures.node_faults);
}

absl::Status Engine::OutOfPatience(const LiveWorkflow& workflow, const LiveStep& step,
                                   int64_t since_us) {
  const milliseconds patience = workflow.spec.has_patience()
                                    ? milliseconds(workflow.spec.patience().seconds() * 1000 +
                                                   workflow.spec.patience().nanos() / 1'000'000)
                                    : options_.patience;
  if (!workflow.spec.has_patience() && patience.count() == 0) return absl::OkStatus();
  if (loop_.UnixMicroseconds() - since_us < patience.count() * 1000) return absl::OkStatus();
  return absl::UnavailableError(fmt::format("service `{}` has done nothing for {} s",
                                            step.row->service,
                                            static_cast<double>(patience.count()) / 1000));
}

// Costs no attempt.
void Engine::Unreached(const Run& run, const absl::Status& status) {
  LiveStep& live = run.workflow->steps[run.step];
  ServiceLoad& load = loads_[static_cast<size_t>(run.service)];
  if (live.refused_since_us == 0) live.refused_since_us = run.start_us;
  const absl::Status end = OutOfPatience(*run.workflow, live, live.refused_since_us);
  if (!end.ok()) {
    Fail(run.workflow, run.step, Annotate(status, MessageOf(end)));
    return;
  }
  CountRetry(live, metrics::RetryReason::kWorkerLost);
  load.Unreached(loop_.Now(),
                 std::min(kLongestPause, Backoff(kUnreachedPause, load.unreached() + 1, Jitter())));
  SetWaitingReason(
      *run.workflow, run.step,
      fmt::format("service `{}` cannot be reached: {}", live.row->service, MessageOf(status)));
  Requeue(run.workflow, run.step);
}

// Costs no attempt, and holds up no other step. Calls go to the servers behind an address in turn, and
// nobody knows which of them has a GPU: each is asked, then there is a pause.
void Engine::LacksDevice(const Run& run, const absl::Status& status) {
  const WorkflowPtr& workflow = run.workflow;
  LiveStep& live = workflow->steps[run.step];
  if (live.refused_since_us == 0) live.refused_since_us = run.start_us;
  const absl::Status end = OutOfPatience(*workflow, live, live.refused_since_us);
  if (!end.ok()) {
    Fail(workflow, run.step, Annotate(status, MessageOf(end)));
    return;
  }
  CountRetry(live, metrics::RetryReason::kNoDevice);
  milliseconds pause = kAskNextServer;
  if (!live.without_device.insert(steps::ServerOf(status)).second) {
    const size_t asked = live.without_device.size();
    SetWaitingReason(
        *workflow, run.step,
        fmt::format("waits for {}: {}{}", WantedService(live),
                    asked == 1 ? "" : fmt::format("none of {} has one, the last: ", asked),
                    MessageOf(status)));
    live.without_device.clear();
    pause = std::min(kLongestPause, Backoff(kUnreachedPause, ++live.device_rounds, Jitter()));
  }
  const uint64_t epoch = ++live.epoch;
  After(pause, [this, workflow, step = run.step, epoch] {
    if (workflow->steps[step].epoch == epoch) Ready(workflow, step);
  });
}

// Whether the step, for which its service has no memory, asks again by itself while smaller ones go on: one of each
// service, and the servers keep what becomes free for it. Each server behind the address is asked in turn, then there is
// a pause. A second step holds up the queue, as where slots are full.
// Steps that would take its result wait with it: one that asked by itself would hold up the queue.
bool Engine::WaitsAside(const Run& run, const absl::Status& status, milliseconds delay,
                        std::vector<Follower>* followers) {
  if (rpc::ReasonOf(status) != rpc::ReasonName(rpc::Reason::kMemoryFull)) return false;
  LiveStep& live = run.workflow->steps[run.step];
  ServiceLoad& load = loads_[static_cast<size_t>(run.service)];
  if (!load.StepAside()) return false;
  SetWaitingReason(*run.workflow, run.step, ReasonToWait(live, status));
  if (live.without_memory.insert(steps::ServerOf(status)).second) {
    delay = kAskNextServer;
  } else {
    live.without_memory.clear();
  }
  aside_[run.service] = {live.row->stage, Microseconds(live.value->ready_time())};
  std::vector<std::tuple<WorkflowPtr, int, uint64_t>> back;  // with their epochs
  const auto wait = [&back](const WorkflowPtr& workflow, int step) {
    workflow->steps[step].run = 0;
    back.emplace_back(workflow, step, ++workflow->steps[step].epoch);
  };
  wait(run.workflow, run.step);
  for (const Follower& each : std::exchange(*followers, {})) wait(each.workflow, each.step);
  After(delay, [this, &load, service = run.service, back] {
    load.ComeBack();
    aside_.erase(service);
    for (const auto& [workflow, step, epoch] : back) {
      if (workflow->steps[step].epoch == epoch) Requeue(workflow, step);
    }
  });
  return true;
}

// The reason of a step that its service refused: none where it waits for a slot only.
std::string Engine::ReasonToWait(const LiveStep& step, const absl::Status& status) {
  if (rpc::ReasonOf(status) != rpc::ReasonName(rpc::Reason::kMemoryFull)) return "";
  return fmt::format("service `{}`: {}", step.row->service, MessageOf(status));
}

void Engine::SetWaitingReason(LiveWorkflow& workflow, int step, const std::string& text) {
  if (workflow.steps[step].value->waiting_reason() == text) return;
  v1::Step& value = workflow.EditProgress(step);
  value.set_waiting_reason(text);
  if (!text.empty()) AddWaitLine(text, loop_.UnixMicroseconds(), &value);
  touched_.insert(workflow.id);
}

void Engine::Requeue(const WorkflowPtr& workflow, int step) {
  LiveStep& live = workflow->steps[step];
  ++live.epoch;
  if (Follow(workflow, step)) return;
  Enqueue(*workflow, step, Microseconds(live.value->ready_time()));
}

// `ready_us`: Unix time since which the step waits for a service.
void Engine::Enqueue(const LiveWorkflow& workflow, int step, int64_t ready_us) {
  const LiveStep& live = workflow.steps[step];
  queue_.Add({{workflow.id, step},
              live.row->service_label,
              live.row->stage,
              workflow.header.tenant(),
              live.order,
              ready_us,
              workflow.header.priority()});
}

// Steps that gave the missing blobs do so once more; `step` waits for them.
void Engine::Rewind(const WorkflowPtr& workflow, int step, const absl::Status& status) {
  LiveStep& live = workflow->steps[step];
  std::set<int> producers;
  for (const std::string& hash : MissingHashes(status)) {
    producers.insert(workflow->ProducerOf(hash, step));
  }
  if (live.rewound || producers.empty() || producers.contains(-1)) {
    Fail(workflow, step, status);
    return;
  }
  live.rewound = true;
  live.request = nullptr;
  CountRetry(live, metrics::RetryReason::kMissingBlob);
  workflow->Edit(step).set_max_attempts(live.value->max_attempts() + 1);
  for (const int producer : producers) {
    LiveStep& source = workflow->steps[producer];
    source.waiters.push_back(step);
    ++live.unmet;
    if (std::exchange(source.rerunning, true)) continue;
    source.failures = {};
    source.request = nullptr;
    workflow->Edit(producer).set_max_attempts(source.value->attempt() + kLostAttempts);
    Ready(workflow, producer);
  }
}

void Engine::CountRetry(const LiveStep& step, metrics::RetryReason reason) {
  options_.registry->Get(metrics::kStepRetries, step.row->stage, reason).Increment();
}

}  // namespace quench::gateway
