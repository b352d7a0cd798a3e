#include <spdlog/spdlog.h>

#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "services/gateway/engine.h"

namespace quench::gateway {
namespace {

// A crash forgets so much of what was counted.
constexpr auto kSaveSeconds = std::chrono::milliseconds(1000);

}  // namespace

TenantLimits Engine::LimitsOf(const std::string& tenant) const {
  const auto own = options_.tenants.find(tenant);
  TenantLimits limits = own == options_.tenants.end() ? TenantLimits() : own->second;
  if (limits.weight == 0) limits.weight = 1;
  if (limits.max_queued_steps == 0) limits.max_queued_steps = options_.max_queued_steps;
  if (limits.max_running_steps == 0) limits.max_running_steps = options_.max_running_steps;
  if (limits.max_queued_bytes == 0) limits.max_queued_bytes = options_.max_queued_bytes;
  if (limits.max_step_seconds == 0) limits.max_step_seconds = options_.max_step_seconds;
  return limits;
}

FairQueue Engine::QueueFor(const EngineOptions& options) {
  std::map<std::string, FairQueue::Share> shares;
  for (const auto& [tenant, limits] : options.tenants) {
    shares[tenant] = {std::max(limits.weight, 1), limits.max_running_steps > 0
                                                      ? limits.max_running_steps
                                                      : options.max_running_steps};
  }
  return FairQueue({1, options.max_running_steps}, std::move(shares));
}

absl::Status Engine::CheckStepSeconds(const std::string& tenant, int64_t most) const {
  const int64_t now_us = loop_.UnixMicroseconds();
  const double used = step_seconds_.Of(tenant, now_us);
  if (most == 0 || used < static_cast<double>(most)) return absl::OkStatus();
  const std::string limit = fmt::format(
      "its steps have taken {:.0f} s of the services' time today, the limit is {} s a day (UTC)",
      used, most);
  const int64_t next_us = StepSeconds::StartOf(StepSeconds::DayOf(now_us) + 1);
  return rpc::WithRetryAfter(
      rpc::WithQuota(
          rpc::Error(rpc::Reason::kQuotaExceeded, fmt::format("of tenant `{}` {}", tenant, limit)),
          {"tenant:" + tenant, limit}),
      std::chrono::ceil<std::chrono::milliseconds>(std::chrono::microseconds(next_us - now_us)));
}

// A service has worked on the step since it accepted it: whatever came of it, and whoever waited.
void Engine::CountSeconds(Run& run) {
  if (!run.accepted || std::exchange(run.counted, true)) return;
  const double seconds = std::chrono::duration<double>(loop_.Now() - run.accepted_at).count();
  step_seconds_.Count(run.workflow->header.tenant(), seconds, loop_.UnixMicroseconds());
  if (std::exchange(seconds_planned_, true)) return;
  After(kSaveSeconds, [this] { SaveSeconds(); });
}

void Engine::SaveSeconds() {
  seconds_planned_ = false;
  store_.PutStepSeconds(step_seconds_.TakeChanged(), [](const absl::Status& status) {
    // The account goes on in memory, and the next write has the whole sum.
    if (!status.ok()) spdlog::error("step-seconds cannot be saved: {}", MessageOf(status));
  });
}

void Engine::TellLoads(std::function<void(Loads)> done) {
  Post([this, done = std::move(done)] {
    Loads loads;
    loads.draining = draining_;
    for (int i = 0; i < FairQueue::kServices; ++i) {
      const ServiceLoad& its = loads_[i];
      loads.services[i] = {its.running(), queue_.WaitingFor(static_cast<metrics::Service>(i)),
                           its.limit_is_known() ? its.limit() : 0};
    }
    done(loads);
  });
}

void Engine::TellUsage(std::function<void(Usage)> done) {
  Post([this, done = std::move(done)] {
    Usage usage;
    for (const auto& [tenant, steps] : open_steps_) usage[tenant].open_steps = steps;
    for (const auto& [tenant, bytes] : open_bytes_) usage[tenant].bytes = bytes;
    for (const auto& [id, workflow] : workflows_) ++usage[workflow->header.tenant()].workflows;
    for (const auto& [id, asleep] : asleep_) ++usage[asleep.tenant].workflows;
    for (const auto& [id, run] : runs_) {
      if (run.accepted) ++usage[run.workflow->header.tenant()].running_steps;
    }
    for (const auto& [tenant, seconds] : step_seconds_.All(loop_.UnixMicroseconds())) {
      usage[tenant].step_seconds = seconds;
    }
    std::erase_if(usage, [](const auto& each) {
      const TenantUsage& its = each.second;
      return its.open_steps == 0 && its.running_steps == 0 && its.workflows == 0 &&
             its.bytes == 0 && its.step_seconds == 0;
    });
    done(std::move(usage));
  });
}

}  // namespace quench::gateway
