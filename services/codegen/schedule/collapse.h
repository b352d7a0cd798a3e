// Two nested parallel loops that walk memory contiguously become one.
#pragma once

#include <span>

#include "common/loops/loops.h"

namespace quench::codegen {

// Merges neighbouring loops of perfect parallel nests wherever every buffer they index keeps its
// order of elements: the buffers' two dims become one. `fill` are statements outside the body that
// store to the same buffers. With `reductions`, neighbouring loops of one reduction too, whose terms
// keep their order, and several nests over the same buffers together. Fixed point.
void CollapseLoops(loops::Function& function, std::span<const loops::StmtId> fill,
                   bool reductions = false);

// The inverse, where a lowering has merged loops by hand: a parallel loop whose index is only used
// as `index % d` and `index / d`, both bound at the head of the nest, becomes two loops. Fixed
// point.
void SplitFlattenedLoops(loops::Function& function);

// Loops that run once are replaced by their body.
void DropUnitLoops(loops::Function& function);

}  // namespace quench::codegen
