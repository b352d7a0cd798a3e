// Runs workflows: decides when, where and how often each step runs, and what is recorded about it.
// All of its state belongs to one thread, its loop's.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "services/gateway/board.h"
#include "services/gateway/fair_queue.h"
#include "services/gateway/live_workflow.h"
#include "services/gateway/loop.h"
#include "services/gateway/pins.h"
#include "services/gateway/service_load.h"
#include "services/gateway/step_log.h"
#include "services/gateway/step_runner.h"
#include "services/gateway/tenant_usage.h"

namespace quench::rpc {
class Tracer;
}

namespace quench::gateway {

struct EngineOptions {
  int max_queued_steps = 1'000'000;  // of a tenant, waiting or running
  int max_running_steps = 0;         // of a tenant; 0: no limit
  // Time that services spend on a tenant's steps in a day of UTC; 0: no limit.
  int64_t max_step_seconds = 0;
  // Tenants with limits of their own; a limit that is 0 there is the general one.
  std::map<std::string, TenantLimits> tenants;
  // Bytes of a tenant's workflows that have not ended: expanded specs, and manifests of samples.
  int64_t max_queued_bytes = int64_t{2} << 30;
  // Bytes of workflows in memory, of all tenants; others sleep in the store until these have ended. Above it, up to
  // twice as many, each tenant has a quarter for workflows whose equally or more urgent ones take less than that. It has
  // one in memory at least, and another if that one has a higher priority.
  int64_t max_live_bytes = int64_t{32} << 20;
  // Runs a job that reads the store, on another thread where there is one.
  std::function<void(std::function<void()>)> read = [](const std::function<void()>& job) { job(); };
  // Called when the store has got events to post.
  std::function<void()> on_events = [] {};
  std::chrono::milliseconds keep_workflows{std::chrono::hours(24 * 7)};
  EndedLimits ended;
  std::chrono::milliseconds silence{30'000};  // a worker silent for longer is lost
  // How long a step waits for a service that is unreachable or cannot run it; 0: without a limit.
  std::chrono::milliseconds patience{0};
  std::chrono::milliseconds backoff{1000};      // before the second attempt
  std::chrono::milliseconds progress_gap{100};  // between views that show progress only
  metrics::Registry* registry = &metrics::Global();
  rpc::Tracer* tracer = nullptr;  // not owned; null: traces are passed on only
  uint64_t seed = std::random_device()();
};

// Blobs that must stay until a workflow ends, and the bytes it counts against its tenant's limit.
struct WorkflowNeeds {
  std::vector<std::string> hashes;
  int64_t bytes = 0;
};

// The answer to callers who ask for what a gateway does no more.
absl::Status Drains();

class Engine {
 public:
  using Done = JobStore::Done;

  // None is owned. `store` and `runner` call back: they are destroyed before the engine, or call
  // from the loop's thread only.
  Engine(const EngineOptions& options, Loop& loop, JobStore& store, StepRunner& runner,
         Board& board, Pins& pins);
  // On the loop's thread, or when that has stopped.
  ~Engine();

  // The blobs that a workflow needs from the store; blobs that are gone already may be missing.
  using NeedsOf = std::function<WorkflowNeeds(const StoredWorkflow&)>;
  // Resumes the workflows in the store. Called once, before any other call. Whatever it posts to the
  // loop comes before anything posted afterwards.
  absl::Status Recover(const NeedsOf& needs_of);
  // Pins the results of workflows that have ended, until `stop` is true: it takes long if there are
  // many. Thread-safe.
  absl::Status RecoverKept(const std::atomic<bool>& stop);

  // Thread-safe from here.

  // Calls `done` when the workflow is durable. RESOURCE_EXHAUSTED with QuotaFailure,
  // or the store's error. The blobs are pinned under the workflow's id already; `bytes` is what it
  // counts against the tenant's limit.
  void Create(StoredWorkflow workflow, int64_t bytes, Done done);
  // Like Create, for the steps that failed or were cancelled in a workflow that the store has and
  // that has ended; FAILED_PRECONDITION if it has succeeded or is live. The caller keeps its needs
  // pinned until `done`; from then on the engine does.
  void Retry(StoredWorkflow workflow, WorkflowNeeds needs, Done done);
  // Calls `done` when the cancellation is durable; NOT_FOUND for a workflow that has ended.
  void Cancel(const std::string& tenant, const std::string& id, Done done);
  // Calls `done` with what each tenant uses that has anything here.
  using Usage = std::map<std::string, TenantUsage>;  // by tenant
  void TellUsage(std::function<void(Usage)> done);
  // Calls `done` with what each service, by its index, has to do.
  struct Load {
    int running = 0, queued = 0;
    int slots = 0;  // learnt from refusals; 0: there was none
  };
  struct Loads {
    std::array<Load, FairQueue::kServices> services;
    bool draining = false;
  };
  void TellLoads(std::function<void(Loads)> done);
  TenantLimits LimitsOf(const std::string& tenant) const;
  const std::map<std::string, TenantLimits>& own_limits() const { return options_.tenants; }
  // Starts no more steps; calls `done` when none runs and everything is durable.
  void Drain(std::function<void()> done);
  // Ends the calls that still run, and leaves their steps to the next engine.
  void Halt(std::function<void()> done);

 private:
  using WorkflowPtr = std::shared_ptr<LiveWorkflow>;
  // A step that takes the result of an identical step's run.
  struct Follower {
    WorkflowPtr workflow;
    int step = 0;
    Loop::Clock::time_point since;
  };
  // A call to a service.
  struct Run {
    WorkflowPtr workflow;
    int step = 0;
    metrics::Service service{};
    bool accepted = false;
    bool abandoned = false;  // it only still takes a slot
    bool counted = false;    // its time is on the tenant's account
    Loop::Clock::time_point accepted_at;
    Loop::Clock::time_point last_event;
    int64_t start_us = 0;
    std::string server;
    std::vector<Follower> followers;
    int64_t log_lines = 0;          // of its process, in the step's log
    int64_t unstored_since_us = 0;  // 0: its result has not been refused by the store
    int refused_stores = 0;
  };

  // A workflow that waits in the store until there is room for it.
  struct Asleep {
    std::string tenant;
    int priority = 0;
    uint64_t order = 0;
    int64_t bytes = 0;
    int steps = 0;  // that have not ended
    v1::State state{};
    bool recovered = false;  // an earlier gateway may have begun it
  };
  // The workflows of a tenant in memory.
  struct Awake {
    struct Level {
      int workflows = 0;
      int64_t bytes = 0;
    };
    int64_t bytes = 0;
    std::map<int, Level> levels;  // by priority
  };
  using OnAwake = std::function<void(const absl::Status&)>;
  // A workflow as it enters memory.
  enum class Origin { kCreated, kRecovered, kWoken };

  // engine_sleep.cc: workflows that wait in the store.
  bool HasRoom(const std::string& tenant, int priority, int64_t bytes) const;
  void Occupy(const std::string& tenant, int priority, int64_t bytes);
  void Vacate(const std::string& tenant, int priority, int64_t bytes);
  // Into memory, or to sleep.
  void Take(StoredWorkflow stored, int64_t bytes, int steps);
  void Sleep(const StoredWorkflow& stored, int64_t bytes, int steps, bool recovered);
  void WakeSome();
  void Wake(const std::string& id);
  void Read(const std::string& id, const Asleep& asleep);
  void WakeThen(const std::string& id, OnAwake job);
  void LetSleep();
  void OnRead(const std::string& id, const Asleep& asleep, absl::StatusOr<StoredWorkflow> stored);
  void AddEvents(const LiveWorkflow& workflow, WorkflowUpdate* update);

  // engine.cc: workflows.
  std::function<void()> Guarded(std::function<void()> job);
  void Post(std::function<void()> job);
  void After(std::chrono::milliseconds delay, std::function<void()> job);
  void Settle();
  void Adopt(StoredWorkflow stored, int64_t bytes, Origin origin, bool recovered);
  std::chrono::milliseconds TimeLeft(const v1::Workflow& header, const v1::WorkflowSpec& spec);
  // RESOURCE_EXHAUSTED with QuotaFailure if these steps and bytes exceed the tenant's limits.
  absl::Status CheckQuota(const std::string& tenant, int steps, int64_t bytes);
  void Reclaim(LiveWorkflow& workflow);
  void CancelNow(const WorkflowPtr& workflow, const absl::Status& why);
  void EndInTime(const WorkflowPtr& workflow);
  void EndIfDone(const WorkflowPtr& workflow);
  void KeepOutputs(LiveWorkflow& workflow);
  void Save(const WorkflowPtr& workflow);
  void OnSaved(const WorkflowPtr& workflow, const ViewPtr& view, const WorkflowUpdate& update,
               const absl::Status& status);
  void Forget(const WorkflowPtr& workflow);
  void SetState(LiveWorkflow& workflow, v1::State state);
  metrics::Gauge& Gauge(v1::State state);
  void Touch(const WorkflowPtr& workflow) { touched_.insert(workflow->id); }
  void ShowProgress();
  void PlanWatch();
  void Watch();
  void PlanExpiry();
  void ExpireNowAndThen();
  void ExpireOld();
  int64_t ExpiryTime();
  google::protobuf::Timestamp Now() const { return TimestampOf(loop_.UnixMicroseconds()); }

  // engine_usage.cc: tenants.
  static FairQueue QueueFor(const EngineOptions& options);
  absl::Status CheckStepSeconds(const std::string& tenant, int64_t most) const;
  void CountSeconds(Run& run);
  void SaveSeconds();

  // engine_steps.cc: steps.
  void Ready(const WorkflowPtr& workflow, int step);
  absl::Status MakeRequest(LiveWorkflow& workflow, int step);
  bool Follow(const WorkflowPtr& workflow, int step);
  void Pump();
  void Launch(const WorkflowPtr& workflow, int step);
  void OnEvent(uint64_t run, const StepEvent& event);
  void OnAccepted(Run& run);
  // The traceparent of the step's span; without a tracer, that of the call that created its workflow.
  std::string TraceparentOf(const LiveWorkflow& workflow, const v1::Step& step) const;
  void Begin(Run& run);
  void OnDone(Run run, const absl::Status& status, const StepResult* result);
  void Succeed(const WorkflowPtr& workflow, int step, const StepResult& result);
  void Log(LiveWorkflow& workflow, int step, const std::string& text) {
    AddLogLine(text, loop_.UnixMicroseconds(), &workflow.EditProgress(step));
  }
  void Fail(const WorkflowPtr& workflow, int step, const absl::Status& status);
  void CancelDependents(const WorkflowPtr& workflow, int step, const absl::Status& why);
  void EndStep(const WorkflowPtr& workflow, int step, v1::State state, const absl::Status& why);
  void Detach(const WorkflowPtr& workflow, int step);
  void Abandon(uint64_t id, Run& run);
  void ReleaseFollowers(const std::vector<Follower>& followers);
  void ShowQueue();
  void ShowAges();

  // engine_retry.cc: steps that wait for a service, or begin again.
  void OnUnstored(uint64_t id, Run& run, const absl::Status& status);
  void AddFailedAttempt(v1::Step& step, const std::string& server,
                        const google::protobuf::Timestamp& start, const absl::Status& status);
  void NoteFailure(const Run& run, const absl::Status& status);
  void RetryStep(const Run& run, const absl::Status& status, Ending ending);
  void RetryLater(const WorkflowPtr& workflow, int step, int failures);
  void NodeFailed(const Run& run, const absl::Status& status);
  void Drained(const Run& run, const absl::Status& status);
  void Unreached(const Run& run, const absl::Status& status);
  void LacksDevice(const Run& run, const absl::Status& status);
  bool WaitsAside(const Run& run, const absl::Status& status, std::chrono::milliseconds delay,
                  std::vector<Follower>* followers);
  static std::string ReasonToWait(const LiveStep& step, const absl::Status& status);
  void SetWaitingReason(LiveWorkflow& workflow, int step, const std::string& text);
  // Why a step that has waited for its service since `since_us` fails; OK: it goes on waiting.
  absl::Status OutOfPatience(const LiveWorkflow& workflow, const LiveStep& step, int64_t since_us);
  void Requeue(const WorkflowPtr& workflow, int step);
  void Enqueue(const LiveWorkflow& workflow, int step, int64_t ready_us);
  void Rewind(const WorkflowPtr& workflow, int step, const absl::Status& status);
  void CountRetry(const LiveStep& step, metrics::RetryReason reason);
  double Jitter() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  const EngineOptions options_;
  Loop& loop_;
  JobStore& store_;
  StepRunner& runner_;
  Board& board_;
  Pins& pins_;
  std::mt19937_64 random_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

  std::map<std::string, WorkflowPtr> workflows_;
  std::map<std::string, Asleep> asleep_;  // by id
  // Their turn, by tenant: negative priority, order, id.
  std::map<std::string, std::set<std::tuple<int, uint64_t, std::string>>> sleepers_;
  std::set<std::string> waking_;
  std::deque<std::string> called_;  // asleep, and woken next whatever the room
  std::map<std::string, std::vector<OnAwake>> once_awake_;  // by id
  std::map<std::string, Awake> awake_;                      // by tenant
  int64_t awake_bytes_ = 0;
  bool room_changed_ = false;
  std::set<std::string> touched_;              // workflows, since the last Settle
  std::map<std::string, int> open_steps_;      // by tenant
  std::map<std::string, int64_t> open_bytes_;  // by tenant
  std::map<uint64_t, Run> runs_;
  std::map<std::string, uint64_t> by_key_;  // runs that are not abandoned
  StepSeconds step_seconds_;
  bool seconds_planned_ = false;
  FairQueue queue_;
  std::array<ServiceLoad, FairQueue::kServices> loads_;
  // A step that waits outside the queue, for memory.
  struct Aside {
    metrics::Stage stage;
    int64_t ready_us;
  };
  std::map<metrics::Service, Aside> aside_;
  std::array<bool, FairQueue::kServices> chance_planned_{};
  std::array<int, FairQueue::kStages> shown_depth_{};
  std::array<metrics::Gauge*, FairQueue::kStages> shown_age_{};  // the series, once found
  uint64_t next_run_ = 1, next_order_ = 1;
  bool draining_ = false, halted_ = false, progress_planned_ = false;
  bool expiry_planned_ = false;
  int64_t clock_offset_us_ = 0;             // from the loop's clock to Unix time, as last trusted
  Loop::Clock::time_point clock_jumped_{};  // since when Unix time is not trusted
  Loop::Clock::time_point next_watch_;
  std::function<void()> on_drained_;
};

}  // namespace quench::gateway
