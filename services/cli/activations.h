// Values of a model in one run, for its report.
#pragma once

#include <absl/status/statusor.h>

#include <vector>

#include "common/base/context.h"
#include "services/analyser/analyser.h"
#include "services/cli/gateway_options.h"
#include "services/cli/input_flags.h"
#include "services/cli/model_source.h"

namespace quench::cli {

// Every value of the model: here by code that is compiled for it, at a gateway by the interpreter.
absl::StatusOr<std::vector<analyser::ActivationReport>> ActivationsOf(GatewayOptions& gateway,
                                                                      const ModelOptions& model,
                                                                      const InputFlags& inputs,
                                                                      const StepContext& context);

}  // namespace quench::cli
