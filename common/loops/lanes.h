// The loops of a nest that run many iterations at once in the interpreter, and the expressions that
// vary between those.
#pragma once

#include <span>
#include <vector>

#include "common/loops/ranges.h"

namespace quench::loops {

// Element strides of a buffer's dims, and its sizes.
struct Shape {
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
};

// One loop run in lanes: what differs between lanes under it.
class LanePlan {
 public:
  // Legal iff `loop` is marked parallel or reduce and under it: bounds of loops and conditions of
  // whiles do not vary, no slots are set, stores go to places that vary, reduced locals are updated
  // right in its body, and scratch that lives for one iteration of the outermost parallel loop is
  // not used when that is this loop (`outermost`).
  static bool Make(const Function& function, StmtId loop, bool outermost, LanePlan* plan);

  bool Varies(ExprId id) const;
  bool LocalVaries(LocalId local) const { return locals_[static_cast<size_t>(local)]; }
  // Locals that the loop reduces: they stay scalar and take the lanes in order.
  bool Reduces(LocalId local) const;
  StmtId loop() const { return loop_; }

 private:
  bool Legal(std::span<const StmtId> body, bool masked, bool top);
  bool SpreadLocals(std::span<const StmtId> body, bool masked);
  bool UsesIterationScratch(std::span<const StmtId> body) const;
  void Reset();

  const Function* function_ = nullptr;
  StmtId loop_ = kNone;
  bool outermost_ = false;
  std::vector<bool> locals_;
  std::vector<bool> vars_;
  mutable std::vector<int8_t> varies_;  // by expression: -1 unknown
};

// The loops to run in lanes among `loop` (marked parallel or reduce) and the loops perfectly nested
// in it: the preferred one first; empty when there is too little work or a loop further in does
// better.
std::vector<StmtId> LaneCandidates(const Function& function, StmtId loop, Ranges& ranges,
                                   std::span<const Shape> shapes);

}  // namespace quench::loops
