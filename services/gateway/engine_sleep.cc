// Workflows that wait in the store: memory holds as many as have room, however many there are.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/base/status.h"
#include "services/gateway/cloud_event.h"
#include "services/gateway/engine.h"

namespace quench::gateway {

using std::chrono::milliseconds;

namespace {

constexpr size_t kMostWaking = 4;
constexpr int64_t kShareAboveLimit = 4;  // the part of it that a tenant may have, as a divisor
constexpr auto kReadAgain = milliseconds(1000);

}  // namespace

// A fleet that fills memory is not in the way of other tenants, nor of more urgent workflows: these have room above the
// limit. A tenant's first workflow always has room, and one that is more urgent than all others of its tenant.
bool Engine::HasRoom(const std::string& tenant, int priority, int64_t bytes) const {
  if (awake_bytes_ + bytes <= options_.max_live_bytes) return true;
  const auto found = awake_.find(tenant);
  if (found == awake_.end()) return true;
  const std::map<int, Awake::Level>& levels = found->second.levels;
  if (levels.rbegin()->first < priority) return true;
  if (awake_bytes_ + bytes > 2 * options_.max_live_bytes) return false;
  for (auto level = levels.lower_bound(priority); level != levels.end(); ++level)
    bytes += level->second.bytes;
  return bytes <= options_.max_live_bytes / kShareAboveLimit;
}

void Engine::Occupy(const std::string& tenant, int priority, int64_t bytes) {
  Awake& awake = awake_[tenant];
  awake.bytes += bytes;
  Awake::Level& level = awake.levels[priority];
  ++level.workflows;
  level.bytes += bytes;
  awake_bytes_ += bytes;
}

void Engine::Vacate(const std::string& tenant, int priority, int64_t bytes) {
  const auto found = awake_.find(tenant);
  Awake& awake = found->second;
  awake.bytes -= bytes;
  awake_bytes_ -= bytes;
  Awake::Level& level = awake.levels[priority];
  level.bytes -= bytes;
  if (--level.workflows == 0) awake.levels.erase(priority);
  if (awake.levels.empty()) awake_.erase(found);
  room_changed_ = true;
}

void Engine::Take(StoredWorkflow stored, int64_t bytes, int steps) {
  const v1::Workflow& header = stored.workflow;
  const auto sleepers = sleepers_.find(header.tenant());
  // Sleepers of its tenant that are as urgent and came earlier have their turn first.
  const bool behind =
      sleepers != sleepers_.end() && std::get<0>(*sleepers->second.begin()) <= -header.priority();
  if (!behind && HasRoom(header.tenant(), header.priority(), bytes)) {
    Adopt(std::move(stored), bytes, Origin::kCreated, false);
  } else {
    board_.Expect(IdOf(header.name()), header.tenant());
    Sleep(stored, bytes, steps, false);
  }
}

// Its blobs stay pinned.
void Engine::Sleep(const StoredWorkflow& stored, int64_t bytes, int steps, bool recovered) {
  const v1::Workflow& header = stored.workflow;
  const std::string id = IdOf(header.name());
  const Asleep asleep{header.tenant(), header.priority(), next_order_++, bytes,
                      steps,           header.state(),    recovered};
  asleep_[id] = asleep;
  sleepers_[asleep.tenant].emplace(-asleep.priority, asleep.order, id);
  Gauge(asleep.state).Increment();
  room_changed_ = true;
  if (!stored.spec.has_timeout()) return;
  After(TimeLeft(header, stored.spec), [this, id] {
    if (asleep_.contains(id))
      WakeThen(id, [](const absl::Status&) {});  // to end, as its time is over
  });
}

// The tenant with the least in memory comes first.
void Engine::WakeSome() {
  if (draining_ || !room_changed_) return;
  while (!called_.empty() && waking_.size() < kMostWaking &&
         (waking_.empty() || awake_bytes_ <= 2 * options_.max_live_bytes)) {
    const std::string id = std::move(called_.front());
    called_.pop_front();
    if (asleep_.contains(id)) Wake(id);
  }
  while (!sleepers_.empty() && waking_.size() < kMostWaking) {
    const std::string* next = nullptr;
    int64_t least = 0;
    for (const auto& [tenant, waiting] : sleepers_) {
      const Asleep& first = asleep_.at(std::get<2>(*waiting.begin()));
      if (!HasRoom(tenant, first.priority, first.bytes)) continue;
      const auto awake = awake_.find(tenant);
      const int64_t bytes = awake == awake_.end() ? 0 : awake->second.bytes;
      if (next == nullptr || bytes < least) {
        next = &std::get<2>(*waiting.begin());
        least = bytes;
      }
    }
    if (next == nullptr) break;
    Wake(std::string(*next));
  }
  room_changed_ = false;  // the end of each read sets it again
}

void Engine::Wake(const std::string& id) {
  const auto found = asleep_.find(id);
  const Asleep asleep = found->second;
  asleep_.erase(found);
  const auto waiting = sleepers_.find(asleep.tenant);
  waiting->second.erase({-asleep.priority, asleep.order, id});
  if (waiting->second.empty()) sleepers_.erase(waiting);
  Occupy(asleep.tenant, asleep.priority, asleep.bytes);
  waking_.insert(id);
  Read(id, asleep);
}

void Engine::Read(const std::string& id, const Asleep& asleep) {
  options_.read([this, alive = std::weak_ptr<bool>(alive_), &store = store_, id, asleep] {
    auto stored = std::make_shared<absl::StatusOr<StoredWorkflow>>(store.Get(asleep.tenant, id));
    if (alive.expired()) return;
    Post([this, id, asleep, stored] { OnRead(id, asleep, std::move(*stored)); });
  });
}

// Some at a time: a fleet that is cancelled is not in memory all at once.
void Engine::WakeThen(const std::string& id, OnAwake job) {
  if (draining_ && !waking_.contains(id)) {
    job(Drains());
    return;
  }
  std::vector<OnAwake>& jobs = once_awake_[id];
  if (jobs.empty() && !waking_.contains(id)) called_.push_back(id);
  jobs.push_back(std::move(job));
  room_changed_ = true;
}

// Sleepers that were to be read for a caller's sake are not any more.
void Engine::LetSleep() {
  for (const std::string& id : std::exchange(called_, {})) {
    const auto jobs = once_awake_.extract(id);
    if (jobs.empty()) continue;
    for (const OnAwake& job : jobs.mapped()) job(Drains());
  }
}

void Engine::OnRead(const std::string& id, const Asleep& asleep,
                    absl::StatusOr<StoredWorkflow> stored) {
  if (halted_) return;
  if (!stored.ok() && !absl::IsDataLoss(stored.status()) && !absl::IsNotFound(stored.status())) {
    spdlog::error("workflow={} cannot be read, tried again: {}", id, MessageOf(stored.status()));
    After(kReadAgain, [this, id, asleep] { Read(id, asleep); });
    return;
  }
  Gauge(asleep.state).Decrement();
  // One that is gone is as if it had ended.
  const absl::Status read = absl::IsNotFound(stored.status()) ? absl::OkStatus() : stored.status();
  if (stored.ok()) {
    Adopt(*std::move(stored), asleep.bytes, Origin::kWoken, asleep.recovered);
  } else {
    spdlog::error("workflow={} is left out: {}", id, MessageOf(stored.status()));
    Vacate(asleep.tenant, asleep.priority, asleep.bytes);
    open_bytes_[asleep.tenant] -= asleep.bytes;
    open_steps_[asleep.tenant] -= asleep.steps;
    pins_.Remove(id);
    board_.Remove(id);
  }
  room_changed_ = true;
  waking_.erase(id);
  const auto jobs = once_awake_.extract(id);
  if (jobs.empty()) return;
  for (const OnAwake& job : jobs.mapped()) job(read);
}

// Events for the receivers that the workflow names. One that was told already has the same id.
void Engine::AddEvents(const LiveWorkflow& workflow, WorkflowUpdate* update) {
  std::vector<std::string> all, of_steps;
  for (const v1::Webhook& webhook : workflow.spec.webhooks()) {
    all.push_back(webhook.url());
    if (webhook.steps()) of_steps.push_back(webhook.url());
  }
  if (all.empty()) return;
  const std::string source = "/" + update->header.name();
  const auto add = [update](std::vector<QueuedEvent> events) {
    std::move(events.begin(), events.end(), std::back_inserter(update->events));
  };
  const int64_t now = loop_.UnixMicroseconds();
  for (const auto& [position, step] : update->steps) {
    if (of_steps.empty() || !HasEnded(step->state())) continue;
    v1::Step told = *step;
    told.clear_log();
    add(EventsFor(of_steps, kStepEnded,
                  fmt::format("{}.{}.{}", workflow.id, position, step->retried_after_attempt()),
                  source + "/steps/" + step->name(), now, told));
  }
  if (!HasEnded(update->header.state())) return;
  add(EventsFor(all, kWorkflowEnded,
                fmt::format("{}.{}", workflow.id, Microseconds(update->header.retry_time())),
                source, now, update->header));
  update->fleet_urls = all;
}

}  // namespace quench::gateway
