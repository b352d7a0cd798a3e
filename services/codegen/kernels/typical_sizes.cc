#include "services/codegen/kernels/typical_sizes.h"

#include <algorithm>

namespace quench::codegen {
namespace {

constexpr int64_t kOuter = 4, kInner = 64;
constexpr double kMost = 1e15;  // far from overflow

int64_t Clamped(double value) { return static_cast<int64_t>(std::clamp(value, -kMost, kMost)); }

// `wanted` within the symbol's range, at a multiple it must be.
int64_t Within(const Symbol& symbol, int64_t wanted) {
  const int64_t value = std::clamp(wanted, symbol.min, std::max(symbol.min, symbol.max));
  const int64_t step = std::max<int64_t>(symbol.multiple_of, 1);
  const int64_t down = value / step * step;
  return down >= symbol.min ? down : down + step;
}

int64_t FloorDiv(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

}  // namespace

int64_t TypicalSizes::Of(Dim dim) {
  if (dim.is_static()) return dim.value();
  const auto id = static_cast<size_t>(dim.symbol());
  if (id >= known_.size()) known_.resize(id + 1);
  if (!known_[id]) {
    const int64_t value = Evaluate(symbols_.at(dim.symbol()));
    known_[id] = value;
  }
  return *known_[id];
}

std::vector<int64_t> TypicalSizes::Slots() {
  std::vector<int64_t> slots;
  for (SymbolId id = 0; id < symbols_.size(); ++id) slots.push_back(Of(Dim::OfSymbol(id)));
  return slots;
}

int64_t TypicalSizes::Evaluate(const Symbol& symbol) {
  if (const auto* input = std::get_if<InputAxis>(&symbol.definition)) {
    return Within(symbol, input->axis == 0 ? kOuter : kInner);
  }
  if (const auto* size = std::get_if<RuntimeSize>(&symbol.definition)) {
    return size->upper ? Of(*size->upper) : kInner;
  }
  if (const auto* polynomial = std::get_if<Polynomial>(&symbol.definition))
    return Evaluate(*polynomial);
  return Evaluate(std::get<DimBinary>(symbol.definition));
}

int64_t TypicalSizes::Evaluate(const Polynomial& polynomial) {
  auto sum = static_cast<double>(polynomial.constant);
  for (const Monomial& term : polynomial.terms) {
    auto product = static_cast<double>(term.coefficient);
    for (const SymbolId factor : term.factors) {
      product *= static_cast<double>(Of(Dim::OfSymbol(factor)));
    }
    sum += product;
  }
  return Clamped(sum);
}

int64_t TypicalSizes::Evaluate(const DimBinary& binary) {
  const int64_t a = Of(binary.lhs);
  const int64_t b = Of(binary.rhs);
  switch (binary.op) {
    case DimOp::kFloorDiv:
      return b == 0 ? 0 : FloorDiv(a, b);
    case DimOp::kCeilDiv:
      return b == 0 ? 0 : -FloorDiv(-a, b);
    case DimOp::kMod:
      return b == 0 ? 0 : a - FloorDiv(a, b) * b;
    case DimOp::kMin:
      return std::min(a, b);
    case DimOp::kMax:
      return std::max(a, b);
  }
  return 0;
}

}  // namespace quench::codegen
