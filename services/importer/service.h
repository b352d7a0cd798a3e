// The importer service: its steps, built on the functions of importer.h and the passes, and its gRPC
// service.
#pragma once

#include "common/steps/host.h"

namespace quench::importer {

// Lives as long as the program.
const steps::ServiceDefinition& ImporterDefinition();

}  // namespace quench::importer
