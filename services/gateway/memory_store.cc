#include "services/gateway/memory_store.h"

#include <algorithm>
#include <limits>

#include "common/base/status.h"
#include "services/gateway/cloud_event.h"
#include "services/gateway/fleet.h"
#include "services/gateway/view.h"

namespace quench::gateway {

void MemoryJobStore::Create(StoredWorkflow workflow, Done done) {
  absl::Status status;
  {
    const std::lock_guard lock(mutex_);
    status = CreateLocked(std::move(workflow));
  }
  done(status);
}

absl::Status MemoryJobStore::CreateLocked(StoredWorkflow workflow) {
  const std::string id = IdOf(workflow.workflow.name());
  const std::string& request_id = workflow.workflow.request_id();
  const v1::FleetShard& shard = workflow.workflow.fleet();
  if (workflow.workflow.has_fleet()) {
    for (const v1::Workflow& other : FleetLocked(workflow.workflow.tenant(), shard.fleet())) {
      if (other.fleet().shards() != shard.shards())
        return OtherShards(shard, other.fleet().shards());
      const bool same_request = !request_id.empty() && other.request_id() == request_id;
      if (other.fleet().shard() == shard.shard() && !same_request) return ShardExists(shard);
    }
  }
  if (!request_id.empty()) {
    const std::pair key(workflow.workflow.tenant(), request_id);
    if (!requests_.emplace(key, StoredRequest{id, workflow.spec_hash}).second) {
      return RequestIdInUse(request_id);
    }
  }
  workflows_[id] = std::move(workflow);
  return absl::OkStatus();
}

void MemoryJobStore::Update(WorkflowUpdate update, Done done) {
  absl::Status status;
  {
    const std::lock_guard lock(mutex_);
    status = UpdateLocked(update);
  }
  done(status);
}

absl::Status MemoryJobStore::UpdateLocked(const WorkflowUpdate& update) {
  const std::string id = IdOf(update.header.name());
  const auto found = workflows_.find(id);
  if (found == workflows_.end()) return NoSuchWorkflow(id);
  v1::Workflow& stored = found->second.workflow;
  if (stored.revision() != update.previous_revision) {
    return absl::AbortedError(fmt::format("workflow `{}` is at revision {}, not {}", stored.name(),
                                          stored.revision(), update.previous_revision));
  }
  v1::Workflow changed = update.header;
  changed.mutable_steps()->Swap(stored.mutable_steps());
  for (const auto& [position, step] : update.steps) *changed.mutable_steps(position) = *step;
  stored.Swap(&changed);
  if (update.spec != nullptr) {
    found->second.spec = *update.spec;
    kept_.erase(id);
  }
  PutEvents(update.events);
  if (!HasEnded(stored.state())) return absl::OkStatus();
  if (stored.has_fleet() && !update.fleet_urls.empty()) {
    const std::vector<v1::Workflow> fleet = FleetLocked(stored.tenant(), stored.fleet().fleet());
    const bool ended = std::all_of(fleet.begin(), fleet.end(),
                                   [](const auto& each) { return HasEnded(each.state()); });
    if (ended && static_cast<int>(fleet.size()) >= stored.fleet().shards())
      PutEvents(FleetEvents(update.fleet_urls, fleet));
  }
  found->second.spec.Clear();
  if (stored.state() == v1::STATE_SUCCEEDED) found->second.asked.Clear();
  if (stored.has_outputs_expire_time()) {
    kept_[id] = {id, stored.tenant(), update.kept, Microseconds(stored.outputs_expire_time())};
  }
  return absl::OkStatus();
}

void MemoryJobStore::Delete(const std::string& tenant, const std::string& id, Done done) {
  absl::Status status;
  {
    const std::lock_guard lock(mutex_);
    status = DeleteLocked(tenant, id);
  }
  done(status);
}

absl::Status MemoryJobStore::DeleteLocked(const std::string& tenant, const std::string& id) {
  const auto found = workflows_.find(id);
  if (found == workflows_.end() || found->second.workflow.tenant() != tenant) {
    return NoSuchWorkflow(id);
  }
  if (!HasEnded(found->second.workflow.state())) return NotEnded(id);
  Forget(id);
  return absl::OkStatus();
}

void MemoryJobStore::Forget(const std::string& id) {
  const auto found = workflows_.find(id);
  requests_.erase({found->second.workflow.tenant(), found->second.workflow.request_id()});
  workflows_.erase(found);
  kept_.erase(id);
}

void MemoryJobStore::Expire(int64_t now_us, const EndedLimits& limits, Forgotten done) {
  // A workflow, or those of a fleet.
  struct Together {
    std::vector<std::string> ids;
    std::string tenant;
    int64_t bytes = 0, first_us = std::numeric_limits<int64_t>::max(), last_us = 0;
    bool ended = true;
  };
  std::vector<std::string> forgotten;
  {
    const std::lock_guard lock(mutex_);
    std::map<std::string, Together> groups;
    for (const auto& [id, stored] : workflows_) {
      const v1::Workflow& workflow = stored.workflow;
      Together& group =
          groups[workflow.has_fleet() ? workflow.tenant() + "/" + workflow.fleet().fleet() : id];
      group.ids.push_back(id);
      group.tenant = workflow.tenant();
      group.bytes += static_cast<int64_t>(workflow.ByteSizeLong() + stored.asked.ByteSizeLong());
      group.ended = group.ended && HasEnded(workflow.state());
      group.first_us = std::min(group.first_us, Microseconds(workflow.expire_time()));
      group.last_us = std::max(group.last_us, Microseconds(workflow.expire_time()));
    }
    std::vector<const Together*> ended;
    for (const auto& [name, group] : groups) {
      if (group.ended) ended.push_back(&group);
    }
    std::sort(ended.begin(), ended.end(), [](const Together* one, const Together* other) {
      return one->first_us > other->first_us;
    });
    std::map<std::string, EndedLimits> left;
    for (const Together* group : ended) {
      EndedLimits& tenant = left.emplace(group->tenant, limits).first->second;
      tenant.workflows -= static_cast<int64_t>(group->ids.size());
      tenant.bytes -= group->bytes;
      if (group->last_us <= now_us || tenant.workflows < 0 || tenant.bytes < 0)
        forgotten.insert(forgotten.end(), group->ids.begin(), group->ids.end());
    }
    for (const std::string& id : forgotten) Forget(id);
  }
  done(absl::OkStatus(), forgotten);
}

absl::StatusOr<StoredWorkflow> MemoryJobStore::Get(const std::string& tenant,
                                                   const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = workflows_.find(id);
  if (found == workflows_.end() || (!tenant.empty() && found->second.workflow.tenant() != tenant)) {
    return NoSuchWorkflow(id);
  }
  return found->second;
}

absl::StatusOr<std::optional<StoredRequest>> MemoryJobStore::FindRequest(
    const std::string& tenant, const std::string& request_id) {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find({tenant, request_id});
  if (found == requests_.end()) return std::nullopt;
  return found->second;
}

absl::StatusOr<WorkflowPage> MemoryJobStore::List(const ListQuery& query) {
  PagePosition after = StartOf(query.order);
  if (!query.page_token.empty()) {
    QUENCH_ASSIGN_OR_RETURN(after, ParsePageToken(query.page_token));
  }
  const auto precedes = [&query](const PagePosition& a, const PagePosition& b) {
    return query.order.ascending ? a < b : b < a;
  };
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<PagePosition, const v1::Workflow*>> found;
  for (const auto& [id, stored] : workflows_) {
    const v1::Workflow& workflow = stored.workflow;
    const PagePosition position = PositionOf(workflow, query.order);
    const bool state = query.states.empty() ||
                       std::count(query.states.begin(), query.states.end(), workflow.state()) > 0;
    const bool tenant = query.tenant.empty() || workflow.tenant() == query.tenant;
    if (tenant && state && precedes(after, position) && Matches(query.filter, workflow))
      found.emplace_back(position, &workflow);
  }
  std::sort(found.begin(), found.end(),
            [&](const auto& a, const auto& b) { return precedes(a.first, b.first); });
  WorkflowPage page;
  const size_t most = std::min(found.size(), static_cast<size_t>(query.page_size));
  size_t count = 0;
  for (size_t bytes = 0; count < most; ++count) {
    v1::Workflow workflow = *found[count].second;
    workflow.clear_steps();
    bytes += workflow.ByteSizeLong();
    if (bytes > kMostBytes && count > 0) break;
    page.workflows.push_back(std::move(workflow));
  }
  if (count < found.size()) page.next_page_token = PageToken(found[count - 1].first);
  return page;
}

std::vector<v1::Workflow> MemoryJobStore::FleetLocked(const std::string& tenant,
                                                      const std::string& fleet) const {
  std::vector<v1::Workflow> found;
  for (const auto& [id, stored] : workflows_) {
    const v1::Workflow& workflow = stored.workflow;
    if (!workflow.has_fleet() || workflow.tenant() != tenant || workflow.fleet().fleet() != fleet)
      continue;
    found.push_back(workflow);
    found.back().clear_steps();
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.fleet().shard() < b.fleet().shard(); });
  return found;
}

absl::StatusOr<std::vector<v1::Workflow>> MemoryJobStore::ListFleet(const std::string& tenant,
                                                                    const std::string& fleet) {
  const std::lock_guard lock(mutex_);
  return FleetLocked(tenant, fleet);
}

absl::StatusOr<FleetPage> MemoryJobStore::ListFleets(const FleetQuery& query) {
  PagePosition after{std::numeric_limits<int64_t>::max(), "~"};
  if (!query.page_token.empty()) {
    QUENCH_ASSIGN_OR_RETURN(after, ParsePageToken(query.page_token));
  }
  const std::lock_guard lock(mutex_);
  std::map<std::pair<std::string, std::string>, int64_t> begun;  // tenant, fleet
  for (const auto& [id, stored] : workflows_) {
    const v1::Workflow& workflow = stored.workflow;
    if (!workflow.has_fleet() || (!query.tenant.empty() && workflow.tenant() != query.tenant))
      continue;
    const int64_t us = Microseconds(workflow.create_time());
    const auto [found, fresh] =
        begun.try_emplace({workflow.tenant(), workflow.fleet().fleet()}, us);
    found->second = std::min(found->second, us);
  }
  std::map<PagePosition, std::pair<std::string, std::string>> fleets;
  for (const auto& [name, us] : begun) {
    const PagePosition position{us, name.first + "/" + name.second};
    if (position < after) fleets.emplace(position, name);
  }
  FleetPage page;
  for (auto each = fleets.rbegin(); each != fleets.rend(); ++each) {
    if (static_cast<int>(page.fleets.size()) == query.page_size) {
      page.next_page_token = PageToken(std::prev(each)->first);
      break;
    }
    page.fleets.push_back(FleetOf(FleetLocked(each->second.first, each->second.second)));
  }
  return page;
}

absl::Status MemoryJobStore::ForEachUnfinished(const std::function<void(StoredWorkflow)>& visit) {
  std::vector<StoredWorkflow> unfinished;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, stored] : workflows_) {
      if (!HasEnded(stored.workflow.state())) unfinished.push_back(stored);
    }
  }
  std::sort(unfinished.begin(), unfinished.end(), [](const auto& a, const auto& b) {
    return Microseconds(a.workflow.create_time()) < Microseconds(b.workflow.create_time());
  });
  for (StoredWorkflow& stored : unfinished) visit(std::move(stored));
  return absl::OkStatus();
}

void MemoryJobStore::PutEvents(const std::vector<QueuedEvent>& events) {
  for (const QueuedEvent& event : events)
    events_.try_emplace(event.id, Waiting{event, event.first_us});
}

absl::StatusOr<std::vector<QueuedEvent>> MemoryJobStore::DueEvents(int64_t now_us, int most) {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<int64_t, QueuedEvent>> due;
  for (const auto& [id, waiting] : events_) {
    if (waiting.next_us <= now_us) due.emplace_back(waiting.next_us, waiting.event);
  }
  std::sort(due.begin(), due.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<QueuedEvent> events;
  for (auto& [next_us, event] : due) {
    if (static_cast<int>(events.size()) < most) events.push_back(std::move(event));
  }
  return events;
}

void MemoryJobStore::Delivered(const std::string& id) {
  const std::lock_guard lock(mutex_);
  events_.erase(id);
}

void MemoryJobStore::Dropped(const std::string& id) { Delivered(id); }

void MemoryJobStore::PostLater(const std::string& id, int attempts, int64_t next_us) {
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(id);
  if (found == events_.end()) return;
  found->second.event.attempts = attempts;
  found->second.next_us = next_us;
}

void MemoryJobStore::PutStepSeconds(std::vector<StepSecondsRow> rows, Done done) {
  {
    const std::lock_guard lock(mutex_);
    for (const StepSecondsRow& row : rows) step_seconds_[{row.day, row.tenant}] = row.seconds;
  }
  done(absl::OkStatus());
}

absl::StatusOr<std::vector<StepSecondsRow>> MemoryJobStore::LoadStepSeconds(int64_t day) {
  const std::lock_guard lock(mutex_);
  std::vector<StepSecondsRow> rows;
  for (const auto& [key, seconds] : step_seconds_) {
    if (key.first == day) rows.push_back({key.second, day, seconds});
  }
  return rows;
}

absl::Status MemoryJobStore::ForEachKept(const std::function<bool(KeptOutputs)>& visit) {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, kept] : kept_) {
    if (!visit(kept)) break;
  }
  return absl::OkStatus();
}

}  // namespace quench::gateway
