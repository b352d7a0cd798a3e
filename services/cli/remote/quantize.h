// What `compile --quantize` asks of a gateway.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "quench/gateway/v1/workflows.pb.h"
#include "services/cli/quantization.h"
#include "services/cli/remote/client.h"

namespace quench::cli {

// Uploads samples and statistics.
absl::StatusOr<gateway::v1::QuantizeChoice> ChoiceOf(const QuantizeJob& job,
                                                     const ModelOptions& model,
                                                     GatewayClient& client,
                                                     const StepContext& context);

// What became of the layers, by the steps behind `prefix`.
absl::StatusOr<Quantization> DownloadQuantization(const gateway::v1::Workflow& workflow,
                                                  const std::string& prefix,
                                                  const gateway::v1::QuantizeChoice& choice,
                                                  GatewayClient& client,
                                                  const StepContext& context);

}  // namespace quench::cli
