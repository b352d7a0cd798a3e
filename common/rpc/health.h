// Health checks: of containers and scripts, and of one server by another.
#pragma once

#include <absl/status/status.h>

#include <chrono>

#include "common/rpc/channel.h"
#include "common/rpc/server.h"

namespace quench::rpc {

// Asks the server that runs on this machine with these options whether it serves (grpc.health.v1).
// UNAVAILABLE when it does not answer within `timeout`, or says that it does not serve;
// INVALID_ARGUMENT when `options.listen` is not an address with a port of its own.
absl::Status CheckHealth(const ServerOptions& options, std::chrono::milliseconds timeout);

// The same of the server that `channel` leads to; where it leads to many, of any that serves. Until
// the deadline of `step`.
absl::Status CheckHealth(const Channel& channel, const StepContext& step);

}  // namespace quench::rpc
