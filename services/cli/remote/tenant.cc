#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include "common/base/status.h"
#include "quench/gateway/v1/tenants.pb.h"
#include "services/cli/local_store.h"
#include "services/cli/remote.h"
#include "services/cli/remote/client.h"

namespace quench::cli {
namespace {

namespace pb = ::quench::gateway::v1;

std::string BytesText(int64_t bytes) {
  constexpr double kMib = 1 << 20;
  return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / kMib);
}

// `12/100`: of a limit; `12` without one.
template <typename Number>
std::string Within(Number used, int64_t limit) {
  const std::string text = fmt::format("{:.0f}", static_cast<double>(used));
  return limit == 0 ? text : fmt::format("{}/{}", text, limit);
}

std::string BytesWithin(int64_t used, int64_t limit) {
  return limit == 0 ? BytesText(used) : fmt::format("{} of {}", BytesText(used), BytesText(limit));
}

void PrintTable(const std::vector<pb::Tenant>& tenants) {
  const auto line = [](const auto&... words) {
    fmt::print("{:<20} {:>6} {:>14} {:>16} {:>9} {:>22} {:>22}  {}\n", words...);
  };
  line("tenant", "weight", "running", "queued", "workflows", "queued bytes", "kept bytes",
       "step-seconds today (UTC)");
  for (const pb::Tenant& tenant : tenants) {
    const pb::TenantLimits& limits = tenant.limits();
    line(tenant.name(), limits.weight(), Within(tenant.running_steps(), limits.max_running_steps()),
         Within(tenant.queued_steps(), limits.max_queued_steps()), tenant.live_workflows(),
         BytesWithin(tenant.queued_bytes(), limits.max_queued_bytes()),
         BytesWithin(tenant.kept_bytes(), limits.max_kept_bytes()),
         Within(tenant.step_seconds(), limits.max_step_seconds_per_day()));
  }
}

}  // namespace

absl::Status TenantUsageThere(const TenantJob& job, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(job.gateway, store, context));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<pb::Tenant> tenants,
                          client->Tenants(job.tenant, context));
  if (job.format != "json") {
    PrintTable(tenants);
    return absl::OkStatus();
  }
  pb::ListTenantsResponse all;
  all.mutable_tenants()->Assign(tenants.begin(), tenants.end());
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(all, &json, options).ok()) {
    return Internal("a message cannot be written as JSON");
  }
  fmt::print("{}", json);
  return absl::OkStatus();
}

}  // namespace quench::cli
