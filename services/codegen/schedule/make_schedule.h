// Decides how a loop nest runs.
#pragma once

#include <absl/status/statusor.h>

#include <span>

#include "services/codegen/kernels/kernel.h"
#include "services/codegen/schedule/schedule.h"
#include "services/codegen/targets/target.h"

namespace quench::codegen {

// `layouts` are those of the parameter buffers; missing ones are row-major. `vectorise` false
// leaves the order of all arithmetic as written.
absl::StatusOr<Schedule> MakeSchedule(const loops::Function& function,
                                      std::span<const Layout> layouts, SymbolTable& symbols,
                                      const Target& target, bool vectorise);

}  // namespace quench::codegen
