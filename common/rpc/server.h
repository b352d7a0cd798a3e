// A gRPC server with what every service of ours has: health per service, reflection, drain.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace grpc {
class Server;
class Service;
}  // namespace grpc

namespace quench::rpc {

struct ServerOptions {
  std::string listen = "127.0.0.1:0";  // host:port; port 0 takes a free one
  std::vector<std::string>
      health_services;                      // full names reported beside "" (the server as a whole)
  int max_message_bytes = 8 << 20;          // largest message received
  std::chrono::milliseconds grace{10'000};  // what a drain waits for running calls
};

class Server {
 public:
  // Listens and serves `services` (not owned, outliving the server) beside health and reflection.
  // UNAVAILABLE when the address cannot be taken.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<grpc::Service*>& services);
  ~Server();

  int port() const { return port_; }
  // NOT_SERVING for everyone, then no new calls, then waits up to `grace` for running ones.
  // Idempotent.
  void Drain();

 private:
  Server(ServerOptions options, std::unique_ptr<grpc::Server> server, int port);
  ServerOptions options_;
  std::unique_ptr<grpc::Server> server_;
  int port_;
};

// Blocks SIGINT and SIGTERM for this thread and all it starts; call before the first gRPC or LLVM
// call.
void BlockTerminationSignals();

// Serves until SIGINT or SIGTERM, then drains. Returns the exit code: 0, or 3 when the address
// cannot be taken. `on_ready` is told the port. Needs BlockTerminationSignals().
int RunServer(const ServerOptions& options, const std::vector<grpc::Service*>& services,
              const std::function<void(int port)>& on_ready = {});

}  // namespace quench::rpc
