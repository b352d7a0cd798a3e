#include "common/loops/long_sums.h"

#include <algorithm>

#include "common/loops/scalar.h"

namespace quench::loops {
namespace {

constexpr int64_t kManyTerms = int64_t{1} << 40;
// A window's extent at a place: not known before the place is, but small.
constexpr int64_t kTermsOfWindow = 16;

const Stmt& StmtOf(const Function& f, StmtId id) { return f.stmts[static_cast<size_t>(id)]; }

// A size: without variables, which the ranges may not know yet.
bool IsSize(const Function& f, ExprId id, int depth = 0) {
  const Expr& e = f.exprs[static_cast<size_t>(id)];
  if (e.kind == ExprKind::kInt || e.kind == ExprKind::kSlot || e.kind == ExprKind::kParam)
    return true;
  if (e.kind != ExprKind::kBinary || depth > 8) return false;
  return IsSize(f, e.args[0], depth + 1) && IsSize(f, e.args[1], depth + 1);
}

// Iterations of the loop at most.
int64_t MostTrips(const Stmt& loop, Ranges& ranges) {
  const int64_t first = ranges.Of(loop.args[0]).lo, last = ranges.Of(loop.args[1]).hi;
  if (first == INT64_MIN || last == INT64_MAX) return kManyTerms;
  return std::clamp<int64_t>(scalar::Sub(last, first), 0, kManyTerms);
}

int64_t TermsUnder(const Function& f, const std::vector<StmtId>& body, LocalId sum, Ranges& ranges);

// Terms that a loop under a reduction adds to its sum: one where it makes blocks of its own.
int64_t TermsOf(const Function& f, const Stmt& loop, LocalId sum, Ranges& ranges) {
  const int64_t each = TermsUnder(f, loop.body, sum, ranges);
  if (each == 0) return 0;
  const bool is_size = IsSize(f, loop.args[0]) && IsSize(f, loop.args[1]);
  const int64_t trips = is_size ? MostTrips(loop, ranges) : kTermsOfWindow;
  return each * trips > kTermsOfBlock ? 1 : each * trips;
}

int64_t TermsUnder(const Function& f, const std::vector<StmtId>& body, LocalId sum,
                   Ranges& ranges) {
  int64_t terms = 0;
  for (const StmtId id : body) {
    const Stmt& stmt = StmtOf(f, id);
    if (stmt.kind == StmtKind::kSet && stmt.id == sum) ++terms;
    if (stmt.kind == StmtKind::kFor) {
      terms += TermsOf(f, stmt, sum, ranges);
    } else {
      terms += TermsUnder(f, stmt.body, sum, ranges);
      terms += TermsUnder(f, stmt.otherwise, sum, ranges);
    }
  }
  return std::min(terms, kTermsOfBlock);
}

}  // namespace

bool IsLongSum(const Function& function, const Reduction& reduction) {
  return reduction.op == BinaryOp::kAdd &&
         function.locals[static_cast<size_t>(reduction.local)].type == DataType::kF32;
}

int64_t IterationsOfBlock(const Function& function, StmtId loop, Ranges& ranges, int lanes) {
  const Stmt& stmt = StmtOf(function, loop);
  if (stmt.mark != LoopMark::kReduce) return 0;
  const int64_t trips = MostTrips(stmt, ranges);
  int64_t terms = 0;
  for (const Reduction& reduction : stmt.reductions) {
    if (IsLongSum(function, reduction))
      terms = std::max(terms, TermsUnder(function, stmt.body, reduction.local, ranges));
  }
  if (terms == 0 || trips * terms <= kTermsOfBlock * lanes) return 0;
  return std::max<int64_t>(kTermsOfBlock / terms, 1);
}

}  // namespace quench::loops
