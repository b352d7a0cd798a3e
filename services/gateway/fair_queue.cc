#include "services/gateway/fair_queue.h"

#include <algorithm>
#include <tuple>

namespace quench::gateway {

void FairQueue::Add(Entry entry) {
  const auto service = static_cast<size_t>(entry.service);
  ++depth_[static_cast<size_t>(entry.stage)];
  places_[entry.ref] = {entry.service, entry.order};
  const uint64_t order = entry.order;
  waiting_[service][entry.tenant].emplace(order, std::move(entry));
}

void FairQueue::Remove(const StepRef& ref) {
  const auto place = places_.find(ref);
  if (place == places_.end()) return;
  const auto [service, order] = place->second;
  auto& tenants = waiting_[static_cast<size_t>(service)];
  for (auto tenant = tenants.begin(); tenant != tenants.end(); ++tenant) {
    const auto entry = tenant->second.find(order);
    if (entry == tenant->second.end()) continue;
    --depth_[static_cast<size_t>(entry->second.stage)];
    tenant->second.erase(entry);
    if (tenant->second.empty()) tenants.erase(tenant);
    break;
  }
  places_.erase(place);
}

std::optional<FairQueue::Entry> FairQueue::Pop(metrics::Service service) {
  auto& tenants = waiting_[static_cast<size_t>(service)];
  auto best = tenants.end();
  std::pair<int, uint64_t> best_rank;
  for (auto tenant = tenants.begin(); tenant != tenants.end(); ++tenant) {
    const std::pair rank(Running(tenant->first), tenant->second.begin()->first);
    if (max_running_ > 0 && rank.first >= max_running_) continue;
    if (best == tenants.end() || rank < best_rank)
      std::tie(best, best_rank) = std::pair(tenant, rank);
  }
  if (best == tenants.end()) return std::nullopt;
  Entry entry = best->second.begin()->second;
  Remove(entry.ref);
  return entry;
}

void FairQueue::Ended(const std::string& tenant) {
  const auto running = running_.find(tenant);
  if (--running->second == 0) running_.erase(running);
}

int FairQueue::Running(const std::string& tenant) const {
  const auto running = running_.find(tenant);
  return running == running_.end() ? 0 : running->second;
}

std::optional<int64_t> FairQueue::OldestReady(metrics::Stage stage) const {
  std::optional<int64_t> oldest;
  for (const auto& tenants : waiting_) {
    for (const auto& [tenant, waiting] : tenants) {
      for (const auto& [order, entry] : waiting) {
        if (entry.stage == stage)
          oldest = std::min(oldest.value_or(entry.ready_us), entry.ready_us);
      }
    }
  }
  return oldest;
}

}  // namespace quench::gateway
