// An engine whose time a test moves, and whose services do as they are told.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <mutex>

#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "services/gateway/engine.h"
#include "services/gateway/expand.h"
#include "services/gateway/memory_store.h"
#include "tests/unit/services/gateway/sample_specs.h"

namespace quench::gateway {

using std::chrono::milliseconds;

// Time passes when the test says so; jobs run in the test's thread.
class ManualLoop final : public Loop {
 public:
  void Post(Job job) override {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  void After(milliseconds delay, Job job) override {
    const std::lock_guard lock(mutex_);
    timers_.emplace(now_ + delay, std::move(job));
  }
  Clock::time_point Now() const override { return now_; }
  int64_t UnixMicroseconds() const override {
    return 1'000'000'000'000'000 + set_ahead_us +
           std::chrono::duration_cast<std::chrono::microseconds>(now_.time_since_epoch()).count();
  }

  int64_t set_ahead_us = 0;  // the machine's clock, by whoever keeps it
  // Time in which nothing here runs, as while a machine is paused.
  void StandStill(milliseconds duration) { now_ += duration; }

  void RunJobs() {
    while (true) {
      Job job;
      {
        const std::lock_guard lock(mutex_);
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      job();
    }
  }
  void RunFor(milliseconds duration) {
    const Clock::time_point end = now_ + duration;
    while (true) {
      RunJobs();
      std::unique_lock lock(mutex_);
      if (timers_.empty() || timers_.begin()->first > end) break;
      now_ = std::max(now_, timers_.begin()->first);
      Job job = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
      lock.unlock();
      job();
    }
    now_ = end;
  }

 private:
  std::mutex mutex_;
  std::deque<Job> jobs_;
  std::multimap<Clock::time_point, Job> timers_;
  Clock::time_point now_{std::chrono::hours(1)};
};

// The behaviour of a service for one call.
struct Behaviour {
  bool accepts = true;
  milliseconds after{10};  // until it ends; less than 0: never by itself
  absl::Status status;     // OK: with a result
  int progress = 0;        // events before the end
  bool ignores_cancel = false;
  bool cache_hit = false;
  int refused_stores = 0;  // of its result, before one succeeds
};
inline Behaviour Fails(const absl::Status& status, bool accepts = true) {
  return {accepts, milliseconds(10), status};
}
inline Behaviour Hangs() { return {true, milliseconds(-1), {}}; }
inline absl::Status ShedFor(milliseconds delay) {
  return rpc::WithRetryAfter(rpc::Error(rpc::Reason::kSlotsFull, "all slots are taken"), delay);
}
inline absl::Status MemoryFullFor(milliseconds delay) {
  return rpc::WithRetryAfter(rpc::Error(rpc::Reason::kMemoryFull, "memory is reserved"), delay);
}
inline absl::Status Missing(const std::string& hash) {
  return rpc::WithPrecondition(rpc::Error(rpc::Reason::kBlobMissing, "a blob is gone"),
                               {"MISSING", "blobs/" + hash + "/1", ""});
}

class FakeRunner final : public StepRunner {
 public:
  explicit FakeRunner(Loop& loop) : loop_(loop) {}

  // Asked for each call; `name` is METHOD, or METHOD:MODEL for imports.
  std::function<Behaviour(const StepCall&)> behave = [](const StepCall&) { return Behaviour(); };
  std::function<bool(metrics::Service)> serves = [](metrics::Service) { return true; };

  bool Serves(metrics::Service service) const override { return serves(service); }
  void Start(const StepCall& call, OnEvent on_event) override {
    calls.push_back(call);
    const Behaviour behaviour = behave(call);
    const uint64_t run = call.run;
    live_[run] = {call, behaviour, std::move(on_event)};
    most_at_once = std::max(most_at_once, live_.size());
    if (behaviour.accepts) {
      StepEvent accepted;
      accepted.kind = StepEvent::kAccepted;
      accepted.server = "fake";
      live_[run].on_event(accepted);
    }
    for (int i = 1; i <= behaviour.progress; ++i) {
      loop_.After(behaviour.after * i / (behaviour.progress + 1), [this, run, i] {
        const auto found = live_.find(run);
        if (found == live_.end()) return;
        StepEvent event;
        event.kind = StepEvent::kProgress;
        event.progress.set_done(i);
        found->second.on_event(event);
      });
    }
    if (behaviour.after.count() < 0) return;
    loop_.After(behaviour.after, [this, run] { Finish(run); });
  }
  void Cancel(uint64_t run) override {
    cancelled.push_back(run);
    const auto found = live_.find(run);
    if (found == live_.end() || found->second.behaviour.ignores_cancel) return;
    loop_.Post([this, run] { End(run, absl::CancelledError("cancelled")); });
  }

  void StoreAgain(uint64_t run) override {
    ++stored_again;
    Finish(run);
  }

  // As `behave` said.
  void Finish(uint64_t run) {
    const auto found = live_.find(run);
    if (found == live_.end()) return;
    Behaviour& behaviour = found->second.behaviour;
    if (!behaviour.status.ok() || behaviour.refused_stores == 0) {
      End(run, behaviour.status);
      return;
    }
    --behaviour.refused_stores;
    StepEvent event;
    event.kind = StepEvent::kUnstored;
    event.status = absl::ResourceExhaustedError("the disk is full");
    found->second.on_event(event);
  }
  void End(uint64_t run, absl::Status status) {  // a copy: it may be the run's own
    const auto found = live_.find(run);
    if (found == live_.end()) return;
    const Live live = std::move(found->second);
    live_.erase(found);
    StepEvent event;
    event.status = status;
    if (status.ok()) event.result = ResultOf(live.call, live.behaviour);
    live.on_event(event);
  }
  size_t running() const { return live_.size(); }
  void ForgetAll() { live_.clear(); }

  // Every output that the method has, named by what went in.
  static std::shared_ptr<StepResult> ResultOf(const StepCall& call, const Behaviour& behaviour) {
    std::unique_ptr<google::protobuf::Message> request(call.request->New());
    request->CopyFrom(*call.request);
    const auto* step = request->GetDescriptor()->FindFieldByName("step");
    request->GetReflection()->ClearField(request.get(), step);
    auto result = std::make_shared<StepResult>();
    for (const std::string name : {"imported", "canonical", "module", "file", "report",
                                   "report_json", "library", "header", "result"}) {
      const OutputKind kind = KindOfOutput(*call.row, name);
      if (kind == OutputKind::kNone) continue;
      v1::StepOutput& output = result->outputs.emplace_back();
      output.set_name(name);
      *output.mutable_digest() = DigestOf(call.row->method + name + Serialised(*request));
      if (kind == OutputKind::kModule) *output.mutable_module()->mutable_digest() = output.digest();
    }
    result->execution.set_cache_hit(behaviour.cache_hit);
    return result;
  }

  std::vector<StepCall> calls;  // in order
  std::vector<uint64_t> cancelled;
  size_t most_at_once = 0;
  int stored_again = 0;

 private:
  struct Live {
    StepCall call;
    Behaviour behaviour;
    OnEvent on_event;
  };
  Loop& loop_;
  std::map<uint64_t, Live> live_;
};

class EngineHarness {
 public:
  EngineHarness() { Options().registry = &registry; }
  ~EngineHarness() { engine.reset(); }

  EngineOptions& Options() { return options_; }

  // As the service would: the blobs are pinned, the spec is written out.
  std::string Create(const v1::WorkflowSpec& spec, const std::string& tenant = "t") {
    absl::Status status = absl::UnknownError("never answered");
    const std::string id = fmt::format("{:032x}", ++created_);
    CreateAs(id, spec, tenant, &status);
    EXPECT_EQ(status, absl::OkStatus());
    return id;
  }
  void CreateAs(const std::string& id, const v1::WorkflowSpec& spec, const std::string& tenant,
                absl::Status* status) {
    if (engine == nullptr) Boot();
    const auto expanded = Expand(spec);
    ASSERT_TRUE(expanded.ok()) << expanded.status();
    std::vector<std::string> needed;
    for (const Digest& digest : InputsOf(expanded->steps())) needed.push_back(digest.hash());
    pins->Add(id, needed);
    StoredWorkflow workflow = NewWorkflow(id, tenant, "", *expanded, "", loop.UnixMicroseconds());
    workflow.asked = spec;
    engine->Create(std::move(workflow), BytesOf(*expanded, 0),
                   [status](const absl::Status& outcome) { *status = outcome; });
    loop.RunJobs();
  }

  // As the service would.
  absl::Status Retry(const std::string& id, const std::string& tenant = "t") {
    absl::Status status = absl::UnknownError("never answered");
    auto stored = store.Get(tenant, id);
    EXPECT_TRUE(stored.ok()) << stored.status();
    if (stored->asked.has_steps() && HasEnded(stored->workflow.state()))
      stored->spec = *Expand(stored->asked);
    WorkflowNeeds needs;
    for (const Digest& digest : InputsOf(stored->spec.steps()))
      needs.hashes.push_back(digest.hash());
    needs.bytes = BytesOf(stored->spec, 0);
    engine->Retry(*std::move(stored), needs,
                  [&status](const absl::Status& outcome) { status = outcome; });
    loop.RunJobs();
    return status;
  }
  absl::Status Cancel(const std::string& id, const std::string& tenant = "t") {
    absl::Status status = absl::UnknownError("never answered");
    engine->Cancel(tenant, id, [&status](const absl::Status& outcome) { status = outcome; });
    loop.RunJobs();
    return status;
  }

  // As readers see it.
  v1::Workflow Get(const std::string& id, const std::string& tenant = "t") {
    if (const ViewPtr view = board->Find(id)) return FullMessage(*view);
    const auto stored = store.Get(tenant, id);
    EXPECT_TRUE(stored.ok()) << stored.status();
    return stored.ok() ? stored->workflow : v1::Workflow();
  }
  v1::State StateOf(const std::string& id) { return Get(id).state(); }
  v1::Step StepOf(const std::string& id, const std::string& name) {
    const v1::Workflow workflow = Get(id);
    for (const v1::Step& step : workflow.steps()) {
      if (step.name() == name) return step;
    }
    ADD_FAILURE() << "no step " << name;
    return {};
  }

  // A new engine on the same store, as after a crash: what ran is forgotten by all but the store.
  void Boot() {
    BootWithoutJobs();
    loop.RunJobs();
  }
  void BootWithoutJobs() {
    engine.reset();
    loop.RunJobs();
    runner.ForgetAll();
    board = std::make_unique<Board>();
    pins = std::make_unique<Pins>();
    engine = std::make_unique<Engine>(options_, loop, store, runner, *board, *pins);
    EXPECT_EQ(engine->Recover([](const StoredWorkflow& stored) {
      WorkflowNeeds needs;
      for (const Digest& digest : InputsOf(stored.spec.steps()))
        needs.hashes.push_back(digest.hash());
      needs.bytes = BytesOf(stored.spec, 0);
      return needs;
    }),
              absl::OkStatus());
    EXPECT_EQ(engine->RecoverKept(false), absl::OkStatus());
  }

  double Value(metrics::Counter& counter) { return counter.Value(); }

  metrics::Registry registry;
  ManualLoop loop;
  MemoryJobStore store;
  FakeRunner runner{loop};
  std::unique_ptr<Board> board;
  std::unique_ptr<Pins> pins;
  std::unique_ptr<Engine> engine;

 private:
  EngineOptions options_;
  int created_ = 0;
};

}  // namespace quench::gateway
