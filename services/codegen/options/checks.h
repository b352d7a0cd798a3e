// Values that options may have.
#pragma once

#include <absl/status/status.h>

#include "services/codegen/options/options.h"

namespace quench::codegen {

// INVALID_ARGUMENT with every member that is not one of its values, or not in its range.
absl::Status CheckOptions(const CompileOptions& options);

}  // namespace quench::codegen
