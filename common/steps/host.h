// A service as a whole: its steps, its gRPC service, its server. Binaries, `quench serve` and tests use
// it.
#pragma once

#include <absl/status/statusor.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/rpc/audit.h"
#include "common/rpc/callers.h"
#include "common/rpc/on_pool.h"
#include "common/rpc/server.h"
#include "common/rpc/tracing.h"
#include "common/steps/node_guard.h"
#include "common/steps/runner.h"
#include "quench/config/v1/config.pb.h"

namespace grpc {
class Service;
}

namespace quench::steps {

// The parts of a gRPC service. All outlive it.
struct ServiceParts {
  rpc::CallPool& steps;    // one call for each slot
  rpc::CallPool& control;  // short calls
  const StepRunner& runner;
  NodeGuard& guard;
  RunningSteps& running;
};

struct ServiceDefinition {
  metrics::Service service;
  std::string name;       // "importer"
  std::string full_name;  // "quench.importer.v1.Importer"
  int port = 0;           // default port; that of its metrics is 100 higher
  std::vector<Step> steps;
  std::function<std::unique_ptr<grpc::Service>(const ServiceParts&, const std::vector<Step>&)> make;
  bool uses_gpus = false;  // steps whose requests have a device (HasDevice) do
};

// The three parts of every service's configuration message.
struct ServiceConfig {
  config::v1::Server server;
  config::v1::BlobStore blobs;
  config::v1::Steps steps;
};

// Reads a file with any service's configuration message: all have the same fields.
absl::StatusOr<ServiceConfig> ReadServiceConfig(const std::filesystem::path& path);

class ServiceHost {
 public:
  struct Options {
    ServiceConfig config;
    // Whether the server is reached through rpc::Channel::InProcess only.
    bool in_process = false;
    // The program started for each step, with kChildArgument.
    std::filesystem::path program = "/proc/self/exe";
    // The store of a gateway in the same process, in place of config.blobs.
    StepRunner::StorageOf storage;
    metrics::Registry* registry = &metrics::Global();
    // The memory that steps share with other services in the same process, in place of this one's.
    std::shared_ptr<MemoryBudget> memory;
    // The tracer of a gateway in the same process (not owned), in place of config.server.tracing.
    rpc::Tracer* tracer = nullptr;
    // The GPUs of steps, in place of this machine's.
    std::optional<Gpus> gpus;
    // The period at which a server that is out of service checks whether its machine works again.
    std::chrono::milliseconds probe_period = std::chrono::seconds(10);
  };
  // INVALID_ARGUMENT for an error in the configuration, UNAVAILABLE if the address is in use.
  // `definition` outlives the host.
  static absl::StatusOr<std::unique_ptr<ServiceHost>> Start(const ServiceDefinition& definition,
                                                            Options options);
  ~ServiceHost();

  rpc::Server& server() { return *server_; }
  // Refuses new steps, and lets running ones finish; those still running shortly before the end of the
  // grace period end with SERVER_DRAINED.
  void Drain();

 private:
  ServiceHost() = default;
  std::unique_ptr<rpc::Tracer> tracer_;  // outlives all that records
  std::unique_ptr<rpc::Callers> callers_;
  std::unique_ptr<rpc::AuditLog> audit_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<NodeGuard> guard_;
  RunningSteps running_;
  std::chrono::milliseconds grace_{};
  std::unique_ptr<rpc::CallPool> step_pool_, control_pool_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<rpc::Server> server_;
};

// A method whose calls are steps: a member of the gRPC service.
class StepMethod {
 public:
  StepMethod(const ServiceParts& parts, const Step& step);

  template <typename Event, typename Request>
  grpc::ServerWriteReactor<Event>* Serve(grpc::CallbackServerContext* context,
                                         const Request* request) const {
    using Result = std::remove_cvref_t<decltype(std::declval<Event>().result())>;
    const auto place = std::make_shared<std::unique_ptr<MemoryBudget::Place>>();
    return rpc::StreamOnPool<Event>(
        method_, context, request,
        [this, place](const Request& asked, const StepContext& step) -> absl::StatusOr<Result> {
          Result result;
          const absl::Status status = running_.Run(
              step, [&] { return runner_.Run(step_, asked, step, &result, place->get()); });
          place->reset();
          if (IsNodeFault(status)) guard_.Fault(status);
          QUENCH_RETURN_IF_ERROR(status);
          return result;
        },
        [this, place](const Request& asked, const StepContext& step,
                      auto* accepted) -> absl::Status {
          QUENCH_RETURN_IF_ERROR(guard_.Check());
          QUENCH_RETURN_IF_ERROR(runner_.Accept(step_, asked, step, accepted));
          Result known;
          QUENCH_ASSIGN_OR_RETURN(*place, runner_.Admit(step_, asked, step, &known));
          return absl::OkStatus();
        });
  }

 private:
  const StepRunner& runner_;
  NodeGuard& guard_;
  RunningSteps& running_;
  const Step& step_;
  rpc::Method method_;
};

}  // namespace quench::steps
