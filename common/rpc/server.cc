#include "common/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <spdlog/spdlog.h>

#include <csignal>

#include "common/base/status.h"

namespace quench::rpc {

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const std::vector<grpc::Service*>& services) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  // Two servers on one port would share its calls silently: refuse instead.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::UnavailableError(fmt::format(
        "cannot listen on `{}`: the address is in use or not of this machine", options.listen));
  }
  for (const std::string& name : options.health_services) {
    server->GetHealthCheckService()->SetServingStatus(name, true);
  }
  return std::unique_ptr<Server>(new Server(options, std::move(server), port));
}

Server::Server(ServerOptions options, std::unique_ptr<grpc::Server> server, int port)
    : options_(std::move(options)), server_(std::move(server)), port_(port) {}

Server::~Server() { Drain(); }

void Server::Drain() {
  if (server_ == nullptr) return;
  server_->GetHealthCheckService()->SetServingStatus(false);
  server_->Shutdown(std::chrono::system_clock::now() + options_.grace);
  server_->Wait();
  server_.reset();
}

namespace {

sigset_t TerminationSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

void BlockTerminationSignals() {
  const sigset_t signals = TerminationSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

int RunServer(const ServerOptions& options, const std::vector<grpc::Service*>& services,
              const std::function<void(int port)>& on_ready) {
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options, services);
  if (!server.ok()) {
    spdlog::error("{}", MessageOf(server.status()));
    return 3;
  }
  if (on_ready) on_ready((*server)->port());
  const sigset_t signals = TerminationSignals();
  int received = 0;
  sigwait(&signals, &received);
  spdlog::info("signal {}: draining", received);
  (*server)->Drain();
  return 0;
}

}  // namespace quench::rpc
