// The codegen service: its steps on the functions of codegen.h, and its gRPC service.
#pragma once

#include "common/steps/host.h"

namespace quench::codegen {

// Lives as long as the program.
const steps::ServiceDefinition& CodegenDefinition();

}  // namespace quench::codegen
