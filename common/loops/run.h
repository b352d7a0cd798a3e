// Executes programs.
#pragma once

#include <absl/status/status.h>

#include <span>

#include "common/base/context.h"
#include "common/loops/program.h"

namespace quench::loops {

// Errors as Interpret() documents; `name` is the function's, for texts.
absl::Status RunProgram(const Program& program, const std::string& name, std::span<int64_t> slots,
                        const StepContext& context);

}  // namespace quench::loops
