// The analyser service: its steps, built on the functions of analyser.h and common/runner, and its
// gRPC service.
#pragma once

#include "common/steps/host.h"

namespace quench::analyser {

// Lives as long as the program.
const steps::ServiceDefinition& AnalyserDefinition();

}  // namespace quench::analyser
