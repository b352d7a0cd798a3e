// Memory of runs that ends at a page nobody may touch: generated code is not instrumented, so sanitizers
// would not see it write beyond an arena or an output.
#pragma once

#include <cstdint>

#include "common/ir/tensor.h"

namespace quench::fuzz {

// From now on, in this process, posix_memalign (of which the runtime takes arenas, outputs and other memory
// of runs) gives blocks filled with `fill` that end at such a page, but for what their alignment leaves;
// they stay unreadable when they have been freed.
void GuardMemory(uint8_t fill);

// "" or that bytes between the end of a block and its page have been written; of all blocks so far.
const char* WrittenBeyond();

// The same numbers in such memory.
Tensor Guarded(const Tensor& tensor);

}  // namespace quench::fuzz
