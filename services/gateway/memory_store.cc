#include "services/gateway/memory_store.h"

#include <algorithm>

#include "common/base/status.h"

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
  if (!HasEnded(stored.state())) return absl::OkStatus();
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
  std::vector<std::string> forgotten;
  {
    const std::lock_guard lock(mutex_);
    std::vector<std::pair<int64_t, std::string>> ended;  // by when they expire
    for (const auto& [id, stored] : workflows_) {
      if (!HasEnded(stored.workflow.state())) continue;
      ended.emplace_back(Microseconds(stored.workflow.expire_time()), id);
    }
    std::sort(ended.rbegin(), ended.rend());
    std::map<std::string, EndedLimits> left;
    for (const auto& [expire_us, id] : ended) {
      const StoredWorkflow& stored = workflows_.at(id);
      EndedLimits& tenant = left.emplace(stored.workflow.tenant(), limits).first->second;
      tenant.workflows -= 1;
      tenant.bytes -=
          static_cast<int64_t>(stored.workflow.ByteSizeLong() + stored.asked.ByteSizeLong());
      if (expire_us <= now_us || tenant.workflows < 0 || tenant.bytes < 0) forgotten.push_back(id);
    }
    for (const std::string& id : forgotten) Forget(id);
  }
  done(absl::OkStatus(), forgotten);
}

absl::StatusOr<StoredWorkflow> MemoryJobStore::Get(const std::string& tenant,
                                                   const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = workflows_.find(id);
  if (found == workflows_.end() || found->second.workflow.tenant() != tenant) {
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
  PagePosition after{std::numeric_limits<int64_t>::max(), ""};
  if (!query.page_token.empty()) {
    QUENCH_ASSIGN_OR_RETURN(after, ParsePageToken(query.page_token));
  }
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<PagePosition, const v1::Workflow*>> found;
  for (const auto& [id, stored] : workflows_) {
    const v1::Workflow& workflow = stored.workflow;
    const PagePosition position{Microseconds(workflow.create_time()), id};
    const bool state = query.states.empty() ||
                       std::count(query.states.begin(), query.states.end(), workflow.state()) > 0;
    if (workflow.tenant() == query.tenant && state && position < after) {
      found.emplace_back(position, &workflow);
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return b < a; });
  WorkflowPage page;
  const size_t count = std::min(found.size(), static_cast<size_t>(query.page_size));
  for (size_t i = 0; i < count; ++i) {
    page.workflows.push_back(*found[i].second);
    page.workflows.back().clear_steps();
  }
  if (count < found.size()) page.next_page_token = PageToken(found[count - 1].first);
  return page;
}

absl::StatusOr<std::vector<StoredWorkflow>> MemoryJobStore::LoadUnfinished() {
  const std::lock_guard lock(mutex_);
  std::vector<StoredWorkflow> unfinished;
  for (const auto& [id, stored] : workflows_) {
    if (!HasEnded(stored.workflow.state())) unfinished.push_back(stored);
  }
  std::sort(unfinished.begin(), unfinished.end(), [](const auto& a, const auto& b) {
    return Microseconds(a.workflow.create_time()) < Microseconds(b.workflow.create_time());
  });
  return unfinished;
}

absl::Status MemoryJobStore::ForEachKept(const std::function<bool(KeptOutputs)>& visit) {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, kept] : kept_) {
    if (!visit(kept)) break;
  }
  return absl::OkStatus();
}

}  // namespace quench::gateway
