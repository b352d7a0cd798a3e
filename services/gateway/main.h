// The program quench-gateway.
#pragma once

#include "common/steps/main.h"

namespace quench::gateway {

// Runs it with its configuration file, if there is one; arguments override the file.
absl::StatusOr<std::unique_ptr<steps::Serving>> StartGateway(
    const steps::ServerArguments& arguments);

int GatewayMain(int argc, char** argv);

}  // namespace quench::gateway
