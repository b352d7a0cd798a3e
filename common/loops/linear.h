// Index expressions as sums: constant + coefficient * atom + ..., so that addresses of all dims add
// up to one sum whose loop-invariant part is computed outside the loop.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/loops/ranges.h"

namespace quench::loops {

struct Linear {
  struct Term {
    ExprId atom = kNone;
    int64_t coefficient = 0;
  };
  int64_t constant = 0;
  std::vector<Term> terms;  // by ascending atom, no coefficient 0

  // *this += factor * other, wrapping.
  void Add(const Linear& other, int64_t factor);
};

// Linear forms of the i64 expressions of one function. Variables bound by a let to arithmetic on
// variables are looked through.
class LinearForms {
 public:
  // `impure[e]`: the value of e depends on memory or on locals, hence on when it is computed.
  LinearForms(const Function& function, Ranges& ranges, const std::vector<bool>& impure)
      : function_(function), ranges_(ranges), impure_(impure) {}

  void DefineLet(VarId var, ExprId value) { lets_[var] = value; }
  const Linear& Of(ExprId id);

 private:
  Linear Compute(ExprId id);

  const Function& function_;
  Ranges& ranges_;
  const std::vector<bool>& impure_;
  std::unordered_map<VarId, ExprId> lets_;
  std::unordered_map<ExprId, Linear> memo_;
};

}  // namespace quench::loops
