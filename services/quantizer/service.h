// The quantizer service: Equalize, Calibrate and Quantize behind gRPC.
#pragma once

#include "common/steps/host.h"

namespace quench::quantizer {

// Lives as long as the program.
const steps::ServiceDefinition& QuantizerDefinition();

}  // namespace quench::quantizer
