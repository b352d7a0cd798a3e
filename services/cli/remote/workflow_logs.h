// The log of a workflow's steps, line by line.
#pragma once

#include <string>

#include "services/cli/remote/client.h"

namespace quench::cli {

struct LogsJob {
  std::string workflow;  // `workflows/{id}`
  std::string step;      // "": all of them, in the order of time
  bool follow = false;   // until the workflow ends
  bool json = false;     // an object a line
};

// Prints the lines; with `follow`, how the workflow ended, on stderr. NOT_FOUND if there is no such step.
absl::Status PrintLogs(const LogsJob& job, GatewayClient& client, const StepContext& context);

}  // namespace quench::cli
