// Lanes of a GPU's threads.
#pragma once

#include "services/codegen/schedule/schedule.h"
#include "services/codegen/targets/target.h"

namespace quench::codegen {

// Lets each thread do several neighbours along the innermost parallel loop, 16 bytes' worth, where
// that leaves enough threads and all accesses lie side by side or at one place: a warp then reads and
// writes whole lines with a quarter of the instructions. The loop is cut, its part becomes lanes.
// Before ChooseTasks.
void ChooseDeviceLanes(const Gpu& gpu, SymbolTable& symbols, Schedule& schedule);

}  // namespace quench::codegen
