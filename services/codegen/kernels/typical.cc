#include "services/codegen/kernels/typical.h"

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

double Evaluate(const SymbolTable& symbols, const Polynomial& polynomial) {
  auto sum = static_cast<double>(polynomial.constant);
  for (const Monomial& term : polynomial.terms) {
    auto product = static_cast<double>(term.coefficient);
    for (const SymbolId factor : term.factors) {
      product *= static_cast<double>(TypicalValue(symbols, Dim::OfSymbol(factor)));
    }
    sum += product;
  }
  return sum;
}

int64_t FloorDiv(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

int64_t Evaluate(const SymbolTable& symbols, const DimBinary& binary) {
  const int64_t a = TypicalValue(symbols, binary.lhs);
  const int64_t b = TypicalValue(symbols, binary.rhs);
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

}  // namespace

int64_t TypicalValue(const SymbolTable& symbols, Dim dim) {
  if (dim.is_static()) return dim.value();
  const Symbol& symbol = symbols.at(dim.symbol());
  if (const auto* input = std::get_if<InputAxis>(&symbol.definition)) {
    return Within(symbol, input->axis == 0 ? kOuter : kInner);
  }
  if (const auto* size = std::get_if<RuntimeSize>(&symbol.definition)) {
    return size->upper ? TypicalValue(symbols, *size->upper) : kInner;
  }
  if (const auto* polynomial = std::get_if<Polynomial>(&symbol.definition)) {
    return Clamped(Evaluate(symbols, *polynomial));
  }
  return Evaluate(symbols, std::get<DimBinary>(symbol.definition));
}

}  // namespace quench::codegen
