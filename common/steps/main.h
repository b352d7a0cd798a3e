// The program of one service.
#pragma once

#include "common/steps/host.h"

namespace quench::steps {

// Parses --config, --listen, --metrics-listen, --help and --version, serves until SIGINT or SIGTERM,
// then drains. As a child (kChildArgument) does one step instead. Exit codes: 0 ok, 2 usage or
// configuration, 3 the address or the store cannot be had.
int ServiceMain(int argc, char** argv, const ServiceDefinition& definition);

}  // namespace quench::steps
