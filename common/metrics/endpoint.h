// http://ADDRESS/metrics: what Prometheus scrapes. Plain HTTP: bind it to loopback or to a network
// that only the monitoring reaches.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

#include "common/metrics/metrics.h"

namespace quench::http {
class Server;
}

namespace quench::metrics {

class Endpoint {
 public:
  // Serves `registry` (not owned, outliving the endpoint) on `listen`: host:port, [v6]:port; port 0
  // takes a free one. INVALID_ARGUMENT for what is no such address, UNAVAILABLE when it cannot be
  // taken.
  static absl::StatusOr<std::unique_ptr<Endpoint>> Start(const std::string& listen,
                                                         const Registry& registry);
  ~Endpoint();
  int port() const { return port_; }

 private:
  Endpoint(std::unique_ptr<http::Server> server, int port);
  std::unique_ptr<http::Server> server_;
  int port_;
};

}  // namespace quench::metrics
