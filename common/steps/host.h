// A service as a whole: its steps, its gRPC service, its server. What each binary, `quench serve`
// and tests compose.
#pragma once

#include <absl/status/statusor.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/rpc/on_pool.h"
#include "common/rpc/server.h"
#include "common/steps/runner.h"
#include "quench/config/v1/config.pb.h"

namespace grpc {
class Service;
}

namespace quench::steps {

// What a gRPC service of ours is made of. All outlive it.
struct ServiceParts {
  rpc::CallPool& steps;    // as many calls as there are slots
  rpc::CallPool& control;  // short calls
  const StepRunner& runner;
};

struct ServiceDefinition {
  metrics::Service service;
  std::string name;       // "importer"
  std::string full_name;  // "quench.importer.v1.Importer"
  int port = 0;           // where it listens unless told otherwise; its metrics 100 above
  std::vector<Step> steps;
  std::function<std::unique_ptr<grpc::Service>(const ServiceParts&, const std::vector<Step>&)> make;
};

// The three parts of every service's configuration message.
struct ServiceConfig {
  config::v1::Server server;
  config::v1::BlobStore blobs;
  config::v1::Steps steps;
};

// From a file of any service's configuration message: they have the same fields.
absl::StatusOr<ServiceConfig> ReadServiceConfig(const std::filesystem::path& path);

class ServiceHost {
 public:
  struct Options {
    ServiceConfig config;
    // Reached through rpc::Channel::InProcess only.
    bool in_process = false;
    // Started for each step, with kChildArgument.
    std::filesystem::path program = "/proc/self/exe";
    // Instead of what config.blobs says: the store of a gateway in the same process.
    StepRunner::StorageOf storage;
    metrics::Registry* registry = &metrics::Global();
  };
  // INVALID_ARGUMENT for what is wrong in the configuration, UNAVAILABLE when the address cannot be
  // taken. `definition` outlives the host.
  static absl::StatusOr<std::unique_ptr<ServiceHost>> Start(const ServiceDefinition& definition,
                                                            Options options);
  ~ServiceHost();

  rpc::Server& server() { return *server_; }
  // New steps go elsewhere, running ones finish.
  void Drain() { server_->Drain(); }

 private:
  ServiceHost() = default;
  std::unique_ptr<rpc::TokenList> tokens_;
  std::unique_ptr<StepRunner> runner_;
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
    return rpc::StreamOnPool<Event>(
        method_, context, request,
        [this](const Request& asked, const StepContext& step) -> absl::StatusOr<Result> {
          Result result;
          QUENCH_RETURN_IF_ERROR(runner_.Run(step_, asked, step, &result));
          return result;
        },
        [this](const Request& asked, const StepContext& step, auto* accepted) {
          return runner_.Accept(step_, asked, step, accepted);
        });
  }

 private:
  const StepRunner& runner_;
  const Step& step_;
  rpc::Method method_;
};

}  // namespace quench::steps
