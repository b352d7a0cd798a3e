// Choice of the loops of a GPU's nest whose iterations a warp shares.
#pragma once

#include "services/codegen/schedule/schedule.h"

namespace quench::codegen {

inline constexpr int kWarp = 32;  // threads

// Sets warp_loops where tasks are few and have loops of their own: the threads of a warp then do a task together, so that
// neighbours read neighbours (rows of softmaxes, normalisations, reductions). After ChooseTasks.
void ChooseWarps(Schedule& schedule);

}  // namespace quench::codegen
