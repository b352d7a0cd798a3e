#include "services/gateway/board.h"

namespace quench::gateway {

ViewPtr Board::Find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : found->second.view;
}

Board::Watched Board::Watch(const std::string& tenant, const std::string& id,
                            const std::weak_ptr<Watcher>& watcher) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return {};
  Entry& entry = found->second;
  const std::string& owner = entry.view == nullptr ? entry.tenant : entry.view->header.tenant();
  if (!tenant.empty() && owner != tenant) return {};
  std::erase_if(entry.watchers, [](const auto& each) { return each.expired(); });
  entry.watchers.push_back(watcher);
  return {entry.view, true};
}

void Board::Expect(const std::string& id, const std::string& tenant) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[id];
  entry.view = nullptr;
  entry.tenant = tenant;
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
