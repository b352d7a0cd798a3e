// What `calibrate` and `quantize` share: statistics are of the very module that is quantized.
#pragma once

#include <absl/status/statusor.h>

#include "services/cli/model_source.h"

namespace quench::cli {

// The model after its passes, equalized if that is asked for (then told on stderr what it did).
absl::StatusOr<Graph> PrepareForQuantization(const ModelOptions& options, bool equalize,
                                             const StepContext& context);

}  // namespace quench::cli
