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
  // GPUs only: loops of a task whose iterations several threads share, and add up the sums of. Empty: a thread does a
  // task.
  std::set<loops::StmtId> shared_loops;
  int task_threads = 1;  // those several: a warp, or a block
  // The iterations of each of them, where a thread keeps what it has of a row in registers. 0: it does not.
  int64_t row = 0;
  std::set<loops::BufferId> kept;  // scratch that only exists there
};

}  // namespace quench::codegen
