// From logical indices to physical ones.
#pragma once

#include <absl/status/status.h>

#include <span>

#include "services/codegen/kernels/kernel.h"
#include "services/codegen/schedule/schedule.h"

namespace quench::codegen {

// Physical dims of a tensor: the axes in layout order, the blocked one as ceil(n / block), then
// the block.
//
// Rewrites schedule.function so that every parameter buffer has its physical dims and every access
// physical indices, and sets schedule.fill to statements that write what the function's own stores
// leave out: padding lanes (0).
absl::Status ApplyLayouts(std::span<const Layout> layouts, Schedule& schedule);

// Splits loops over a blocked axis into blocks and lanes of a block, so that indices need no
// division.
void SplitBlockedLoops(loops::Function& function);
// Moves the loops over lanes of a block, where they are parallel, inside the parallel loops nested
// in them.
void MoveBlockLanesInside(loops::Function& function);

}  // namespace quench::codegen
