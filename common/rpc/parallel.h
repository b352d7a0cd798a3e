// Runs tasks, a few at a time.
#pragma once

#include <absl/status/status.h>

#include <functional>
#include <vector>

#include "common/base/context.h"

namespace quench::rpc {

using Task = std::function<absl::Status(const StepContext&)>;

// Runs all tasks, `parallel` at a time, as parts of `step`; after the first failure no others
// begin, and running ones are cancelled. Their progress may come from several threads.
absl::Status RunTasks(const std::vector<Task>& tasks, int parallel, const StepContext& step);

}  // namespace quench::rpc
