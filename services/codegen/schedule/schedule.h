// Decides how a loop nest runs: over which physical buffers, which loops are tasks of a parallel
// run, and which loop's iterations become the lanes of vectors. LLVM-free; the result is a loops
// function again, which the interpreter can run.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <span>
#include <vector>

#include "common/ir/symbols.h"
#include "services/codegen/kernels/kernel.h"
#include "services/codegen/targets/target.h"

namespace quench::codegen {

struct Schedule {
  // Every buffer is dense and row-major over physical dims (schedule/layout.h).
  loops::Function function;
  // Statements (not in function.body) that write padding lanes and halos. They run once, with the
  // first task.
  std::vector<loops::StmtId> fill;
  // kFor statements whose iterations are lanes, with the number of lanes. Never nested.
  std::map<loops::StmtId, int> lanes;
  // The perfectly nested parallel loops, outermost first, whose iterations are the tasks. Empty:
  // one task.
  std::vector<loops::StmtId> task_loops;
  Dim tasks = 1;
};

// `layouts` are those of the parameter buffers; missing ones are row-major. `vectorise` false
// leaves the order of all arithmetic as written.
absl::StatusOr<Schedule> MakeSchedule(const loops::Function& function,
                                      std::span<const Layout> layouts, SymbolTable& symbols,
                                      const Target& target, bool vectorise);

// The plan of a nest: its schedule, tasks and scratch. UNIMPLEMENTED for types that no code has.
absl::StatusOr<KernelPlan> PlanNest(const Nest& nest, SymbolTable& symbols, const Target& target);
// The plan of a chosen candidate.
absl::StatusOr<KernelPlan> PlanKernel(const KernelRequest& request, const Candidate& candidate);

// For a candidate that has a preparation.
KernelPlan PlanPreparation(const Candidate& candidate);

// The value of an i64 expression over constants and slots as a dim. UNIMPLEMENTED for other
// expressions.
absl::StatusOr<Dim> DimOf(const loops::Function& function, loops::ExprId expr,
                          SymbolTable& symbols);

// Bytes of scratch that a kernel compiled from `function` takes from its caller, per concurrent
// task, a multiple of 64; 0 when it fits on the stack.
absl::StatusOr<Dim> ScratchBytes(const loops::Function& function, SymbolTable& symbols);
// Static scratch up to this many bytes lies on the stack.
inline constexpr int64_t kStackScratchBytes = 16 << 10;
inline constexpr int64_t kScratchAlignment = 64;

}  // namespace quench::codegen
