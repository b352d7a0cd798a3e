// The micro-kernel's tiles, one by one, in cycles of the core: what fit_costs.py fits a row of
// cores.def to.
#pragma once

#include <absl/status/status.h>

#include "services/codegen/targets/target.h"

namespace quench::codegen {

// Prints JSON: the core's clock, peaks and latency, and the cycles that tiles take over reductions
// of several lengths with weights that were just used.
absl::Status PrintTiles(const Target& target);

}  // namespace quench::codegen
