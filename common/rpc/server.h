// A gRPC server with the features of all our services: health per service, reflection, TLS, limits,
// keepalive, drain.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/metrics/endpoint.h"
#include "common/metrics/metrics.h"
#include "common/rpc/tls.h"

namespace grpc {
class Server;
class Service;
}  // namespace grpc

namespace quench::rpc {

class Channel;

struct ServerOptions {
  // HOST:PORT, where port 0 takes a free one; or unix:PATH of at most 107 bytes, in a folder that
  // only its users may enter. Empty: reached in this process only, through Channel::InProcess.
  std::string listen = "127.0.0.1:0";
  std::optional<TlsFiles> tls;
  bool insecure = false;                     // plain text beyond this machine
  std::vector<std::string> health_services;  // full names reported beside "" (the whole server)
  int max_message_bytes = 8 << 20;           // largest message received or sent
  int max_calls = 1000;                      // at once, on one connection; clients hold back more
  int max_header_bytes = 16 << 10;           // of a call
  int64_t max_transport_bytes = int64_t{512} << 20;  // of all connections together
  std::chrono::milliseconds handshake{10'000};       // TLS and HTTP/2, from the first byte
  // Clients of a name with several addresses look it up anew when a connection ends.
  std::chrono::milliseconds max_connection_age{60'000};
  std::chrono::milliseconds max_connection_idle{2 * 60 * 60'000};  // without a call
  // The services' pools end streams on which the client sends and reads nothing for longer. 0:
  // never.
  std::chrono::milliseconds stream_idle{5 * 60'000};
  bool reflection = true;                    // lists the services to anybody
  std::string metrics_listen;                // HOST:PORT of /metrics; empty: none
  std::chrono::milliseconds drain_delay{0};  // how long a drain still serves while NOT_SERVING
  std::chrono::milliseconds grace{10'000};   // how long a drain then waits for running calls
  metrics::Registry* registry = &metrics::Global();
};

class Server {
 public:
  // Listens and serves `services` (not owned, outliving the server) beside health and reflection.
  // UNAVAILABLE if the address is in use, INVALID_ARGUMENT for wrong options.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<grpc::Service*>& services);
  ~Server();

  // The port in use; 0 for unix sockets.
  int port() const { return port_; }
  int metrics_port() const { return metrics_ == nullptr ? 0 : metrics_->port(); }
  // The address for a Channel: `listen` with the port in use.
  std::string address() const;

  // Reports NOT_SERVING, but serves calls as before for `drain_delay`. Idempotent.
  void Announce();
  // Announces, then takes no new calls; waits for running ones until `end` - default: for `grace` - and
  // cancels the rest. Idempotent.
  void Drain(std::optional<std::chrono::system_clock::time_point> end = std::nullopt);

 private:
  friend class Channel;
  Server(ServerOptions options, std::unique_ptr<grpc::Server> server, int port,
         std::unique_ptr<metrics::Endpoint> metrics);
  ServerOptions options_;
  std::unique_ptr<grpc::Server> server_;
  int port_;
  std::unique_ptr<metrics::Endpoint> metrics_;
  metrics::Registry::Refresh expiry_;
  bool announced_ = false;
};

// Blocks SIGINT and SIGTERM for this thread and all it starts; call before the first gRPC or LLVM
// call.
void BlockTerminationSignals();

// Waits for SIGINT or SIGTERM, and returns it. Needs BlockTerminationSignals().
int AwaitTermination();

}  // namespace quench::rpc
