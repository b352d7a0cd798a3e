#include "services/gateway/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "services/gateway/traces.h"

namespace quench::gateway {

using std::chrono::milliseconds;

namespace {

constexpr auto kWatchPeriod = milliseconds(1000);
constexpr auto kExpirePeriod = milliseconds(60'000);
constexpr auto kExpireAfterEnd = milliseconds(1000);
constexpr auto kSaveAgain = milliseconds(1000);
constexpr int64_t kClockJumpUs = int64_t{5} * 60 * 1'000'000;
constexpr auto kClockDoubt = std::chrono::hours(1);
// Revisions of progress are not stored: no gateway has given this many between two that are.
constexpr int64_t kRevisionJump = int64_t{1} << 32;

int64_t ClockOffset(const Loop& loop) {
  return loop.UnixMicroseconds() -
         std::chrono::duration_cast<std::chrono::microseconds>(loop.Now().time_since_epoch())
             .count();
}

metrics::Result ResultOf(v1::State state) {
  if (state == v1::STATE_SUCCEEDED) return metrics::Result::kOk;
  return state == v1::STATE_FAILED ? metrics::Result::kFailed : metrics::Result::kCancelled;
}

milliseconds DurationOf(const google::protobuf::Duration& duration) {
  return milliseconds(duration.seconds() * 1000 + duration.nanos() / 1'000'000);
}

// Timeout of an attempt; 0: none.
milliseconds TimeoutOf(const v1::WorkflowSpec& workflow, const v1::StepSpec& step) {
  return DurationOf(step.has_timeout() ? step.timeout() : workflow.step_timeout());
}

absl::Status TimedOut(milliseconds timeout) {
  return rpc::Error(rpc::Reason::kStepTimedOut,
                    fmt::format("the step has not ended within {} s",
                                static_cast<double>(timeout.count()) / 1000));
}

int OpenSteps(const v1::Workflow& workflow) {
  return static_cast<int>(
      std::count_if(workflow.steps().begin(), workflow.steps().end(),
                    [](const v1::Step& step) { return !HasEnded(step.state()); }));
}

// Queues the steps again that failed or were cancelled.
WorkflowUpdate Reopen(v1::Workflow* workflow) {
  WorkflowUpdate update;
  update.previous_revision = workflow->revision();
  for (int i = 0; i < workflow->steps_size(); ++i) {
    v1::Step& step = *workflow->mutable_steps(i);
    if (step.state() == v1::STATE_SUCCEEDED) continue;
    step.set_state(v1::STATE_QUEUED);
    step.set_retried_after_attempt(step.attempt());
    step.set_max_attempts(step.attempt() + kLostAttempts);
    step.clear_ready_time();
    step.clear_waiting_reason();
    step.clear_start_time();
    step.clear_end_time();
    step.clear_error();
    update.steps.emplace_back(i, std::make_shared<v1::Step>(step));
  }
  workflow->set_state(v1::STATE_QUEUED);
  workflow->set_revision(workflow->revision() + 1);
  workflow->clear_end_time();
  workflow->clear_expire_time();
  workflow->clear_outputs_expire_time();
  workflow->clear_error();
  workflow->mutable_counts()->clear_failed();
  workflow->mutable_counts()->clear_cancelled();
  workflow->mutable_counts()->set_queued(static_cast<int32_t>(update.steps.size()));
  update.header = *workflow;
  update.header.clear_steps();
  return update;
}

}  // namespace

absl::Status Drains() {
  return rpc::WithRetryAfter(rpc::Error(rpc::Reason::kUnavailable, "the gateway drains: ask again"),
                             milliseconds(1000));
}

Engine::Engine(const EngineOptions& options, Loop& loop, JobStore& store, StepRunner& runner,
               Board& board, Pins& pins)
    : options_(options),
      loop_(loop),
      store_(store),
      runner_(runner),
      board_(board),
      pins_(pins),
      random_(options.seed),
      queue_(QueueFor(options)) {
  clock_offset_us_ = ClockOffset(loop_);
  PlanWatch();
  Post([this] { ExpireNowAndThen(); });
}

Engine::~Engine() {
  alive_.reset();
  for (const auto& [id, workflow] : workflows_) {
    if (!HasEnded(workflow->header.state())) Gauge(workflow->header.state()).Decrement();
  }
  for (const auto& [id, asleep] : asleep_) Gauge(asleep.state).Decrement();
}

metrics::Gauge& Engine::Gauge(v1::State state) {
  return options_.registry->Get(metrics::kWorkflows, state == v1::STATE_RUNNING
                                                         ? metrics::WorkflowState::kRunning
                                                         : metrics::WorkflowState::kQueued);
}

// A job that runs if the engine is there still, and what follows from it.
std::function<void()> Engine::Guarded(std::function<void()> job) {
  return [this, alive = std::weak_ptr<bool>(alive_), job = std::move(job)] {
    if (alive.expired()) return;
    job();
    Settle();
  };
}

void Engine::Post(std::function<void()> job) { loop_.Post(Guarded(std::move(job))); }

void Engine::After(milliseconds delay, std::function<void()> job) {
  loop_.After(delay, Guarded(std::move(job)));
}

void Engine::Settle() {
  if (halted_) return;
  WakeSome();
  Pump();
  ShowQueue();
  for (const std::string& id : std::exchange(touched_, {})) {
    const auto found = workflows_.find(id);
    if (found == workflows_.end()) continue;
    const WorkflowPtr workflow = found->second;
    EndIfDone(workflow);
    Save(workflow);
    if (workflow->progressed && !progress_planned_) {
      progress_planned_ = true;
      After(options_.progress_gap, [this] { ShowProgress(); });
    }
  }
  if (!on_drained_ || !runs_.empty()) return;
  for (const auto& [id, workflow] : workflows_) {
    if (workflow->saving || workflow->changed) return;
  }
  std::exchange(on_drained_, nullptr)();
}

absl::Status Engine::Recover(const NeedsOf& needs_of) {
  const int64_t now_us = loop_.UnixMicroseconds();
  QUENCH_ASSIGN_OR_RETURN(const std::vector<StepSecondsRow> used,
                          store_.LoadStepSeconds(StepSeconds::DayOf(now_us)));
  step_seconds_.Load(used, now_us);
  int64_t planned = 0;
  std::set<std::string> tenants;
  return store_.ForEachUnfinished([&](StoredWorkflow stored) {
    WorkflowNeeds needs = needs_of(stored);
    for (const v1::Step& step : stored.workflow.steps()) {
      for (std::string& hash : HashesOf(step)) needs.hashes.push_back(std::move(hash));
    }
    const std::string id = IdOf(stored.workflow.name());
    pins_.Add(id, needs.hashes);
    const bool fits = planned + needs.bytes <= options_.max_live_bytes;
    const bool first = tenants.insert(stored.workflow.tenant()).second;
    if (!fits && !first) {
      board_.Expect(id, stored.workflow.tenant());
      // Its steps are in the store.
      StoredWorkflow sleeper;
      sleeper.workflow = std::move(stored.workflow);
      const int open = OpenSteps(sleeper.workflow);
      sleeper.workflow.clear_steps();
      *sleeper.spec.mutable_timeout() = stored.spec.timeout();
      if (!stored.spec.has_timeout()) sleeper.spec.clear_timeout();
      Post([this, bytes = needs.bytes, open, sleeper] {
        open_steps_[sleeper.workflow.tenant()] += open;
        open_bytes_[sleeper.workflow.tenant()] += bytes;
        Sleep(sleeper, bytes, open, true);
      });
      return;
    }
    planned += needs.bytes;
    // Callers who ask before it is adopted are told of all that follows.
    board_.Publish(id, std::make_shared<WorkflowView>(ViewOf(stored.workflow)));
    Post([this, bytes = needs.bytes, shared = std::make_shared<StoredWorkflow>(std::move(stored))] {
      Adopt(std::move(*shared), bytes, Origin::kRecovered, true);
    });
  });
}

absl::Status Engine::RecoverKept(const std::atomic<bool>& stop) {
  return store_.ForEachKept([&](const KeptOutputs& kept) {
    pins_.KeepPromised(kept.id, kept.tenant, kept.blobs, kept.until_us);
    return !stop;
  });
}

void Engine::Create(StoredWorkflow workflow, int64_t bytes, Done done) {
  auto shared = std::make_shared<StoredWorkflow>(std::move(workflow));
  Post([this, shared, bytes, done = std::move(done)] {
    const std::string& tenant = shared->workflow.tenant();
    const int steps = shared->workflow.steps_size();
    if (draining_) {
      done(Drains());
      return;
    }
    if (const absl::Status within = CheckQuota(tenant, steps, bytes); !within.ok()) {
      done(within);
      return;
    }
    open_steps_[tenant] += steps;
    open_bytes_[tenant] += bytes;
    store_.Create(*shared, [this, alive = std::weak_ptr<bool>(alive_), shared, done, steps,
                            bytes](const absl::Status& status) {
      const auto job = [this, shared, done, steps, bytes, status] {
        if (status.ok()) {
          Take(std::move(*shared), bytes, steps);
        } else {
          open_steps_[shared->workflow.tenant()] -= steps;
          open_bytes_[shared->workflow.tenant()] -= bytes;
        }
        done(status);
      };
      if (!alive.expired()) Post(job);
    });
  });
}

absl::Status Engine::CheckQuota(const std::string& tenant, int steps, int64_t bytes) {
  const int open_steps = open_steps_[tenant];
  const int64_t open_bytes = open_bytes_[tenant];
  const TenantLimits limits = LimitsOf(tenant);
  QUENCH_RETURN_IF_ERROR(CheckStepSeconds(tenant, limits.max_step_seconds));
  std::string limit;
  if (open_steps + steps > limits.max_queued_steps) {
    limit = fmt::format("{} steps wait or run, {} more would exceed the limit of {}", open_steps,
                        steps, limits.max_queued_steps);
  } else if (open_bytes + bytes > limits.max_queued_bytes) {
    limit = fmt::format(
        "workflows that have not ended take {} bytes, {} more would exceed the limit of {}",
        open_bytes, bytes, limits.max_queued_bytes);
  } else {
    return absl::OkStatus();
  }
  return rpc::WithQuota(
      rpc::Error(rpc::Reason::kQuotaExceeded, fmt::format("of tenant `{}` {}", tenant, limit)),
      {"tenant:" + tenant, limit});
}

void Engine::Retry(StoredWorkflow workflow, WorkflowNeeds needs, Done done) {
  auto shared = std::make_shared<StoredWorkflow>(std::move(workflow));
  Post([this, shared, needs = std::move(needs), done = std::move(done)] {
    const int64_t bytes = needs.bytes;
    const v1::State state = shared->workflow.state();
    if (draining_) {
      done(Drains());
      return;
    }
    if (!HasEnded(state) || workflows_.contains(IdOf(shared->workflow.name())) ||
        asleep_.contains(IdOf(shared->workflow.name())) ||
        waking_.contains(IdOf(shared->workflow.name()))) {
      done(NotEnded(IdOf(shared->workflow.name())));
      return;
    }
    if (state == v1::STATE_SUCCEEDED) {
      done(rpc::Error(rpc::Reason::kFailedPrecondition,
                      "the workflow has succeeded: there is nothing to retry"));
      return;
    }
    const std::string tenant = shared->workflow.tenant();
    *shared->workflow.mutable_retry_time() = Now();
    WorkflowUpdate update = Reopen(&shared->workflow);
    update.spec = std::make_shared<v1::WorkflowSpec>(shared->spec);
    const int steps = static_cast<int>(update.steps.size());
    if (const absl::Status within = CheckQuota(tenant, steps, bytes); !within.ok()) {
      done(within);
      return;
    }
    open_steps_[tenant] += steps;
    open_bytes_[tenant] += bytes;
    store_.Update(update, [this, alive = std::weak_ptr<bool>(alive_), shared, needs, done, tenant,
                           steps, bytes](const absl::Status& status) {
      const auto job = [this, shared, needs, done, tenant, steps, bytes, status] {
        if (status.ok()) {
          const std::string id = IdOf(shared->workflow.name());
          pins_.Add(id, needs.hashes);
          pins_.Release(id);
          Take(std::move(*shared), bytes, steps);
        } else {
          open_steps_[tenant] -= steps;
          open_bytes_[tenant] -= bytes;
        }
        done(status);
      };
      if (!alive.expired()) Post(job);
    });
  });
}

// `recovered`: an earlier gateway may have begun it.
void Engine::Adopt(StoredWorkflow stored, int64_t bytes, Origin origin, bool recovered) {
  auto workflow = std::make_shared<LiveWorkflow>(std::move(stored));
  workflow->bytes = bytes;
  workflows_[workflow->id] = workflow;
  Gauge(workflow->header.state()).Increment();
  // A fleet is done model by model: not all of its imports before the first library.
  if (workflow->header.has_fleet()) {
    for (LiveStep& step : workflow->steps) step.order = next_order_++;
  }
  const v1::Workflow& header = workflow->header;
  if (origin != Origin::kWoken) Occupy(header.tenant(), header.priority(), bytes);
  if (origin == Origin::kRecovered) {
    open_steps_[header.tenant()] += workflow->open;
    open_bytes_[header.tenant()] += bytes;
  }
  if (recovered) {
    workflow->header.set_revision(workflow->stored_revision + kRevisionJump);
    Reclaim(*workflow);
  }
  board_.Publish(workflow->id, recovered ? workflow->TakeView() : workflow->FirstView());
  for (size_t i = 0; i < workflow->steps.size(); ++i) {
    const LiveStep& step = workflow->steps[i];
    if (step.failures.reclaimed > kReclaims && !HasEnded(step.value->state())) {
      Fail(workflow, static_cast<int>(i),
           Internal("the gateway has ended {} times while the step ran", step.failures.reclaimed));
    } else if (step.value->state() == v1::STATE_QUEUED && step.unmet == 0) {
      Ready(workflow, static_cast<int>(i));
    }
  }
  if (workflow->spec.has_timeout()) {
    After(TimeLeft(header, workflow->spec), [this, weak = std::weak_ptr<LiveWorkflow>(workflow)] {
      if (const WorkflowPtr live = weak.lock()) EndInTime(live);
    });
  }
  Touch(workflow);
}

milliseconds Engine::TimeLeft(const v1::Workflow& header, const v1::WorkflowSpec& spec) {
  const int64_t begun =
      Microseconds(header.has_retry_time() ? header.retry_time() : header.create_time());
  const int64_t left = begun + DurationOf(spec.timeout()).count() * 1000 - loop_.UnixMicroseconds();
  return milliseconds(std::max<int64_t>(0, left / 1000));
}

void Engine::EndInTime(const WorkflowPtr& workflow) {
  if (workflow->open == 0 || !workflows_.contains(workflow->id)) return;
  CancelNow(workflow, absl::DeadlineExceededError(
                          fmt::format("the workflow has not ended within {} s",
                                      DurationOf(workflow->spec.timeout()).count() / 1000)));
  Touch(workflow);
}

// Steps that ran when the gateway ended are begun again, as another attempt.
void Engine::Reclaim(LiveWorkflow& workflow) {
  for (size_t i = 0; i < workflow.steps.size(); ++i) {
    if (workflow.steps[i].value->state() != v1::STATE_RUNNING) continue;
    v1::Step& step = workflow.Edit(static_cast<int>(i));
    step.set_state(v1::STATE_QUEUED);
    step.set_max_attempts(step.max_attempts() + 1);
    AddFailedAttempt(
        step, "", step.start_time(),
        rpc::Error(rpc::Reason::kGatewayRestarted, "the gateway ended while the step ran"));
    ++workflow.steps[i].failures.reclaimed;
    CountRetry(workflow.steps[i], metrics::RetryReason::kWorkerLost);
  }
}

void Engine::Cancel(const std::string& tenant, const std::string& id, Done done) {
  Post([this, tenant, id, done = std::move(done)] {
    const auto sleeper = asleep_.find(id);
    if (waking_.contains(id) || (sleeper != asleep_.end() && sleeper->second.tenant == tenant)) {
      WakeThen(id, [this, tenant, id, done](const absl::Status& read) {
        if (!read.ok()) return done(read);
        Cancel(tenant, id, done);
      });
      return;
    }
    const auto found = workflows_.find(id);
    if (found == workflows_.end() || found->second->header.tenant() != tenant) {
      done(NoSuchWorkflow(id));
      return;
    }
    const WorkflowPtr workflow = found->second;
    if (workflow->open > 0) {
      CancelNow(workflow, rpc::Error(rpc::Reason::kCancelled, "the workflow was cancelled"));
    }
    workflow->on_saved.emplace_back([done] { done(absl::OkStatus()); });
    Touch(workflow);
  });
}

void Engine::CancelNow(const WorkflowPtr& workflow, const absl::Status& why) {
  if (!workflow->header.has_error()) *workflow->header.mutable_error() = ToProto(why);
  for (size_t i = 0; i < workflow->steps.size(); ++i) {
    const int step = static_cast<int>(i);
    if (workflow->steps[i].rerunning) Detach(workflow, step);
    workflow->steps[i].rerunning = false;
    if (!HasEnded(workflow->steps[i].value->state())) {
      EndStep(workflow, step, v1::STATE_CANCELLED, why);
    }
  }
}

void Engine::EndIfDone(const WorkflowPtr& workflow) {
  v1::Workflow& header = workflow->header;
  if (workflow->open > 0 || HasEnded(header.state())) return;
  const bool cancelled = header.error().code() == static_cast<int>(absl::StatusCode::kCancelled);
  SetState(*workflow, !header.has_error() ? v1::STATE_SUCCEEDED
                      : cancelled         ? v1::STATE_CANCELLED
                                          : v1::STATE_FAILED);
  const int64_t now = loop_.UnixMicroseconds();
  *header.mutable_end_time() = TimestampOf(now);
  *header.mutable_expire_time() = TimestampOf(now + options_.keep_workflows.count() * 1000);
  if (!cancelled) KeepOutputs(*workflow);
  if (options_.tracer != nullptr) {
    options_.tracer->Record(WorkflowSpan(workflow->traceparent, header));
  }
}

void Engine::KeepOutputs(LiveWorkflow& workflow) {
  if (!pins_.keeps()) return;  // another server has the blobs
  v1::Workflow& header = workflow.header;
  std::vector<BlobId> outputs;
  for (const LiveStep& step : workflow.steps) AddOutputs(*step.value, &outputs);
  if (pins_.Keep(workflow.id, header.tenant(), outputs, Microseconds(header.expire_time()))) {
    *header.mutable_outputs_expire_time() = header.expire_time();
  } else {
    spdlog::warn(
        "workflow={} its outputs stay only as long as there is room: tenant `{}` is at "
        "its limit of kept outputs",
        workflow.id, header.tenant());
  }
}

void Engine::SetState(LiveWorkflow& workflow, v1::State state) {
  Gauge(workflow.header.state()).Decrement();
  if (HasEnded(state)) {
    options_.registry->Get(metrics::kWorkflowsEnded, ResultOf(state)).Increment();
  } else {
    Gauge(state).Increment();
  }
  workflow.header.set_state(state);
  workflow.changed = true;
}

// One save at a time for each workflow: what changes meanwhile goes with the next.
void Engine::Save(const WorkflowPtr& workflow) {
  if (workflow->saving) return;
  if (!workflow->changed) {
    for (const auto& job : std::exchange(workflow->on_saved, {})) job();
    return;
  }
  workflow->saving = true;
  const ViewPtr view = workflow->TakeView();
  WorkflowUpdate update = workflow->TakeUpdate(view);
  AddEvents(*workflow, &update);
  store_.Update(update, [this, alive = std::weak_ptr<bool>(alive_), workflow, view,
                         update](const absl::Status& status) {
    if (alive.expired()) return;
    Post([this, workflow, view, update, status] { OnSaved(workflow, view, update, status); });
  });
}

void Engine::OnSaved(const WorkflowPtr& workflow, const ViewPtr& view, const WorkflowUpdate& update,
                     const absl::Status& status) {
  if (absl::IsAborted(status) || absl::IsNotFound(status)) {
    spdlog::error("workflow={} was taken by another gateway: {}", workflow->id, MessageOf(status));
    Forget(workflow);
    return;
  }
  if (!status.ok()) {
    spdlog::error("workflow={} cannot be saved, tried again: {}", workflow->id, MessageOf(status));
    workflow->Unsave(update);
    After(kSaveAgain, [this, workflow] {
      workflow->saving = false;
      Touch(workflow);
    });
    return;
  }
  workflow->saving = false;
  workflow->stored_revision = update.header.revision();
  // Watchers who hear of the end find the blobs free.
  if (view->ended()) pins_.Remove(workflow->id);
  board_.Publish(workflow->id, view);
  if (!update.events.empty() || !update.fleet_urls.empty()) options_.on_events();
  if (view->ended()) {
    Forget(workflow);
    PlanExpiry();
  } else {
    Touch(workflow);
  }
}

void Engine::Forget(const WorkflowPtr& workflow) {
  for (size_t i = 0; i < workflow->steps.size(); ++i) Detach(workflow, static_cast<int>(i));
  if (workflow->open > 0) open_steps_[workflow->header.tenant()] -= workflow->open;
  open_bytes_[workflow->header.tenant()] -= workflow->bytes;
  Vacate(workflow->header.tenant(), workflow->header.priority(), workflow->bytes);
  if (!HasEnded(workflow->header.state())) Gauge(workflow->header.state()).Decrement();
  pins_.Remove(workflow->id);
  board_.Remove(workflow->id);
  workflows_.erase(workflow->id);
  for (const auto& job : std::exchange(workflow->on_saved, {})) job();
}

void Engine::ShowProgress() {
  progress_planned_ = false;
  for (const auto& [id, workflow] : workflows_) {
    if (!workflow->progressed || workflow->saving || workflow->changed) continue;
    board_.Publish(id, workflow->TakeView());
  }
}

// Looks for workers that have gone silent.
void Engine::Watch() {
  const auto now = loop_.Now();
  // This process itself stood still (a paused machine, a closed lid): others may have said
  // something all the while, which is read next.
  const auto late = now - next_watch_;
  std::vector<std::pair<uint64_t, absl::Status>> over;
  std::vector<std::pair<Follower, milliseconds>> followers_over;
  for (auto& [id, run] : runs_) {
    if (run.abandoned || run.unstored_since_us != 0) continue;
    if (late > kWatchPeriod) run.last_event += late;
    for (const Follower& each : run.followers) {
      const milliseconds timeout =
          TimeoutOf(each.workflow->spec, *each.workflow->steps[each.step].spec);
      const auto since = std::max(run.accepted_at, each.since);
      if (timeout.count() > 0 && run.accepted && now - since >= timeout)
        followers_over.emplace_back(each, timeout);
    }
    const milliseconds timeout = TimeoutOf(run.workflow->spec, *run.workflow->steps[run.step].spec);
    if (now - run.last_event >= options_.silence) {
      over.emplace_back(id, rpc::Error(rpc::Reason::kUnavailable,
                                       fmt::format("the worker has said nothing for {} s",
                                                   options_.silence.count() / 1000)));
    } else if (timeout.count() > 0 && run.accepted && now - run.accepted_at >= timeout) {
      over.emplace_back(id, TimedOut(timeout));
    }
  }
  for (const auto& [each, timeout] : followers_over) {
    if (!HasEnded(each.workflow->steps[each.step].value->state()))
      Fail(each.workflow, each.step, TimedOut(timeout));
  }
  for (const auto& [id, status] : over) {
    Run& run = runs_.at(id);
    if (run.abandoned) continue;
    Run lost = run;
    run.followers.clear();
    Abandon(id, run);
    OnDone(std::move(lost), status, nullptr);
  }
  ShowAges();
  PlanWatch();
}

void Engine::PlanWatch() {
  next_watch_ = loop_.Now() + kWatchPeriod;
  After(kWatchPeriod, [this] { Watch(); });
}

// The tenant may have more than its share now; others that end meanwhile are looked at together.
void Engine::PlanExpiry() {
  if (std::exchange(expiry_planned_, true)) return;
  After(kExpireAfterEnd, [this] {
    expiry_planned_ = false;
    ExpireOld();
  });
}

void Engine::ExpireNowAndThen() {
  ExpireOld();
  After(kExpirePeriod, [this] { ExpireNowAndThen(); });
}

// A clock that is set days ahead would end all that is kept within a minute, and may be set back: it is
// believed when it has been there for a while.
int64_t Engine::ExpiryTime() {
  const auto now = loop_.Now();
  const int64_t offset = ClockOffset(loop_);
  if (offset - clock_offset_us_ <= kClockJumpUs) {
    clock_jumped_ = {};
    clock_offset_us_ = offset;
  } else if (clock_jumped_ == Loop::Clock::time_point{}) {
    spdlog::warn("the clock is {} s ahead of where it was: what ended expires by it in {} minutes",
                 (offset - clock_offset_us_) / 1'000'000,
                 std::chrono::duration_cast<std::chrono::minutes>(kClockDoubt).count());
    clock_jumped_ = now;
  } else if (now - clock_jumped_ >= kClockDoubt) {
    clock_jumped_ = {};
    clock_offset_us_ = offset;
  }
  return loop_.UnixMicroseconds() - offset + clock_offset_us_;
}

void Engine::ExpireOld() {
  const int64_t now_us = ExpiryTime();
  pins_.Expire(now_us);
  store_.Expire(now_us, options_.ended,
                [this, alive = std::weak_ptr<bool>(alive_)](
                    const absl::Status& status, const std::vector<std::string>& forgotten) {
                  if (!status.ok())
                    spdlog::error("workflows cannot be expired: {}", MessageOf(status));
                  if (alive.expired()) return;
                  for (const std::string& id : forgotten) pins_.Release(id);
                });
}

void Engine::Drain(std::function<void()> done) {
  Post([this, done = std::move(done)] {
    draining_ = true;
    on_drained_ = done;
    LetSleep();
  });
}

void Engine::Halt(std::function<void()> done) {
  Post([this, done = std::move(done)] {
    draining_ = halted_ = true;
    for (auto& [id, run] : runs_) {
      CountSeconds(run);
      runner_.Cancel(id);
    }
    SaveSeconds();
    done();
  });
}

}  // namespace quench::gateway
