// A gRPC server with what every service of ours has: health per service, reflection, TLS, limits,
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
  // Streams on which the client moves nothing end after this time, by the services' pools. 0:
  // never.
  std::chrono::milliseconds stream_idle{5 * 60'000};
  bool reflection = true;                    // says which services there are, to anybody
  std::string metrics_listen;                // HOST:PORT of /metrics; empty: none
  std::chrono::milliseconds drain_delay{0};  // NOT_SERVING, and still serving
  std::chrono::milliseconds grace{10'000};   // what a drain then waits for running calls
  metrics::Registry* registry = &metrics::Global();
};

class Server {
 public:
  // Listens and serves `services` (not owned, outliving the server) beside health and reflection.
  // UNAVAILABLE when the address cannot be taken, INVALID_ARGUMENT when the options are wrong.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<grpc::Service*>& services);
  ~Server();

  // The port taken; 0 for unix sockets.
  int port() const { return port_; }
  int metrics_port() const { return metrics_ == nullptr ? 0 : metrics_->port(); }
  // The address for a Channel: `listen` with the port taken.
  std::string address() const;

  // NOT_SERVING for everyone, and calls as ever for `drain_delay`. Idempotent.
  void Announce();
  // Announce, then no new calls; waits until `end` - default: for `grace` - for running ones and
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

// Waits for SIGINT or SIGTERM, and gives it. Needs BlockTerminationSignals().
int AwaitTermination();

}  // namespace quench::rpc
