// Long sums. Adding n floats one after another loses about n roundings, so whatever runs loops marked
// reduce (the interpreter, the code of nests) adds the terms of an f32 sum in blocks, and the blocks in
// f64: the error is that of one block, however long the sum.
#pragma once

#include <cstdint>

#include "common/loops/ranges.h"

namespace quench::loops {

inline constexpr int64_t kTermsOfBlock = 512;

// A sum that goes in blocks.
bool IsLongSum(const Function& function, const Reduction& reduction);

// The iterations of `loop` that make a block of its f32 sums, for each of the `lanes` sums that take
// turns; 0 where it has none or is short enough to do without. `ranges` knows the variables around the
// loop.
int64_t IterationsOfBlock(const Function& function, StmtId loop, Ranges& ranges, int lanes = 1);

}  // namespace quench::loops
