// How many elements a thread of a GPU can do at once.
#pragma once

#include <cstdint>

#include "common/loops/loops.h"

namespace quench::codegen {

inline constexpr int64_t kWidestAccess = 16;  // bytes of one thread

// The most iterations of the loop, from a multiple of their number on, that can be lanes: control flow
// is the same in all of them, and what parameters they access lies side by side, at most 16 bytes
// aligned to themselves, or is one element, or small. A power of two; 1: none.
int64_t WidestLanes(const loops::Function& function, loops::StmtId loop);

}  // namespace quench::codegen
