// Health checks: of containers and scripts, and of one server by another.
#pragma once

#include <absl/status/status.h>

#include <chrono>

#include "common/rpc/channel.h"
#include "common/rpc/server.h"

namespace quench::rpc {

// Asks the server that runs on this machine with these options whether it serves (grpc.health.v1).
// UNAVAILABLE if it does not answer within `timeout`, or says that it does not serve;
// INVALID_ARGUMENT if `options.listen` is not an address with a fixed port.
absl::Status CheckHealth(const ServerOptions& options, std::chrono::milliseconds timeout);

// Asks the same of the server behind `channel`; if there are several, one that serves is enough. Waits
// until the deadline of `step`.
absl::Status CheckHealth(const Channel& channel, const StepContext& step);

}  // namespace quench::rpc
