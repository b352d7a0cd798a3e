#include "common/steps/host.h"

#include <fmt/ranges.h>
#include <grpcpp/impl/service_type.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/rpc/address.h"
#include "common/steps/config.h"
#include "common/steps/read_config.h"
#include "common/steps/storage.h"

namespace quench::steps {
namespace {

// For operators: which of several servers did it.
std::string ThisServer(const std::string& name) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("{}@{}/{}", name, host.data(), ::getpid());
}

rpc::CallPool::Options PoolOptions(const rpc::Callers* callers, metrics::Registry* registry) {
  rpc::CallPool::Options options;
  options.callers = callers;
  options.registry = registry;
  return options;
}

// With a folder, the services that share it share the key that lies there. A remote store has no such place.
absl::StatusOr<std::shared_ptr<const Provenance>> ProvenanceOf(const ServiceConfig& config,
                                                               bool is_required) {
  const std::filesystem::path file = config.steps.library_key_file();
  if (!file.empty()) {
    auto made = Provenance::Open(file, false);
    return made.ok() ? made : Annotate(made.status(), "steps.library_key_file");
  }
  if (!config.blobs.has_remote()) {
    const std::filesystem::path root = config.blobs.folder().empty()
                                           ? LocalBlobStore::DefaultRoot()
                                           : std::filesystem::path(config.blobs.folder());
    return Provenance::Open(root / kLibraryKey, true);
  }
  if (is_required) {
    return InvalidArgument(
        "steps.library_key_file: missing; with `blobs.remote`, the services share a file of 32 "
        "random bytes by which they know the libraries that they have made");
  }
  spdlog::warn("without steps.library_key_file, steps run any library that somebody has uploaded");
  return std::shared_ptr<const Provenance>();
}

}  // namespace

StepMethod::StepMethod(const ServiceParts& parts, const Step& step)
    : runner_(parts.runner),
      guard_(parts.guard),
      running_(parts.running),
      step_(step),
      method_(parts.steps, step.method.substr(0, step.method.find('/')),
              step.method.substr(step.method.find('/') + 1), metrics::GrpcType::kServerStream,
              rpc::Effect::kChanges) {}

absl::StatusOr<ServiceConfig> ReadServiceConfig(const std::filesystem::path& path) {
  config::v1::ImporterConfig read;
  QUENCH_RETURN_IF_ERROR(ReadConfig(path, &read));
  return ServiceConfig{read.server(), read.blobs(), read.steps()};
}

absl::StatusOr<std::unique_ptr<ServiceHost>> ServiceHost::Start(const ServiceDefinition& definition,
                                                                Options options) {
  const ServiceConfig& config = options.config;
  std::unique_ptr<ServiceHost> host(new ServiceHost());
  QUENCH_ASSIGN_OR_RETURN(
      rpc::ServerOptions server,
      ServerOptionsOf(config.server, fmt::format("127.0.0.1:{}", definition.port)));
  QUENCH_ASSIGN_OR_RETURN(RunnerOptions runner, RunnerOptionsOf(config.steps));
  runner.require_sandbox = config.steps.has_require_sandbox() ? config.steps.require_sandbox()
                                                              : !rpc::IsLocal(server.listen);
  QUENCH_ASSIGN_OR_RETURN(runner.provenance, ProvenanceOf(config, runner.require_sandbox));
  if (options.in_process) server.listen.clear();
  server.registry = options.registry;
  server.health_services = {definition.full_name};
  runner.registry = options.registry;
  runner.program = options.program;
  runner.server = ThisServer(definition.name);
  runner.memory = options.memory;
  if (runner.memory == nullptr) {
    const std::filesystem::path folder = FolderOf(config.blobs, config.steps.scratch_dir());
    QUENCH_ASSIGN_OR_RETURN(
        runner.memory,
        OpenMemory(config.steps, folder / ("memory-" + definition.name), options.registry));
  }
  if (definition.uses_gpus) runner.gpus = options.gpus ? *options.gpus : GpusOfThisMachine();
  options.registry->Get(metrics::kGpus, definition.service)
      .Set(static_cast<double>(runner.gpus.names.size()));
  QUENCH_RETURN_IF_ERROR(SetLogLevel(config.server));
  QUENCH_ASSIGN_OR_RETURN(host->tracer_,
                          TracerOf(config.server, definition.name, options.registry));
  rpc::Tracer* const tracer = options.tracer == nullptr ? host->tracer_.get() : options.tracer;
  runner.tracer = tracer;
  QUENCH_ASSIGN_OR_RETURN(host->callers_, CallersOf(config.server));
  // In one process with the gateway, that one has written down who asked.
  if (!options.in_process) {
    QUENCH_ASSIGN_OR_RETURN(host->audit_, rpc::AuditLog::Open(config.server.audit_file()));
  }
  if (!options.storage) {
    QUENCH_ASSIGN_OR_RETURN(options.storage,
                            OpenStorage(config.blobs, !config.steps.no_action_cache(),
                                        config.steps.scratch_dir(), *options.registry));
  }
  auto created = StepRunner::Create(runner, std::move(options.storage));
  if (absl::IsFailedPrecondition(created.status())) {
    return Annotate(created.status(),
                    "steps.require_sandbox (false takes what there is; it is the default on a "
                    "machine of one's own)");
  }
  QUENCH_ASSIGN_OR_RETURN(host->runner_, std::move(created));

  rpc::CallPool::Options steps = PoolOptions(host->callers_.get(), options.registry);
  steps.audit = host->audit_.get();
  steps.tracer = tracer;
  QUENCH_ASSIGN_OR_RETURN(steps.threads, SlotsOf(config.steps));
  steps.slots_of = definition.service;
  steps.stream_idle = server.stream_idle;
  rpc::CallPool::Options control = PoolOptions(host->callers_.get(), options.registry);
  control.tracer = tracer;
  control.threads = 2;
  control.queue = server.max_calls;
  host->step_pool_ = std::make_unique<rpc::CallPool>(steps);
  host->control_pool_ = std::make_unique<rpc::CallPool>(control);
  host->grace_ = server.grace;
  host->guard_ =
      std::make_unique<NodeGuard>([runner = host->runner_.get()] { return runner->Probe(); },
                                  definition.service, options.registry, options.probe_period);
  host->service_ = definition.make(
      {*host->step_pool_, *host->control_pool_, *host->runner_, *host->guard_, host->running_},
      definition.steps);
  QUENCH_ASSIGN_OR_RETURN(host->server_, rpc::Server::Start(server, {host->service_.get()}));
  spdlog::info("{} serves {}{}, {} slots, steps {}{}", definition.name,
               options.in_process ? "this process" : "on " + host->server_->address(),
               server.metrics_listen.empty()
                   ? ""
                   : fmt::format(", metrics on port {}", host->server_->metrics_port()),
               steps.threads, runner.in_process ? "on threads" : "in processes",
               runner.memory == nullptr
                   ? ""
                   : fmt::format(" with {} MiB for all", runner.memory->bytes() >> 20));
  if (!runner.gpus.names.empty())
    spdlog::info("{} has GPUs: {}", definition.name, fmt::join(runner.gpus.names, ", "));
  return host;
}

void ServiceHost::Drain() {
  if (server_ == nullptr) return;
  server_->Announce();
  // Steps that are cancelled end within a second.
  constexpr auto kLast = std::chrono::milliseconds(2000);
  const auto last = std::min(kLast, grace_ / 4);
  const auto end = std::chrono::system_clock::now() + grace_;
  std::mutex mutex;
  std::condition_variable changed;
  bool drained = false;
  std::thread ending([&] {
    std::unique_lock lock(mutex);
    if (!changed.wait_until(lock, end - last, [&] { return drained; })) running_.End();
  });
  server_->Drain(end);
  {
    const std::lock_guard lock(mutex);
    drained = true;
  }
  changed.notify_all();
  ending.join();
  if (tracer_ != nullptr) tracer_->Flush();
}

// The server before what its calls use.
ServiceHost::~ServiceHost() { Drain(); }

}  // namespace quench::steps
