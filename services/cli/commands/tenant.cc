#include "common/base/status.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/remote.h"

namespace quench::cli {
namespace {

constexpr char kTenantExamples[] = R"(Examples:
  quench tenant usage --gateway build-farm:7450     what your tenant uses and may; an operator sees all tenants
  quench tenant usage --tenant research             one of them
  quench tenant usage --format json)";

struct TenantArgs {
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  TenantJob job;
};

}  // namespace

Action DeclareTenant(const Options& options) {
  auto args = std::make_shared<TenantArgs>();
  options.Examples(kTenantExamples);
  const Options usage =
      options.Subcommand("usage", "Show steps, workflows, bytes and step-seconds of tenants");
  usage.Add("--tenant", args->job.tenant, "Only this tenant", "NAME");
  AddFormat(usage, args->job.format);
  AddGatewayOptions(options, args->gateway);
  return [args](const StepContext& context) -> absl::Status {
    if (!UsesGateway(*args->gateway)) {
      return InvalidArgument("tenants are a gateway's: give --gateway or set QUENCH_GATEWAY");
    }
    args->job.gateway = *args->gateway;
    return TenantUsageThere(args->job, context);
  };
}

}  // namespace quench::cli
