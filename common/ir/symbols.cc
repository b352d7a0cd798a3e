#include "common/ir/symbols.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "common/base/overloaded.h"
#include "common/base/status.h"
#include "common/ir/saturating.h"

namespace quench {
namespace {

std::optional<int64_t> CheckedValue(const Polynomial& polynomial, std::span<const int64_t> slots) {
  int64_t sum = polynomial.constant;
  for (const Monomial& term : polynomial.terms) {
    // A zero factor makes the product zero whatever the order of multiplication.
    const bool zero = std::any_of(term.factors.begin(), term.factors.end(),
                                  [&](SymbolId f) { return slots[static_cast<size_t>(f)] == 0; });
    if (zero) continue;
    int64_t product = term.coefficient;
    for (SymbolId factor : term.factors) {
      if (__builtin_mul_overflow(product, slots[static_cast<size_t>(factor)], &product)) {
        return std::nullopt;
      }
    }
    if (__builtin_add_overflow(sum, product, &sum)) return std::nullopt;
  }
  return sum;
}

// Nullopt when the divisor is not positive.
std::optional<int64_t> CheckedValue(DimOp op, int64_t lhs, int64_t rhs) {
  if (op == DimOp::kMin) return std::min(lhs, rhs);
  if (op == DimOp::kMax) return std::max(lhs, rhs);
  if (rhs <= 0) return std::nullopt;
  switch (op) {
    case DimOp::kFloorDiv:
      return FloorDivide(lhs, rhs);
    case DimOp::kCeilDiv:
      return FloorDivide(lhs, rhs) + (FloorModulo(lhs, rhs) != 0 ? 1 : 0);
    default:
      return FloorModulo(lhs, rhs);
  }
}

}  // namespace

SymbolId SymbolTable::Append(Symbol symbol) {
  const SymbolId id = static_cast<SymbolId>(symbols_.size());
  if (symbol.is_expression()) {
    symbol.name = "$" + std::to_string(id);
  } else {
    by_name_.emplace(symbol.name, id);
  }
  symbols_.push_back(std::move(symbol));
  bool runtime = at(id).is_runtime();
  if (at(id).is_expression()) {
    Refresh(id);
    ForEachOperand(id, [&](Dim dim) { runtime = runtime || DependsOnRuntime(dim); });
  }
  depends_on_runtime_.push_back(runtime);
  text_size_.push_back(TextSize(id));
  return id;
}

SymbolId SymbolTable::AddInput(const std::string& name, InputAxis axis, Bounds bounds,
                               int64_t multiple_of) {
  if (const auto it = by_name_.find(name); it != by_name_.end()) return it->second;
  return Append({name, bounds.min, bounds.max, std::max<int64_t>(multiple_of, 1), axis});
}

SymbolId SymbolTable::AddRuntime(const std::string& name, const std::string& node,
                                 std::optional<Dim> upper) {
  if (const auto it = by_name_.find(name); it != by_name_.end()) return it->second;
  const int64_t max = upper ? BoundsOf(*upper).max : kUnbounded;
  return Append({name, 0, max, 1, RuntimeSize{node, upper}});
}

std::optional<SymbolId> SymbolTable::Find(const std::string& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? std::nullopt : std::optional(it->second);
}

absl::Status SymbolTable::Restrict(SymbolId id, Bounds bounds, int64_t multiple_of) {
  Symbol& symbol = symbols_[static_cast<size_t>(id)];
  if (!symbol.is_input()) {
    return InvalidArgument("symbol `{}` is not an input size: only those can be restricted",
                           ToString(Dim::OfSymbol(id)));
  }
  const int64_t min = std::max(bounds.min, symbol.min);
  const int64_t max = std::min(bounds.max, symbol.max);
  if (multiple_of < 1) {
    return InvalidArgument("symbol `{}`: multiple {} is not positive", symbol.name, multiple_of);
  }
  int64_t multiple = 0;
  if (__builtin_mul_overflow(symbol.multiple_of / std::gcd(symbol.multiple_of, multiple_of),
                             multiple_of, &multiple)) {
    return InvalidArgument("symbol `{}`: multiples of {} and of {} have none in common below 2^63",
                           symbol.name, symbol.multiple_of, multiple_of);
  }
  if (min > max || SaturatingMul(FloorDivide(max, multiple), multiple) < min) {
    return InvalidArgument(
        "symbol `{}` is in {}..{} and a multiple of {}: nothing of that lies in {}..{}",
        symbol.name, symbol.min, symbol.max, multiple, bounds.min, bounds.max);
  }
  symbol.min = min;
  symbol.max = max;
  symbol.multiple_of = multiple;
  for (SymbolId other = id + 1; other < size(); ++other) Refresh(other);
  return absl::OkStatus();
}

bool SymbolTable::DependsOnRuntime(Dim dim) const {
  return !dim.is_static() && depends_on_runtime_[static_cast<size_t>(dim.symbol())];
}

absl::StatusOr<std::vector<int64_t>> SymbolTable::Evaluate(std::span<const int64_t> base) const {
  std::vector<int64_t> slots(symbols_.size(), -1);
  std::vector<bool> known(symbols_.size(), false);
  for (SymbolId id = 0; id < size(); ++id) {
    const size_t i = static_cast<size_t>(id);
    const Symbol& symbol = symbols_[i];
    if (!symbol.is_expression()) {
      known[i] = i < base.size() && base[i] != -1;
      if (known[i]) slots[i] = base[i];
      continue;
    }
    bool ready = true;
    ForEachOperand(id, [&](Dim dim) {
      ready = ready && (dim.is_static() || known[static_cast<size_t>(dim.symbol())]);
    });
    if (!ready) continue;
    std::optional<int64_t> value;
    if (const auto* polynomial = std::get_if<Polynomial>(&symbol.definition)) {
      value = CheckedValue(*polynomial, slots);
      if (!value) return InvalidArgument("size `{}` exceeds 2^63", ToString(Dim::OfSymbol(id)));
    } else {
      const DimBinary& binary = std::get<DimBinary>(symbol.definition);
      value = CheckedValue(binary.op, ValueOf(binary.lhs, slots), ValueOf(binary.rhs, slots));
      if (!value) {
        return InvalidArgument("size `{}` divides by {}, a divisor is positive",
                               ToString(Dim::OfSymbol(id)), ValueOf(binary.rhs, slots));
      }
    }
    slots[i] = *value;
    known[i] = true;
  }
  return slots;
}

Dim SymbolTable::Combine(const Polynomial& polynomial, const std::function<Dim(SymbolId)>& atom) {
  Polynomial sum;
  sum.constant = polynomial.constant;
  for (const Monomial& term : polynomial.terms) {
    Polynomial product;
    product.constant = 1;
    for (SymbolId factor : term.factors) product = Times(product, ToPolynomial(atom(factor)));
    sum = Sum(sum, product, term.coefficient);
  }
  return FromPolynomial(sum);
}

Dim SymbolTable::Combine(const DimBinary& binary, const std::function<Dim(SymbolId)>& atom) {
  const Dim lhs = binary.lhs.is_static() ? binary.lhs : atom(binary.lhs.symbol());
  const Dim rhs = binary.rhs.is_static() ? binary.rhs : atom(binary.rhs.symbol());
  switch (binary.op) {
    case DimOp::kFloorDiv:
      return FloorDiv(lhs, rhs);
    case DimOp::kCeilDiv:
      return CeilDiv(lhs, rhs);
    case DimOp::kMod:
      return Mod(lhs, rhs);
    case DimOp::kMin:
      return Min(lhs, rhs);
    default:
      return Max(lhs, rhs);
  }
}

Dim SymbolTable::Import(const SymbolTable& from, Dim dim,
                        const std::map<SymbolId, Dim>& replacements) {
  if (dim.is_static()) return dim;
  // Operands have smaller ids: rewriting what is reachable in id order needs no recursion.
  std::set<SymbolId> reachable;
  std::vector<SymbolId> pending = {dim.symbol()};
  while (!pending.empty()) {
    const SymbolId id = pending.back();
    pending.pop_back();
    if (!reachable.insert(id).second || replacements.contains(id)) continue;
    from.ForEachOperand(id, [&](Dim operand) {
      if (!operand.is_static()) pending.push_back(operand.symbol());
    });
  }
  std::map<SymbolId, Dim> done;
  const auto atom = [&](SymbolId id) { return done.at(id); };
  for (SymbolId id : reachable) {
    if (const auto it = replacements.find(id); it != replacements.end()) {
      done[id] = it->second;
      continue;
    }
    // A copy: `from` may be this table.  NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
    const Symbol symbol = from.at(id);
    done[id] = std::visit(
        Overloaded{[&](const InputAxis& axis) {
                     return Dim::OfSymbol(
                         AddInput(symbol.name, axis, {symbol.min, symbol.max}, symbol.multiple_of));
                   },
                   [&](const RuntimeSize& runtime) {
                     std::optional<Dim> upper;
                     if (runtime.upper)
                       upper = runtime.upper->is_static() ? *runtime.upper
                                                          : atom(runtime.upper->symbol());
                     return Dim::OfSymbol(AddRuntime(symbol.name, runtime.node, upper));
                   },
                   [&](const Polynomial& polynomial) { return Combine(polynomial, atom); },
                   [&](const DimBinary& binary) { return Combine(binary, atom); }},
        symbol.definition);
  }
  return done.at(dim.symbol());
}

}  // namespace quench
