// Options of a command in a gateway's terms.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "build/bazel/remote/execution/v2/remote_execution.pb.h"
#include "common/base/status.h"
#include "common/ir/graph.h"
#include "quench/gateway/v1/workflows.pb.h"
#include "services/cli/model_source.h"
#include "services/cli/remote/client.h"

namespace quench::cli {

// Uploads the model with its external data and frozen inputs, or the module with its weights. `was_read`, where given,
// becomes true once the model has been read: errors from then on are not the model's.
absl::StatusOr<gateway::v1::BatchModel> UploadModel(const ModelOptions& options,
                                                    GatewayClient& client,
                                                    const StepContext& context,
                                                    bool* was_read = nullptr);

step::v1::PassOptions PassesOf(const ModelOptions& options, const std::string& stop_after = "");

// `host` is this machine.
codegen::v1::Target TargetOf(const std::string& name, const std::string& host = "");

// As GatewayClient::Run; then what imports warn of is on stderr, as LoadModel puts it there.
absl::StatusOr<gateway::v1::Workflow> RunModels(const gateway::v1::WorkflowSpec& spec,
                                                GatewayClient& client, const StepContext& context);

// A module that a step gave, with its weights.
absl::StatusOr<Graph> DownloadModule(const gateway::v1::Workflow& workflow, const std::string& step,
                                     const std::string& output, GatewayClient& client,
                                     const StepContext& context);

// A result message that a step gave.
template <typename Result>
absl::StatusOr<Result> DownloadMessage(const gateway::v1::Workflow& workflow,
                                       const std::string& step, const std::string& output,
                                       GatewayClient& client, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const Digest digest, OutputOf(workflow, step, output));
  QUENCH_ASSIGN_OR_RETURN(const std::string bytes, client.DownloadBytes(digest, context));
  Result result;
  if (!result.ParseFromString(bytes)) return Internal("`{}` of `{}` is damaged", output, step);
  return result;
}

}  // namespace quench::cli
