// Chooses the loops whose iterations become lanes.
#pragma once

#include "services/codegen/schedule/schedule.h"

namespace quench::codegen {

// Fills schedule.lanes by a cost model over memory access patterns: of all ways to vectorise at
// most one loop on every path, the one with the fewest predicted instructions. A chosen parallel
// loop moves inside the parallel loops nested in it.
void ChooseLanes(const Target& target, Schedule& schedule);

}  // namespace quench::codegen
