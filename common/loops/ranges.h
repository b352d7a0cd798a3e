// Integer ranges of expressions once slots are known: which indices need no bounds check, which
// expressions are constants, how long loops run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/loops/loops.h"

namespace quench::loops {

// lo <= value <= hi. Default: anything.
struct Range {
  int64_t lo = INT64_MIN;
  int64_t hi = INT64_MAX;
  bool IsPoint() const { return lo == hi; }
  bool Within(int64_t begin, int64_t end) const { return lo >= begin && hi < end; }
};

// Ranges of the i64 and bool expressions of one function for given slot values. Variables get
// theirs by Define (loops) or by their let; an expression is asked about only once its variables
// are defined.
class Ranges {
 public:
  Ranges(const Function& function, std::span<const int64_t> slots);

  const Range& Of(ExprId id);
  void Define(VarId var, Range range) { vars_[static_cast<size_t>(var)] = range; }
  // The value where it is a constant: a kInt or an expression whose range is one value.
  std::optional<int64_t> ConstantOf(ExprId id);

 private:
  Range Compute(const Expr& e);
  Range Binary(const Expr& e);

  const Function& function_;
  std::span<const int64_t> slots_;
  std::vector<bool> written_slots_;
  std::vector<Range> vars_;
  std::vector<Range> memo_;
  std::vector<bool> known_;
};

}  // namespace quench::loops
