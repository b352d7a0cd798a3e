// Requests of `compile --quantize` to a gateway.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <string>
#include <vector>

#include "quench/gateway/v1/workflows.pb.h"
#include "services/cli/quantization.h"
#include "services/cli/remote/client.h"
#include "services/cli/remote/samples.h"

namespace quench::cli {

// Samples on their way up: what several steps read goes once.
class SampleUploads {
 public:
  SampleUploads(GatewayClient& client, const StepContext& context)
      : client_(client), context_(context) {}

  // Their form in a request. `labels`: none, or of all rows.
  absl::StatusOr<step::v1::Samples> Upload(const SampleOptions& options,
                                           const std::vector<int64_t>& labels);

 private:
  GatewayClient& client_;
  const StepContext& context_;
  std::map<std::string, step::v1::SampleManifest> manifests_;  // by where they lie
};

// Uploads samples and statistics.
absl::StatusOr<gateway::v1::QuantizeChoice> ChoiceOf(const QuantizeJob& job,
                                                     const ModelOptions& model,
                                                     GatewayClient& client,
                                                     const StepContext& context);

// As PrepareForQuantization tells it on stderr: what the steps behind `prefix` did before anything became integers.
absl::Status TellPreparation(const gateway::v1::Workflow& workflow, const std::string& prefix,
                             GatewayClient& client, const StepContext& context);

// Fate of the layers, by the steps behind `prefix`.
absl::StatusOr<Quantization> DownloadQuantization(const gateway::v1::Workflow& workflow,
                                                  const std::string& prefix,
                                                  const gateway::v1::QuantizeChoice& choice,
                                                  GatewayClient& client,
                                                  const StepContext& context);

}  // namespace quench::cli
