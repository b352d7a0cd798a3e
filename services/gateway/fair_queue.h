// Steps that wait for a slot of their service, and whose turn it is: the tenant with the fewest
// steps running there for its weight; among equals, turns go by stride scheduling (Waldspurger and
// Weihl, 1995), in proportion to their weights. A tenant's steps come by priority, then in their
// order.
#pragma once

#include <array>
#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/metrics/metrics.h"

namespace quench::gateway {

struct StepRef {
  std::string workflow;  // id
  int step = 0;
  auto operator<=>(const StepRef&) const = default;
};

class FairQueue {
 public:
  static constexpr int kServices = static_cast<int>(metrics::Service::kGateway) + 1;
  static constexpr int kStages = static_cast<int>(metrics::Stage::kPackage) + 1;

  struct Entry {
    StepRef ref;
    metrics::Service service;
    metrics::Stage stage;
    std::string tenant;
    uint64_t order = 0;  // among steps of equal priority; unique
    int64_t ready_us = 0;
    int priority = 0;  // the highest first
  };

  // A tenant's part of the services.
  struct Share {
    int weight = 1;
    int max_running = 0;  // steps at once; 0: no limit
  };

  // `shares` by tenant; the others have `general`.
  explicit FairQueue(const Share& general = {1, 0}, std::map<std::string, Share> shares = {})
      : general_(general), shares_(std::move(shares)) {}

  void Add(Entry entry);
  void Remove(const StepRef& ref);
  // Takes out the next entry for this service; none if every waiting one's tenant is at its limit.
  std::optional<Entry> Pop(metrics::Service service);

  void Started(const std::string& tenant, metrics::Service service);
  void Ended(const std::string& tenant, metrics::Service service);
  // Its service has refused the step that was popped last: the tenant keeps its turn.
  void Refused(const std::string& tenant, metrics::Service service);

  int WaitingFor(metrics::Service service) const;
  int Depth(metrics::Stage stage) const { return depth_[static_cast<size_t>(stage)]; }
  // When the step of this stage that has waited longest became ready; nothing if none waits.
  std::optional<int64_t> OldestReady(metrics::Stage stage) const;

 private:
  using Place = std::pair<int, uint64_t>;  // negative priority, order
  using Waiting = std::map<Place, Entry>;
  // A tenant's running steps: in total, which its limit is for, and by service.
  struct Running {
    int total = 0;
    std::array<int, kServices> of{};
  };

  const Share& ShareOf(const std::string& tenant) const {
    const auto found = shares_.find(tenant);
    return found == shares_.end() ? general_ : found->second;
  }

  const Share general_;
  const std::map<std::string, Share> shares_;
  std::array<std::map<std::string, Waiting>, kServices> waiting_;  // by tenant; none is empty
  // Each turn adds 1 / weight to a tenant's pass; the lowest is next. One that had nothing to do begins where the others are.
  std::array<std::map<std::string, double>, kServices> passes_;  // by tenant
  std::array<double, kServices> last_pass_{};                    // of the last turn
  std::map<StepRef, std::pair<metrics::Service, Place>> places_;
  std::map<std::string, Running> running_;
  std::array<std::multiset<int64_t>, kStages> ready_us_;
  std::array<int, kStages> depth_{};
};

}  // namespace quench::gateway
