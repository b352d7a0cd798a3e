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

bool Pins::IsPinned(const std::string& hash) const {
  const std::lock_guard lock(mutex_);
  return counts_.contains(hash);
}

void Pins::Add(const std::string& owner, const std::vector<std::string>& hashes) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string>& owned = owners_[owner];
  for (const std::string& hash : hashes) {
    owned.push_back(hash);
    ++counts_[hash];
  }
}

void Pins::Remove(const std::string& owner) {
  const std::lock_guard lock(mutex_);
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return;
  for (const std::string& hash : found->second) {
    const auto count = counts_.find(hash);
    if (--count->second == 0) counts_.erase(count);
  }
  owners_.erase(found);
}

size_t Pins::size() const {
  const std::lock_guard lock(mutex_);
  return counts_.size();
}

}  // namespace quench::gateway
