#include "common/ir/polynomial.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "common/ir/saturating.h"

namespace quench {
namespace {

bool IsZero(const Polynomial& p) { return p.terms.empty() && p.constant == 0; }

// Factors of `a` without those of `b`, or nullopt when `b` does not divide `a`.
std::optional<std::vector<SymbolId>> Without(const std::vector<SymbolId>& a,
                                             const std::vector<SymbolId>& b) {
  if (!std::includes(a.begin(), a.end(), b.begin(), b.end())) return std::nullopt;
  std::vector<SymbolId> rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
  return rest;
}

// Leading term in graded order, which multiplication respects: highest degree, then first in factor
// order.
Monomial Leading(const Polynomial& p) {
  Monomial best{p.constant, {}};
  for (const Monomial& term : p.terms) {
    const bool higher = term.factors.size() > best.factors.size();
    const bool earlier = term.factors.size() == best.factors.size() && term.factors < best.factors;
    if (higher || earlier) best = term;
  }
  return best;
}

}  // namespace

int64_t Gcd(int64_t a, int64_t b) {
  if (a == kInt64Min || b == kInt64Min) return 1;
  return std::gcd(a, b);
}

int64_t Content(const Polynomial& p, int64_t start) {
  int64_t content = Gcd(start, p.constant);
  for (const Monomial& term : p.terms) content = Gcd(content, term.coefficient);
  return content;
}

void DivideAll(Polynomial& p, int64_t divisor) {
  p.constant /= divisor;
  for (Monomial& term : p.terms) term.coefficient /= divisor;
}

std::vector<Monomial> AllTerms(const Polynomial& p) {
  std::vector<Monomial> terms = p.terms;
  if (p.constant != 0) terms.push_back({p.constant, {}});
  return terms;
}

void AddTerm(Polynomial& p, const Monomial& term) {
  if (term.factors.empty()) {
    p.constant = SaturatingAdd(p.constant, term.coefficient);
    return;
  }
  const auto it =
      std::lower_bound(p.terms.begin(), p.terms.end(), term,
                       [](const Monomial& a, const Monomial& b) { return a.factors < b.factors; });
  if (it == p.terms.end() || it->factors != term.factors) {
    if (term.coefficient != 0) p.terms.insert(it, term);
    return;
  }
  it->coefficient = SaturatingAdd(it->coefficient, term.coefficient);
  if (it->coefficient == 0) p.terms.erase(it);
}

Monomial MultiplyTerms(const Monomial& a, const Monomial& b) {
  Monomial product{SaturatingMul(a.coefficient, b.coefficient), {}};
  std::merge(a.factors.begin(), a.factors.end(), b.factors.begin(), b.factors.end(),
             std::back_inserter(product.factors));
  return product;
}

std::optional<Polynomial> DivideExactly(Polynomial a, const Polynomial& b) {
  Polynomial quotient;
  const Monomial divisor = Leading(b);
  if (divisor.coefficient == 0) return std::nullopt;
  for (size_t step = 0; step < kMaxTerms; ++step) {
    if (IsZero(a)) return quotient;
    const Monomial lead = Leading(a);
    const auto factors = Without(lead.factors, divisor.factors);
    if (!factors || divisor.coefficient == -1 || lead.coefficient % divisor.coefficient != 0) {
      return std::nullopt;
    }
    const Monomial part{lead.coefficient / divisor.coefficient, *factors};
    AddTerm(quotient, part);
    for (const Monomial& term : AllTerms(b)) {
      Monomial product = MultiplyTerms(part, term);
      product.coefficient = SaturatingMul(product.coefficient, -1);
      AddTerm(a, product);
    }
    if (a.terms.size() > kMaxTerms) return std::nullopt;
  }
  return std::nullopt;
}

void Split(const Polynomial& a, const Monomial& divisor, Polynomial* quotient, Polynomial* rest) {
  for (const Monomial& term : AllTerms(a)) {
    const auto factors = Without(term.factors, divisor.factors);
    if (!factors) {
      AddTerm(*rest, term);
      continue;
    }
    AddTerm(*quotient, {FloorDivide(term.coefficient, divisor.coefficient), *factors});
    AddTerm(*rest, {FloorModulo(term.coefficient, divisor.coefficient), term.factors});
  }
}

}  // namespace quench
