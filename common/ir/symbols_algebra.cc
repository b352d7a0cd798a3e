// Arithmetic on dims in normal form.
//
// Sums and products are polynomials with integer coefficients; the rules for the rest:
//   floordiv(c*q + r, c)          = q + floordiv(r, c), coefficients of r in [0, c)
//   floordiv(floordiv(a, b), c)   = floordiv(a, b*c)
//   floordiv(g*a, g*b)            = floordiv(a, b)
//   ceildiv(a, b)                 = floordiv(a - 1, b) + 1
//   mod(c*q + r, c)               = mod(r, c)
//   min, max                      flattened, sorted, operands that the ranges rule out dropped
#include <algorithm>
#include <numeric>

#include "common/ir/polynomial.h"
#include "common/ir/saturating.h"
#include "common/ir/symbols.h"

namespace quench {
namespace {

constexpr size_t kMaxFactors = 16;
constexpr size_t kMaxExtremumOperands = 16;

// Limits as infinities: a saturated bound says nothing.
int64_t BoundMul(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  const bool infinite = a == kInt64Max || b == kInt64Max || a == kInt64Min || b == kInt64Min;
  if (infinite) return (a > 0) == (b > 0) ? kInt64Max : kInt64Min;
  return SaturatingMul(a, b);
}

int64_t BoundAddMin(int64_t a, int64_t b) {
  return a == kInt64Min || b == kInt64Min ? kInt64Min : SaturatingAdd(a, b);
}
int64_t BoundAddMax(int64_t a, int64_t b) {
  return a == kInt64Max || b == kInt64Max ? kInt64Max : SaturatingAdd(a, b);
}

Bounds MultiplyBounds(Bounds a, Bounds b) {
  const auto [lo, hi] = std::minmax({BoundMul(a.min, b.min), BoundMul(a.min, b.max),
                                     BoundMul(a.max, b.min), BoundMul(a.max, b.max)});
  return {lo, hi};
}

// Divisors are positive by contract, so a lower bound below 1 is raised.
Bounds DivideBounds(Bounds a, Bounds b) {
  const int64_t low = std::max<int64_t>(b.min, 1);
  const int64_t high = std::max(b.max, low);
  const auto divide = [](int64_t x, int64_t y) {
    if (x == kInt64Max || x == kInt64Min) return x;
    return FloorDivide(x, y);
  };
  return {divide(a.min, a.min < 0 ? low : high), divide(a.max, a.max < 0 ? high : low)};
}

Bounds BoundsOfBinary(DimOp op, Bounds a, Bounds b) {
  switch (op) {
    case DimOp::kMin:
      return {std::min(a.min, b.min), std::min(a.max, b.max)};
    case DimOp::kMax:
      return {std::max(a.min, b.min), std::max(a.max, b.max)};
    case DimOp::kMod: {
      const int64_t top = b.max == kUnbounded ? kUnbounded : std::max<int64_t>(b.max - 1, 0);
      return {0, a.min >= 0 ? std::min(a.max, top) : top};
    }
    case DimOp::kFloorDiv:
      return DivideBounds(a, b);
    default: {
      const Bounds floor = DivideBounds(a, b);
      return {floor.min, BoundAddMax(floor.max, 1)};
    }
  }
}

}  // namespace

Polynomial SymbolTable::ToPolynomial(Dim dim) const {
  Polynomial result;
  if (dim.is_static()) {
    result.constant = dim.value();
  } else if (const auto* polynomial = std::get_if<Polynomial>(&at(dim.symbol()).definition)) {
    result = *polynomial;
  } else {
    result.terms.push_back({1, {dim.symbol()}});
  }
  return result;
}

Dim SymbolTable::FromPolynomial(const Polynomial& polynomial) {
  if (polynomial.terms.empty()) return polynomial.constant;
  const Monomial& first = polynomial.terms.front();
  if (polynomial.terms.size() == 1 && polynomial.constant == 0 && first.coefficient == 1 &&
      first.factors.size() == 1) {
    return Dim::OfSymbol(first.factors.front());
  }
  return Intern(polynomial);
}

Polynomial SymbolTable::Opaque(const Polynomial& polynomial) {
  const Dim dim = FromPolynomial(polynomial);
  Polynomial result;
  if (dim.is_static()) {
    result.constant = dim.value();
  } else {
    result.terms.push_back({1, {dim.symbol()}});
  }
  return result;
}

Polynomial SymbolTable::Sum(const Polynomial& a, const Polynomial& b, int64_t scale_b) {
  Polynomial sum = a;
  for (Monomial term : AllTerms(b)) {
    term.coefficient = SaturatingMul(term.coefficient, scale_b);
    AddTerm(sum, term);
  }
  if (sum.terms.size() <= kMaxTerms) return sum;
  sum = a.terms.size() >= b.terms.size() ? Opaque(a) : a;
  for (Monomial term : AllTerms(a.terms.size() >= b.terms.size() ? b : Opaque(b))) {
    term.coefficient = SaturatingMul(term.coefficient, scale_b);
    AddTerm(sum, term);
  }
  return sum;
}

Polynomial SymbolTable::Times(const Polynomial& a, const Polynomial& b) {
  const auto degree = [](const Polynomial& p) {
    size_t most = 0;
    for (const Monomial& term : p.terms) most = std::max(most, term.factors.size());
    return most;
  };
  const auto terms = [](const Polynomial& p) { return p.terms.size() + (p.constant != 0 ? 1 : 0); };
  const bool fits = degree(a) + degree(b) <= kMaxFactors && terms(a) * terms(b) <= kMaxTerms;
  const bool scale = a.terms.empty() || b.terms.empty();
  Polynomial left = a;
  Polynomial right = b;
  if (!fits && !scale) {
    left = Opaque(a);
    right = Opaque(b);
  }
  Polynomial product;
  for (const Monomial& x : AllTerms(left)) {
    for (const Monomial& y : AllTerms(right)) AddTerm(product, MultiplyTerms(x, y));
  }
  return product;
}

Dim SymbolTable::Intern(const Polynomial& polynomial) {
  std::string form = "+" + std::to_string(polynomial.constant);
  for (const Monomial& term : polynomial.terms) {
    form += ";" + std::to_string(term.coefficient);
    for (SymbolId factor : term.factors) form += "," + std::to_string(factor);
  }
  if (const auto it = by_form_.find(form); it != by_form_.end()) return Dim::OfSymbol(it->second);
  const SymbolId id = Append({"", kInt64Min, kInt64Max, 1, polynomial});
  by_form_.emplace(std::move(form), id);
  return Dim::OfSymbol(id);
}

Dim SymbolTable::Intern(const DimBinary& binary) {
  const auto key = [](Dim dim) {
    return dim.is_static() ? std::to_string(dim.value()) : "$" + std::to_string(dim.symbol());
  };
  std::string form =
      std::to_string(static_cast<int>(binary.op)) + ":" + key(binary.lhs) + "," + key(binary.rhs);
  if (const auto it = by_form_.find(form); it != by_form_.end()) return Dim::OfSymbol(it->second);
  const SymbolId id = Append({"", kInt64Min, kInt64Max, 1, binary});
  by_form_.emplace(std::move(form), id);
  return Dim::OfSymbol(id);
}

void SymbolTable::Refresh(SymbolId id) {
  Symbol& symbol = symbols_[static_cast<size_t>(id)];
  if (const auto* polynomial = std::get_if<Polynomial>(&symbol.definition)) {
    const Bounds bounds = BoundsOfPolynomial(*polynomial);
    symbol.min = bounds.min;
    symbol.max = bounds.max;
    symbol.multiple_of = Gcd(polynomial->constant, 0);
    for (const Monomial& term : polynomial->terms) {
      symbol.multiple_of = Gcd(symbol.multiple_of, MultipleOf(term));
    }
  } else if (const auto* binary = std::get_if<DimBinary>(&symbol.definition)) {
    const Bounds bounds = BoundsOfBinary(binary->op, BoundsOf(binary->lhs), BoundsOf(binary->rhs));
    symbol.min = bounds.min;
    symbol.max = bounds.max;
    const int64_t lhs = MultipleOf(binary->lhs);
    const int64_t rhs = MultipleOf(binary->rhs);
    if (binary->op == DimOp::kFloorDiv || binary->op == DimOp::kCeilDiv) {
      const bool exact = binary->rhs.is_static() && binary->rhs.value() > 0 && lhs % rhs == 0;
      symbol.multiple_of = exact ? std::max<int64_t>(lhs / rhs, 1) : 1;
    } else {
      symbol.multiple_of = std::max<int64_t>(Gcd(lhs, rhs), 1);
    }
  } else if (const auto* runtime = std::get_if<RuntimeSize>(&symbol.definition)) {
    if (runtime->upper) symbol.max = BoundsOf(*runtime->upper).max;
  }
}

Bounds SymbolTable::BoundsOf(Dim dim) const {
  if (dim.is_static()) return {dim.value(), dim.value()};
  const Symbol& symbol = at(dim.symbol());
  return {symbol.min, symbol.max};
}

Bounds SymbolTable::BoundsOfPolynomial(const Polynomial& polynomial) const {
  Bounds sum{polynomial.constant, polynomial.constant};
  for (const Monomial& term : polynomial.terms) {
    Bounds product{term.coefficient, term.coefficient};
    for (SymbolId factor : term.factors) {
      product = MultiplyBounds(product, BoundsOf(Dim::OfSymbol(factor)));
    }
    sum = {BoundAddMin(sum.min, product.min), BoundAddMax(sum.max, product.max)};
  }
  return sum;
}

// Largest known divisor; 0 for the static 0, which everything divides.
int64_t SymbolTable::MultipleOf(Dim dim) const {
  if (dim.is_static()) return Gcd(dim.value(), 0);
  return at(dim.symbol()).multiple_of;
}

int64_t SymbolTable::MultipleOf(const Monomial& term) const {
  int64_t multiple = Gcd(term.coefficient, 0);
  for (SymbolId factor : term.factors) {
    int64_t product = 0;
    if (__builtin_mul_overflow(multiple, at(factor).multiple_of, &product)) break;
    multiple = product;
  }
  return multiple;
}

bool SymbolTable::IsMultipleOf(Dim dim, int64_t factor) const {
  return factor > 0 && MultipleOf(dim) % factor == 0;
}

Dim SymbolTable::Add(Dim a, Dim b) {
  if (a.is(0)) return b;
  if (b.is(0)) return a;
  return FromPolynomial(Sum(ToPolynomial(a), ToPolynomial(b), 1));
}

Dim SymbolTable::Sub(Dim a, Dim b) {
  if (a == b) return 0;
  return FromPolynomial(Sum(ToPolynomial(a), ToPolynomial(b), -1));
}

Dim SymbolTable::Mul(Dim a, Dim b) {
  if (a.is(1)) return b;
  if (b.is(1)) return a;
  return FromPolynomial(Times(ToPolynomial(a), ToPolynomial(b)));
}

Dim SymbolTable::Product(std::span<const Dim> dims) {
  Dim product = 1;
  for (Dim dim : dims) product = Mul(product, dim);
  return product;
}

Dim SymbolTable::FloorDivConstant(Dim a, int64_t divisor) {
  if (divisor <= 0) return Intern(DimBinary{DimOp::kFloorDiv, a, divisor});
  if (a.is_static()) return FloorDivide(a.value(), divisor);
  if (divisor == 1) return a;
  Polynomial quotient;
  Polynomial rest;
  Split(ToPolynomial(a), {divisor, {}}, &quotient, &rest);
  if (!rest.terms.empty()) {
    // The varying part moves in steps of `step`, so a smaller part of the constant never matters.
    int64_t step = divisor;
    for (const Monomial& term : rest.terms) step = Gcd(step, MultipleOf(term));
    rest.constant -= FloorModulo(rest.constant, step);
  }
  const int64_t content = Content(rest, divisor);
  DivideAll(rest, content);
  divisor /= content;

  const Bounds bounds = BoundsOfPolynomial(rest);
  const bool finite = bounds.min != kInt64Min && bounds.max != kInt64Max;
  if (finite && FloorDivide(bounds.min, divisor) == FloorDivide(bounds.max, divisor)) {
    quotient.constant = SaturatingAdd(quotient.constant, FloorDivide(bounds.min, divisor));
    return FromPolynomial(quotient);
  }
  if (divisor == 1) return FromPolynomial(Sum(quotient, rest, 1));
  if (rest.terms.size() == 1 && rest.terms[0].coefficient == 1 &&
      rest.terms[0].factors.size() == 1) {
    const auto* binary = std::get_if<DimBinary>(&at(rest.terms[0].factors[0]).definition);
    int64_t product = 0;
    int64_t shift = 0;
    if (binary != nullptr && binary->op == DimOp::kFloorDiv && binary->rhs.is_static() &&
        binary->rhs.value() > 0 &&
        !__builtin_mul_overflow(binary->rhs.value(), divisor, &product) &&
        !__builtin_mul_overflow(binary->rhs.value(), rest.constant, &shift)) {
      const Dim inner = FloorDivConstant(Add(binary->lhs, shift), product);
      return Add(FromPolynomial(quotient), inner);
    }
  }
  const Dim atom = Intern(DimBinary{DimOp::kFloorDiv, FromPolynomial(rest), divisor});
  return FromPolynomial(Sum(quotient, ToPolynomial(atom), 1));
}

Dim SymbolTable::FloorDiv(Dim a, Dim b) {
  if (b.is_static()) return FloorDivConstant(a, b.value());
  if (a.is(0)) return 0;
  Polynomial divisor = ToPolynomial(b);
  Polynomial quotient;
  Polynomial rest = ToPolynomial(a);
  if (const auto exact = DivideExactly(rest, divisor)) return FromPolynomial(*exact);
  if (divisor.terms.size() == 1 && divisor.constant == 0 && divisor.terms[0].coefficient > 0) {
    const Polynomial whole = std::move(rest);
    rest = {};
    Split(whole, divisor.terms[0], &quotient, &rest);
  }
  const int64_t content = Content(divisor, Content(rest, 0));
  if (content > 1) {
    DivideAll(rest, content);
    DivideAll(divisor, content);
  }
  const Bounds bounds = BoundsOfPolynomial(rest);
  if (bounds.min >= 0 && bounds.max < BoundsOfPolynomial(divisor).min)
    return FromPolynomial(quotient);
  const Dim atom =
      Intern(DimBinary{DimOp::kFloorDiv, FromPolynomial(rest), FromPolynomial(divisor)});
  return FromPolynomial(Sum(quotient, ToPolynomial(atom), 1));
}

Dim SymbolTable::CeilDiv(Dim a, Dim b) {
  if (b.is_static() && b.value() <= 0) return FloorDiv(a, b);
  return Add(FloorDiv(Sub(a, 1), b), 1);
}

Dim SymbolTable::Mod(Dim a, Dim b) {
  if (b.is_static() && b.value() <= 0) return Intern(DimBinary{DimOp::kMod, a, b});
  if (a.is_static() && b.is_static()) return FloorModulo(a.value(), b.value());
  Polynomial rest = ToPolynomial(a);
  if (b.is_static()) {
    if (IsMultipleOf(a, b.value())) return 0;
    Polynomial quotient;
    const Polynomial whole = std::move(rest);
    rest = {};
    Split(whole, {b.value(), {}}, &quotient, &rest);
  } else if (DivideExactly(rest, ToPolynomial(b))) {
    return 0;
  }
  const Dim lhs = FromPolynomial(rest);
  const Bounds bounds = BoundsOf(lhs);
  if (lhs.is_static() && b.is_static()) return FloorModulo(lhs.value(), b.value());
  if (bounds.min >= 0 && bounds.max < BoundsOf(b).min) return lhs;
  return Intern(DimBinary{DimOp::kMod, lhs, b});
}

Dim SymbolTable::Extremum(DimOp op, Dim a, Dim b) {
  if (a == b) return a;
  if (a.is_static() && b.is_static()) {
    return op == DimOp::kMin ? std::min(a.value(), b.value()) : std::max(a.value(), b.value());
  }
  std::vector<Dim> operands;
  const auto collect = [&](Dim dim) {
    // Nested ones are folded from the left, so only the left operand can be nested again.
    while (!dim.is_static() && operands.size() < kMaxExtremumOperands) {
      const auto* binary = std::get_if<DimBinary>(&at(dim.symbol()).definition);
      if (binary == nullptr || binary->op != op) break;
      operands.push_back(binary->rhs);
      dim = binary->lhs;
    }
    operands.push_back(dim);
  };
  collect(a);
  collect(b);
  std::sort(operands.begin(), operands.end());
  operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
  // x is redundant when some y is always at most (min) or at least (max) as large.
  const auto wins = [&](Dim y, Dim x) {
    const Bounds difference = BoundsOfPolynomial(Sum(ToPolynomial(y), ToPolynomial(x), -1));
    return op == DimOp::kMin ? difference.max <= 0 : difference.min >= 0;
  };
  std::vector<Dim> kept;
  for (Dim x : operands) {
    if (std::any_of(kept.begin(), kept.end(), [&](Dim y) { return wins(y, x); })) continue;
    std::erase_if(kept, [&](Dim y) { return wins(x, y); });
    kept.push_back(x);
  }
  Dim result = kept[0];
  for (size_t i = 1; i < kept.size(); ++i) result = Intern(DimBinary{op, result, kept[i]});
  return result;
}

Dim SymbolTable::Min(Dim a, Dim b) { return Extremum(DimOp::kMin, a, b); }
Dim SymbolTable::Max(Dim a, Dim b) { return Extremum(DimOp::kMax, a, b); }

}  // namespace quench
