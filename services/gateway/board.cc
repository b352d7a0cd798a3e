#include "services/gateway/board.h"

namespace quench::gateway {

ViewPtr Board::Find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : found->second.view;
}

ViewPtr Board::Watch(const std::string& tenant, const std::string& id,
                     const std::weak_ptr<Watcher>& watcher) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return nullptr;
  if (found->second.view->header.tenant() != tenant) return nullptr;
  std::erase_if(found->second.watchers, [](const auto& each) { return each.expired(); });
  found->second.watchers.push_back(watcher);
  return found->second.view;
}

void Board::Publish(const std::string& id, const ViewPtr& view) {
  std::vector<std::shared_ptr<Watcher>> watchers;
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_[id];
    entry.view = view;
    for (const std::weak_ptr<Watcher>& each : entry.watchers) {
      if (auto watcher = each.lock()) watchers.push_back(std::move(watcher));
    }
  }
  for (const std::shared_ptr<Watcher>& watcher : watchers) watcher->OnView(view);
}

void Board::Remove(const std::string& id) {
  const std::lock_guard lock(mutex_);
  entries_.erase(id);
}

}  // namespace quench::gateway
