// The memory plan of code that is compiled for a model, for its report.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "common/base/context.h"
#include "services/analyser/analyser.h"
#include "services/cli/gateway_options.h"
#include "services/cli/model_source.h"

namespace quench::cli {

// Compiles the model for `target`, here or at the gateway, and throws the library away.
absl::StatusOr<analyser::MemoryPlan> MemoryPlanOf(GatewayOptions& gateway,
                                                  const ModelOptions& model,
                                                  const std::string& target,
                                                  const StepContext& context);

}  // namespace quench::cli
