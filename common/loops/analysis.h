// Questions that schedules and code generation ask about loops IR, and rewrites that they apply.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/loops/loops.h"

namespace quench::loops {

// ---- Questions: they change nothing, and their answers hold until the
// function is changed ----

// The value of a kInt expression.
std::optional<int64_t> ConstantOf(const Function& function, ExprId id);

// One kLoad or kStore. Points into the function; valid until it changes.
struct Access {
  StmtId stmt = kNone;  // the store, or the statement whose expressions contain the load
  ExprId load = kNone;  // kNone for a store
  BufferId buffer = kNone;
  std::span<const ExprId> indices;  // one per dim
  bool is_store() const { return load == kNone; }
};

// Every load and store under `body`, in program order (of one statement: loads before its store). A
// load that several statements share is listed for each of them.
std::vector<Access> Accesses(const Function& function, std::span<const StmtId> body);

// Every statement under `body`, outer before inner, in program order.
std::vector<StmtId> StatementsUnder(const Function& function, std::span<const StmtId> body);

// Facts within one iteration space: how expressions under a kFor loop vary with its index. Lets
// under the loop are looked through. Loop indices of inner loops count as fixed (they are other
// dimensions of the nest).
class LoopAnalysis {
 public:
  LoopAnalysis(const Function& function, StmtId loop);

  // c, when between consecutive iterations, everything else fixed, the integer expression changes
  // by exactly the constant c (wrapping arithmetic ignored); 0 when it does not depend on the loop.
  // Nothing for all else: non-affine, float expressions of the index, a coefficient that is not
  // constant.
  std::optional<int64_t> Stride(ExprId id) const;
  // The value is the same in every iteration: no loop index, no local assigned under the loop, no
  // load of a buffer that is stored to under the loop.
  bool Invariant(ExprId id) const;

  bool assigns(LocalId local) const { return assigned_[static_cast<size_t>(local)]; }
  bool stores_to(BufferId buffer) const { return stored_[static_cast<size_t>(buffer)]; }

 private:
  struct Form {
    bool affine = false;
    int64_t stride = 0;
  };
  Form FormOf(ExprId id) const;
  Form Compute(const Expr& e) const;
  Form Product(const Expr& e, Form a, Form b) const;

  const Function& function_;
  VarId var_;
  std::vector<bool> assigned_;    // by LocalId
  std::vector<bool> stored_;      // by BufferId
  std::map<VarId, ExprId> lets_;  // defined under the loop
  mutable std::vector<std::optional<Form>> memo_;
};

// ---- Rewriting: expressions and statements are appended, existing ones stay
// as they are ----

ExprId AddInt(Function& function, int64_t value);
// Folds constants and neutral operands (x + 0, x * 1, x * 0, x / 1).
ExprId AddBinary(Function& function, BinaryOp op, ExprId a, ExprId b);
ExprId AddSelect(Function& function, ExprId condition, ExprId then, ExprId otherwise);
// A fresh variable (a loop's or let's to define); returns the expression that reads it.
ExprId AddVar(Function& function, const std::string& name, DataType type = DataType::kI64);
LocalId AddLocal(Function& function, const std::string& name, DataType type);
ExprId AddLocalRead(Function& function, LocalId local);
StmtId AddStmt(Function& function, Stmt stmt);

struct Substitution {
  std::map<VarId, ExprId> vars;          // what to read in place of a variable
  std::map<LocalId, LocalId> locals;     // read and set
  std::map<BufferId, BufferId> buffers;  // of equal rank and dtype
};

// `id` with the substitution applied; `id` itself when nothing in it changes.
ExprId Substitute(Function& function, ExprId id, const Substitution& substitution);

// A copy of `body`, substitution applied, with fresh variables for the loops and lets in it. Locals
// are shared with the original unless the substitution renames them.
std::vector<StmtId> Clone(Function& function, std::span<const StmtId> body,
                          const Substitution& substitution);

}  // namespace quench::loops
