#include "services/cli/all_in_one/all_in_one.h"

#include <spdlog/spdlog.h>

#include "common/base/status.h"
#include "common/base/users_socket.h"
#include "common/rpc/address.h"
#include "common/steps/config.h"
#include "common/steps/read_config.h"
#include "common/steps/storage.h"
#include "services/analyser/service.h"
#include "services/codegen/service.h"
#include "services/gateway/host.h"
#include "services/importer/service.h"
#include "services/quantizer/service.h"

namespace quench::all_in_one {
namespace {

const std::vector<const steps::ServiceDefinition*>& Definitions() {
  static const auto* const definitions = new std::vector<const steps::ServiceDefinition*>{
      &importer::ImporterDefinition(), &analyser::AnalyserDefinition(),
      &quantizer::QuantizerDefinition(), &codegen::CodegenDefinition()};
  return *definitions;
}

// The gateway and the services behind it, without sockets between them.
class AllInOne final : public steps::Serving {
 public:
  static absl::StatusOr<std::unique_ptr<Serving>> Start(const config::v1::AllInOneConfig& config) {
    auto all = std::make_unique<AllInOne>();
    gateway::GatewayHost::Options options;
    options.config = config.gateway();
    options.usual_console = true;
    QUENCH_ASSIGN_OR_RETURN(const std::filesystem::path root,
                            gateway::GatewayHost::BlobRoot(config.gateway()));
    config::v1::BlobStore blobs = config.gateway().blobs();
    if (blobs.has_remote()) {
      blobs.set_cache_folder((root / "services").string());  // beside the gateway's own copies
    } else {
      blobs.set_folder(root.string());
    }
    QUENCH_ASSIGN_OR_RETURN(const steps::StepRunner::StorageOf storage,
                            steps::OpenStorage(blobs, !config.steps().no_action_cache()));
    QUENCH_ASSIGN_OR_RETURN(all->tracer_,
                            steps::TracerOf(config.gateway().server(), "serve", options.registry));
    options.tracer = all->tracer_.get();
    options.config.mutable_server()->clear_tracing();  // it is done for all
    // The services are reached where the gateway is.
    config::v1::Steps steps = config.steps();
    const std::string& listen = config.gateway().server().listen();
    if (!steps.has_require_sandbox()) {
      steps.set_require_sandbox(!listen.empty() && !rpc::IsLocal(listen));
    }
    QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<steps::MemoryBudget> memory,
                            steps::OpenMemory(steps, root / "memory-serve", options.registry));
    const auto channel_of = [&](metrics::Service service) {
      for (size_t i = 0; i < Definitions().size(); ++i) {
        if (Definitions()[i]->service == service) {
          return rpc::Channel::InProcess(all->services_[i]->server());
        }
      }
      return std::shared_ptr<rpc::Channel>();
    };
    for (const steps::ServiceDefinition* definition : Definitions()) {
      steps::ServiceHost::Options service;
      service.config.steps = steps;
      service.config.blobs.set_folder(root.string());  // where the key of libraries lies
      service.in_process = true;
      service.tracer = options.tracer;
      service.storage = storage;
      service.memory = memory;
      QUENCH_ASSIGN_OR_RETURN(auto host, steps::ServiceHost::Start(*definition, service));
      all->services_.push_back(std::move(host));
    }
    options.channels.importer = channel_of(metrics::Service::kImporter);
    options.channels.analyser = channel_of(metrics::Service::kAnalyser);
    options.channels.quantizer = channel_of(metrics::Service::kQuantizer);
    options.channels.codegen = channel_of(metrics::Service::kCodegen);
    QUENCH_ASSIGN_OR_RETURN(all->gateway_, gateway::GatewayHost::Start(options));
    return std::unique_ptr<Serving>(std::move(all));
  }

  // The gateway's channels before the servers that they lead to.
  ~AllInOne() override { gateway_.reset(); }
  void Drain() override {
    gateway_->Drain();
    if (tracer_ != nullptr) tracer_->Flush();
  }

 private:
  std::unique_ptr<rpc::Tracer> tracer_;  // outlives all that records
  std::vector<std::unique_ptr<steps::ServiceHost>> services_;
  std::unique_ptr<gateway::GatewayHost> gateway_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<steps::Serving>> Start(const steps::ServerArguments& arguments) {
  config::v1::AllInOneConfig config;
  if (!arguments.config.empty()) {
    QUENCH_RETURN_IF_ERROR(steps::ReadConfig(arguments.config, &config));
  }
  config::v1::GatewayConfig& gateway = *config.mutable_gateway();
  QUENCH_RETURN_IF_ERROR(steps::PutInto(arguments, gateway.mutable_server()));
  // Callers run code as this user: unless told otherwise, nobody else may.
  const bool is_users_own = gateway.server().listen().empty();
  if (is_users_own) {
    QUENCH_ASSIGN_OR_RETURN(const std::string socket, UsersSocket());
    QUENCH_RETURN_IF_ERROR(MakeFolderOf(socket));
    gateway.mutable_server()->set_listen(socket);
  }
  if (!arguments.state_dir.empty()) gateway.set_state_dir(arguments.state_dir);
  if (!arguments.console.empty()) gateway.mutable_console()->set_listen(arguments.console);
  auto all = AllInOne::Start(config);
  if (all.ok() && is_users_own) {
    spdlog::info("this user's commands reach it by `--gateway local`, or QUENCH_GATEWAY=local");
  }
  return all;
}

std::vector<steps::Step> AllSteps() {
  std::vector<steps::Step> all;
  for (const steps::ServiceDefinition* definition : Definitions()) {
    all.insert(all.end(), definition->steps.begin(), definition->steps.end());
  }
  return all;
}

}  // namespace quench::all_in_one
