#include "services/gateway/overview_service.h"

#include <chrono>

#include "common/rpc/tenants.h"

namespace quench::gateway {
namespace {

int64_t UnixNow() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// The slots of a service in this process, whose pool shows them; 0 for others.
int OwnSlots(metrics::Registry& registry, metrics::Service service) {
  return static_cast<int>(
      registry.Get(metrics::kSlots, service, metrics::SlotState::kBusy).Value() +
      registry.Get(metrics::kSlots, service, metrics::SlotState::kFree).Value());
}

}  // namespace

OverviewService::OverviewService(Engine& engine, const Pins& pins, const WorkerWatch& workers,
                                 TellStore tell_store, metrics::Registry& registry,
                                 rpc::CallPool& control)
    : engine_(engine),
      pins_(pins),
      workers_(workers),
      tell_store_(std::move(tell_store)),
      registry_(registry),
      start_us_(UnixNow()),
      get_(control, v1::Overview::service_full_name(), "GetOverview", metrics::GrpcType::kUnary) {}

grpc::ServerUnaryReactor* OverviewService::GetOverview(grpc::CallbackServerContext* context,
                                                       const v1::GetOverviewRequest* request,
                                                       v1::GetOverviewResponse* response) {
  return rpc::UnaryLater(get_, context, request, response,
                         [this](const auto&, const StepContext& step,
                                const rpc::Answer<v1::GetOverviewResponse>& answer) {
                           v1::GetOverviewResponse seen;
                           seen.set_tenant(step.tenant());
                           seen.set_role(rpc::RoleName(step.role()));
                           seen.set_version(QUENCH_VERSION);
                           *seen.mutable_start_time() = TimestampOf(start_us_);
                           v1::StoreState& store = *seen.mutable_store();
                           if (tell_store_) tell_store_(&store);
                           store.set_pinned_blobs(static_cast<int64_t>(pins_.size()));
                           store.set_kept_bytes(static_cast<int64_t>(pins_.kept_bytes()));
                           engine_.TellLoads([this, seen, answer, role = step.role()](
                                                 const Engine::Loads& loads) mutable {
                             AddServices(loads, role, &seen);
                             answer(std::move(seen));
                           });
                         });
}

void OverviewService::AddServices(const Engine::Loads& loads, CallerRole role,
                                  v1::GetOverviewResponse* response) const {
  response->set_draining(loads.draining);
  for (const auto& [service, seen] : workers_.seen()) {
    const Engine::Load& load = loads.services.at(static_cast<size_t>(service));
    v1::ServiceState& state = *response->add_services();
    state.set_name(metrics::internal::LabelOf<metrics::Service>::Text(service));
    state.set_serving(seen.serves);
    // gRPC's own words name addresses behind the gateway.
    if (!seen.serves)
      state.set_problem(role == CallerRole::kOperator ? seen.problem : "does not answer");
    state.set_running_steps(load.running);
    state.set_queued_steps(load.queued);
    const int own = OwnSlots(registry_, service);
    state.set_slots(own > 0 ? own : load.slots);
  }
}

}  // namespace quench::gateway
