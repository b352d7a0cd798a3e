// Two nested parallel loops that walk memory contiguously become one.
#pragma once

#include "common/loops/loops.h"

namespace quench::codegen {

// Merges neighbouring loops of perfect parallel nests wherever every buffer they index keeps its
// order of elements: the buffers' two dims become one. Fixed point.
void CollapseLoops(loops::Function& function);

// Loops that run once are replaced by their body.
void DropUnitLoops(loops::Function& function);

}  // namespace quench::codegen
