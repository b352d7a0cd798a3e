#include <spdlog/spdlog.h>

#include <condition_variable>
#include <csignal>
#include <mutex>

#include "common/base/status.h"
#include "common/steps/config.h"
#include "common/steps/main.h"
#include "common/steps/storage.h"
#include "services/analyser/service.h"
#include "services/cli/all_steps.h"
#include "services/cli/commands/declarations.h"
#include "services/codegen/service.h"
#include "services/gateway/host.h"
#include "services/gateway/main.h"
#include "services/importer/service.h"
#include "services/quantizer/service.h"

namespace quench::cli {
namespace {

constexpr char kExamples[] = R"(Examples:
  quench serve                                            gateway and services in one process, on 127.0.0.1:7450
  quench serve --listen 127.0.0.1:0 --state-dir /tmp/q    elsewhere; the port is logged
  quench serve --metrics-listen 127.0.0.1:9450            http://127.0.0.1:9450/metrics for Prometheus
  quench serve --service codegen --config codegen.txtpb   one service by itself, as quench-codegen
  quench compile model.onnx --gateway 127.0.0.1:7450      uses it

Configuration files are protobuf text (.txtpb) or JSON (.json): quench.config.v1.AllInOneConfig, or the message of the
service. Steps run in processes of their own. SIGTERM or Ctrl-C drains: running steps finish, a second one ends at once.)";

struct ServeArgs {
  bool all_in_one = false;
  std::string service;
  steps::ServerArguments server;
};

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
    QUENCH_ASSIGN_OR_RETURN(const std::filesystem::path root,
                            gateway::GatewayHost::BlobRoot(config.gateway()));
    config::v1::BlobStore blobs;
    blobs.set_folder(root.string());
    QUENCH_ASSIGN_OR_RETURN(const steps::StepRunner::StorageOf storage,
                            steps::OpenStorage(blobs, !config.steps().no_action_cache()));
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
      service.config.steps = config.steps();
      service.in_process = true;
      service.storage = storage;
      QUENCH_ASSIGN_OR_RETURN(auto host, steps::ServiceHost::Start(*definition, service));
      all->services_.push_back(std::move(host));
    }
    options.channels.importer = channel_of(metrics::Service::kImporter);
    options.channels.analyser = channel_of(metrics::Service::kAnalyser);
    options.channels.codegen = channel_of(metrics::Service::kCodegen);
    QUENCH_ASSIGN_OR_RETURN(all->gateway_, gateway::GatewayHost::Start(options));
    return std::unique_ptr<Serving>(std::move(all));
  }

  // The gateway's channels before the servers that they lead to.
  ~AllInOne() override { gateway_.reset(); }
  void Drain() override { gateway_->Drain(); }

 private:
  std::vector<std::unique_ptr<steps::ServiceHost>> services_;
  std::unique_ptr<gateway::GatewayHost> gateway_;
};

absl::StatusOr<std::unique_ptr<steps::Serving>> StartAllInOne(const ServeArgs& args) {
  config::v1::AllInOneConfig config;
  if (!args.server.config.empty()) {
    QUENCH_RETURN_IF_ERROR(steps::ReadConfig(args.server.config, &config));
  }
  config::v1::GatewayConfig& gateway = *config.mutable_gateway();
  if (!args.server.listen.empty()) gateway.mutable_server()->set_listen(args.server.listen);
  if (!args.server.metrics_listen.empty()) {
    gateway.mutable_server()->set_metrics_listen(args.server.metrics_listen);
  }
  if (!args.server.state_dir.empty()) gateway.set_state_dir(args.server.state_dir);
  return AllInOne::Start(config);
}

absl::StatusOr<std::unique_ptr<steps::Serving>> Start(const ServeArgs& args) {
  if (args.service.empty()) return StartAllInOne(args);
  if (args.service == "gateway") return gateway::StartGateway(args.server);
  if (!args.server.state_dir.empty()) {
    return InvalidArgument("--state-dir: `{}` keeps no state", args.service);
  }
  for (const steps::ServiceDefinition* definition : Definitions()) {
    if (definition->name == args.service) return steps::StartService(*definition, args.server);
  }
  return Internal("there is no service `{}`", args.service);
}

absl::Status Serve(const ServeArgs& args, const StepContext& context) {
  if (args.all_in_one && !args.service.empty()) {
    return InvalidArgument("--all-in-one and --service exclude each other");
  }
  (void)std::signal(SIGPIPE, SIG_IGN);
  spdlog::set_level(spdlog::level::info);
  QUENCH_ASSIGN_OR_RETURN(const auto serving, Start(args));
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  wake.wait(lock, context.cancel_token()->stop_token(), [] { return false; });
  spdlog::info("draining");
  serving->Drain();
  return absl::OkStatus();
}

}  // namespace

std::vector<steps::Step> AllSteps() {
  std::vector<steps::Step> all;
  for (const steps::ServiceDefinition* definition : Definitions()) {
    all.insert(all.end(), definition->steps.begin(), definition->steps.end());
  }
  return all;
}

Action DeclareServe(const Options& options) {
  auto args = std::make_shared<ServeArgs>();
  options.Flag("--all-in-one", args->all_in_one,
               "Gateway and services in this process (the default)");
  options.Add("--service", args->service, "Only this one", "NAME")
      .OneOf({"gateway", "importer", "analyser", "quantizer", "codegen"});
  options.Add("--config", args->server.config, "Configuration file", "FILE");
  options.Add("--listen", args->server.listen, "Where it is reached; port 0 takes a free one",
              "HOST:PORT|unix:PATH (default 127.0.0.1:7450)");
  options.Add("--metrics-listen", args->server.metrics_listen, "Where Prometheus finds /metrics",
              "HOST:PORT (default: nowhere)");
  options.Add("--state-dir", args->server.state_dir, "Workflows and blobs",
              "DIR (default ~/.local/state/quench)");
  options.Examples(kExamples);
  return [args](const StepContext& context) { return Serve(*args, context); };
}

}  // namespace quench::cli
