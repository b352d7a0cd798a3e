#include "services/gateway/fair_queue.h"

#include <algorithm>
#include <tuple>

namespace quench::gateway {

void FairQueue::Add(Entry entry) {
  const auto service = static_cast<size_t>(entry.service);
  ++depth_[static_cast<size_t>(entry.stage)];
  ready_us_[static_cast<size_t>(entry.stage)].insert(entry.ready_us);
  const Place place(-entry.priority, entry.order);
  places_[entry.ref] = {entry.service, place};
  if (!waiting_[service].contains(entry.tenant)) {
    double& pass = passes_[service][entry.tenant];
    pass = std::max(pass, last_pass_[service]);
  }
  waiting_[service][entry.tenant].emplace(place, std::move(entry));
}

void FairQueue::Remove(const StepRef& ref) {
  const auto found = places_.find(ref);
  if (found == places_.end()) return;
  const auto [service, place] = found->second;
  auto& tenants = waiting_[static_cast<size_t>(service)];
  for (auto tenant = tenants.begin(); tenant != tenants.end(); ++tenant) {
    const auto entry = tenant->second.find(place);
    if (entry == tenant->second.end()) continue;
    --depth_[static_cast<size_t>(entry->second.stage)];
    auto& ready = ready_us_[static_cast<size_t>(entry->second.stage)];
    ready.erase(ready.find(entry->second.ready_us));
    tenant->second.erase(entry);
    if (tenant->second.empty()) tenants.erase(tenant);
    break;
  }
  places_.erase(found);
}

int FairQueue::WaitingFor(metrics::Service service) const {
  size_t count = 0;
  for (const auto& [tenant, waiting] : waiting_[static_cast<size_t>(service)])
    count += waiting.size();
  return static_cast<int>(count);
}

std::optional<FairQueue::Entry> FairQueue::Pop(metrics::Service service) {
  const auto index = static_cast<size_t>(service);
  auto& tenants = waiting_[index];
  auto best = tenants.end();
  std::tuple<double, double, uint64_t> best_rank;
  for (auto tenant = tenants.begin(); tenant != tenants.end(); ++tenant) {
    const auto found = running_.find(tenant->first);
    const Running running = found == running_.end() ? Running() : found->second;
    const Share& share = ShareOf(tenant->first);
    double& pass = passes_[index][tenant->first];
    if (share.max_running > 0 && running.total >= share.max_running) {
      pass = std::max(pass, last_pass_[index]);  // it saves up no turns
      continue;
    }
    const std::tuple rank(static_cast<double>(running.of[index]) / share.weight, pass,
                          tenant->second.begin()->second.order);
    if (best == tenants.end() || rank < best_rank)
      std::tie(best, best_rank) = std::pair(tenant, rank);
  }
  if (best == tenants.end()) return std::nullopt;
  Entry entry = best->second.begin()->second;
  double& pass = passes_[index][entry.tenant];
  last_pass_[index] = pass;
  pass += 1.0 / ShareOf(entry.tenant).weight;
  Remove(entry.ref);
  return entry;
}

void FairQueue::Started(const std::string& tenant, metrics::Service service) {
  Running& running = running_[tenant];
  ++running.total;
  ++running.of[static_cast<size_t>(service)];
}

void FairQueue::Ended(const std::string& tenant, metrics::Service service) {
  const auto running = running_.find(tenant);
  --running->second.of[static_cast<size_t>(service)];
  if (--running->second.total == 0) running_.erase(running);
}

void FairQueue::Refused(const std::string& tenant, metrics::Service service) {
  passes_[static_cast<size_t>(service)][tenant] -= 1.0 / ShareOf(tenant).weight;
}

std::optional<int64_t> FairQueue::OldestReady(metrics::Stage stage) const {
  const std::multiset<int64_t>& ready = ready_us_[static_cast<size_t>(stage)];
  if (ready.empty()) return std::nullopt;
  return *ready.begin();
}

}  // namespace quench::gateway
