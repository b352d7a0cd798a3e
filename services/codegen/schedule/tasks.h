// Choice of the loops that are split over threads.
#pragma once

#include "services/codegen/schedule/schedule.h"

namespace quench::codegen {

// Sets task_loops and tasks: the outermost parallel loops of a function whose body is cheap scalar
// statements and one parallel loop, flattened until there are enough tasks for many threads; with `all`, as far as
// they go: a GPU's threads do one iteration each, neighbours next to each other.
void ChooseTasks(SymbolTable& symbols, Schedule& schedule, bool all);

// A loop of lanes that nothing encloses becomes a parallel loop over ranges of some thousand
// iterations and, inside, the loop of lanes over one range.
void SplitFlatLoops(Schedule& schedule);

// A parallel loop whose body is one parallel loop with bounds that do not depend on it: the two may
// change places.
bool CanSink(const loops::Function& function, loops::StmtId loop);

// The perfect nest of parallel loops that starts at `loop`, outermost first; their extents do not
// depend on one another.
std::vector<loops::StmtId> ParallelChain(const loops::Function& function, loops::StmtId loop);

}  // namespace quench::codegen
