#include "services/gateway/tenants_service.h"

#include <chrono>
#include <limits>
#include <set>

#include "services/gateway/workflow_api.h"

namespace quench::gateway {
namespace {

// 0 where there is no limit.
int64_t LimitOrNone(uint64_t bytes) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  return bytes >= kMost ? 0 : static_cast<int64_t>(bytes);
}

void AddTenant(const std::string& name, const TenantLimits& limits, const TenantUsage& usage,
               uint64_t kept, uint64_t max_kept, int64_t now_us,
               v1::ListTenantsResponse* response) {
  v1::Tenant& tenant = *response->add_tenants();
  tenant.set_name(name);
  tenant.set_running_steps(usage.running_steps);
  // One that runs for others after its workflow has ended is not among the open ones.
  tenant.set_queued_steps(std::max(0, usage.open_steps - usage.running_steps));
  tenant.set_live_workflows(usage.workflows);
  tenant.set_queued_bytes(usage.bytes);
  tenant.set_kept_bytes(static_cast<int64_t>(kept));
  tenant.set_step_seconds(usage.step_seconds);
  const int64_t day = StepSeconds::DayOf(now_us);
  *tenant.mutable_period_start_time() = TimestampOf(StepSeconds::StartOf(day));
  *tenant.mutable_period_end_time() = TimestampOf(StepSeconds::StartOf(day + 1));
  v1::TenantLimits& its = *tenant.mutable_limits();
  its.set_weight(limits.weight);
  its.set_max_queued_steps(limits.max_queued_steps);
  its.set_max_running_steps(limits.max_running_steps);
  its.set_max_queued_bytes(limits.max_queued_bytes);
  its.set_max_kept_bytes(LimitOrNone(max_kept));
  its.set_max_step_seconds_per_day(limits.max_step_seconds);
}

}  // namespace

absl::StatusOr<v1::ListTenantsResponse> TenantsFor(const std::string& named,
                                                   const StepContext& step, const Engine& engine,
                                                   const Engine::Usage& usage, const Pins& pins,
                                                   int64_t now_us) {
  const bool all = named.empty() && step.role() == CallerRole::kOperator;
  QUENCH_ASSIGN_OR_RETURN(const std::string one, ListedTenant(all ? "-" : named, step));
  const std::map<std::string, uint64_t> kept = pins.kept_by_tenant();
  std::set<std::string> names;
  if (!one.empty()) {
    names.insert(one);
  } else {
    names.insert(TenantOf(step));
    for (const auto& [name, its] : usage) names.insert(name);
    for (const auto& [name, bytes] : kept) names.insert(name);
    for (const auto& [name, limits] : engine.own_limits()) names.insert(name);
  }
  v1::ListTenantsResponse response;
  for (const std::string& name : names) {
    const auto used = usage.find(name);
    const auto keeps = kept.find(name);
    AddTenant(name, engine.LimitsOf(name), used == usage.end() ? TenantUsage() : used->second,
              keeps == kept.end() ? 0 : keeps->second, pins.LimitOf(name), now_us, &response);
  }
  return response;
}

TenantsService::TenantsService(Engine& engine, const Pins& pins, rpc::CallPool& control)
    : engine_(engine),
      pins_(pins),
      list_(control, v1::Tenants::service_full_name(), "ListTenants", metrics::GrpcType::kUnary) {}

grpc::ServerUnaryReactor* TenantsService::ListTenants(grpc::CallbackServerContext* context,
                                                      const v1::ListTenantsRequest* request,
                                                      v1::ListTenantsResponse* response) {
  return rpc::UnaryLater(
      list_, context, request, response,
      [this](const auto& asked, const StepContext& step,
             const rpc::Answer<v1::ListTenantsResponse>& answer) {
        engine_.TellUsage([this, named = asked.tenant(), step, answer](const Engine::Usage& usage) {
          const int64_t now_us = std::chrono::duration_cast<std::chrono::microseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count();
          answer(TenantsFor(named, step, engine_, usage, pins_, now_us));
        });
      });
}

}  // namespace quench::gateway
