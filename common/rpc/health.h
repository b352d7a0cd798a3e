// Health checks of containers and scripts.
#pragma once

#include <absl/status/status.h>

#include <chrono>

#include "common/rpc/server.h"

namespace quench::rpc {

// Asks the server that runs on this machine with these options whether it serves (grpc.health.v1).
// UNAVAILABLE when it does not answer within `timeout`, or says that it does not serve;
// INVALID_ARGUMENT when `options.listen` is no address with a port of its own.
absl::Status CheckHealth(const ServerOptions& options, std::chrono::milliseconds timeout);

}  // namespace quench::rpc
