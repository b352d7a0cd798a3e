// The quantizer service. It has no steps yet: what it knows of methods is all it can be asked.
#pragma once

#include "common/steps/host.h"

namespace quench::quantizer {

// Lives as long as the program.
const steps::ServiceDefinition& QuantizerDefinition();

}  // namespace quench::quantizer
