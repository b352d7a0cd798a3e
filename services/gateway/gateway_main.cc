#include "common/base/status.h"
#include "common/steps/read_config.h"
#include "services/gateway/host.h"
#include "services/gateway/main.h"

namespace quench::gateway {
namespace {

class ServingGateway final : public steps::Serving {
 public:
  explicit ServingGateway(std::unique_ptr<GatewayHost> host) : host_(std::move(host)) {}
  void Drain() override { host_->Drain(); }

 private:
  std::unique_ptr<GatewayHost> host_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<steps::Serving>> StartGateway(
    const steps::ServerArguments& arguments) {
  GatewayHost::Options options;
  config::v1::GatewayConfig& config = options.config;
  if (!arguments.config.empty()) {
    QUENCH_RETURN_IF_ERROR(steps::ReadConfig(arguments.config, &config));
  }
  QUENCH_RETURN_IF_ERROR(steps::PutInto(arguments, config.mutable_server()));
  if (!arguments.state_dir.empty()) config.set_state_dir(arguments.state_dir);
  if (!arguments.console.empty()) config.mutable_console()->set_listen(arguments.console);
  QUENCH_ASSIGN_OR_RETURN(auto host, GatewayHost::Start(options));
  return std::unique_ptr<steps::Serving>(std::make_unique<ServingGateway>(std::move(host)));
}

int GatewayMain(int argc, char** argv) {
  steps::ServerProgram program;
  program.name = "gateway";
  program.full_name = v1::Workflows::service_full_name();
  program.config = "GatewayConfig";
  program.port = kDefaultPort;
  program.has_state = true;
  program.start = StartGateway;
  return steps::ServerMain(argc, argv, program);
}

}  // namespace quench::gateway
