// A command of the `quench` program: one file in commands/, one row in commands.def.
#pragma once

#include <absl/status/status.h>

#include <functional>
#include <string_view>

#include "common/base/context.h"
#include "services/cli/options.h"

namespace quench::cli {

// Work of a command, called once its options are parsed.
using Action = std::function<absl::Status(const StepContext&)>;

// The same status as a mistake in the command line, which ends the program with exit code 2.
absl::Status UsageError(absl::Status status);
bool IsUsageError(const absl::Status& status);

struct Command {
  std::string_view name;
  std::string_view summary;
  // Declares options and returns what to do with them. The action owns the parsed values.
  Action (*declare)(const Options& options);
};

}  // namespace quench::cli
