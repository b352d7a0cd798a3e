#include "common/loops/linear.h"

#include "common/loops/scalar.h"

namespace quench::loops {
namespace {

// A longer sum is kept as one atom: adding it up once is cheaper than at every use.
constexpr size_t kMaxTerms = 12;

}  // namespace

void Linear::Add(const Linear& other, int64_t factor) {
  constant = scalar::Add(constant, scalar::Mul(other.constant, factor));
  std::vector<Term> sum;
  sum.reserve(terms.size() + other.terms.size());
  size_t i = 0;
  for (const Term& term : other.terms) {
    while (i < terms.size() && terms[i].atom < term.atom) sum.push_back(terms[i++]);
    int64_t coefficient = scalar::Mul(term.coefficient, factor);
    if (i < terms.size() && terms[i].atom == term.atom) {
      coefficient = scalar::Add(coefficient, terms[i++].coefficient);
    }
    if (coefficient != 0) sum.push_back({term.atom, coefficient});
  }
  sum.insert(sum.end(), terms.begin() + static_cast<std::ptrdiff_t>(i), terms.end());
  terms = std::move(sum);
}

const Linear& LinearForms::Of(ExprId id) {
  if (const auto it = memo_.find(id); it != memo_.end()) return it->second;
  Linear form = Compute(id);
  if (form.terms.size() > kMaxTerms) form = {0, {{id, 1}}};
  return memo_[id] = std::move(form);
}

Linear LinearForms::Compute(ExprId id) {
  if (const auto value = ranges_.ConstantOf(id)) return {*value, {}};
  const Expr& e = function_.exprs[static_cast<size_t>(id)];
  Linear atom = {0, {{id, 1}}};
  Linear form;
  if (e.kind == ExprKind::kVar) {
    const auto let = lets_.find(e.id);
    if (let == lets_.end() || impure_[static_cast<size_t>(let->second)]) return atom;
    return Of(let->second);
  }
  if (e.kind == ExprKind::kUnary && e.unary == UnaryOp::kNeg) {
    form.Add(Of(e.args[0]), -1);
    return form;
  }
  if (e.kind != ExprKind::kBinary) return atom;
  switch (e.binary) {
    case BinaryOp::kAdd:
    case BinaryOp::kSub:
      form = Of(e.args[0]);
      form.Add(Of(e.args[1]), e.binary == BinaryOp::kAdd ? 1 : -1);
      return form;
    case BinaryOp::kMul:
      for (const size_t side : {size_t{0}, size_t{1}}) {
        const auto factor = ranges_.ConstantOf(e.args[side]);
        if (!factor) continue;
        form.Add(Of(e.args[1 - side]), *factor);
        return form;
      }
      return atom;
    default:
      return atom;
  }
}

}  // namespace quench::loops
