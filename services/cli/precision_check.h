// Options of `compile --precision`, and what is wrong with them.
#pragma once

#include <absl/status/status.h>

#include <string>
#include <vector>

#include "services/cli/quantization.h"

namespace quench::cli {

// Whether there are samples to measure accuracy on, and statistics or samples for the ranges of integers.
bool HasEvaluation(const QuantizeJob& job);
bool HasCalibration(const QuantizeJob& job);
// All errors to see before anything is built. `given`: the options on the command line.
absl::Status CheckPrecision(const QuantizeJob& job, const std::vector<std::string>& given);

}  // namespace quench::cli
