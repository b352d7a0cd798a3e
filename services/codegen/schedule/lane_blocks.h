// Loops of lanes that are cut into blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "services/codegen/schedule/schedule.h"

namespace quench::codegen {

// for v in [0, n): body  ->  for block in [0, ceil(n / size)): inner, where inner = for v in [block
// size, min(n, + size)): body. Returns the inner loop, and the expression of block * size.
struct Cut {
  loops::StmtId inner;
  loops::ExprId start;
};
Cut CutLoop(loops::Function& function, loops::StmtId loop, int64_t size);

// Scratch of iteration scope that is used under the loop.
std::vector<loops::BufferId> OwnScratch(const loops::Function& function, loops::StmtId loop);
// That scratch is used nowhere else, so that every lane of the loop can have its own.
bool CanPrivatise(const loops::Function& function, loops::StmtId loop);
// Gives every lane its own scratch where a loop of lanes is outermost: the loop is cut into
// vectors, scratch gets one more dim.
void PrivatiseScratch(Schedule& schedule);

// Loops that read along one axis and write along another run in square tiles: each cache line is
// used up while it is there.
void TileTransposes(Schedule& schedule);

}  // namespace quench::codegen
