// How a loop nest runs: over which physical buffers, which loops are tasks of a parallel run, and which
// loop's iterations become the lanes of vectors. LLVM-free; a loops function again, which the interpreter
// can run.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "common/ir/symbols.h"
#include "common/loops/loops.h"

namespace quench::codegen {

struct Schedule {
  // Every buffer is dense and row-major over physical dims (schedule/layout.h).
  loops::Function function;
  // Statements (not in function.body) that write padding lanes. They run once, with the
  // first task.
  std::vector<loops::StmtId> fill;
  // kFor statements whose iterations are lanes, with the number of lanes. Never nested.
  std::map<loops::StmtId, int> lanes;
  // The perfectly nested parallel loops, outermost first, whose iterations are the tasks. Empty:
  // one task.
  std::vector<loops::StmtId> task_loops;
  Dim tasks = 1;
  // GPUs only: loops of a task whose iterations the threads of a warp share, and add up the sums of. Empty: a thread does
  // a task.
  std::set<loops::StmtId> warp_loops;
};

}  // namespace quench::codegen
