// A command of the `quench` program: one file in commands/, one row in commands.def.
#pragma once

#include <absl/status/status.h>

#include <functional>
#include <string_view>

#include "common/base/context.h"
#include "services/cli/options.h"

namespace quench::cli {

// What a command runs with once its options are parsed.
using Action = std::function<absl::Status(const StepContext&)>;

struct Command {
  std::string_view name;
  std::string_view summary;
  // Declares options and returns what to do with them. The action owns the parsed values.
  Action (*declare)(const Options& options);
};

}  // namespace quench::cli
