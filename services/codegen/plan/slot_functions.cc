#include "services/codegen/plan/slot_functions.h"

namespace quench::codegen {
namespace {

// Symbols an expression symbol is made of.
std::vector<Dim> OperandsOf(const Symbol& symbol) {
  std::vector<Dim> operands;
  if (const auto* polynomial = std::get_if<Polynomial>(&symbol.definition)) {
    for (const Monomial& term : polynomial->terms) {
      for (const SymbolId factor : term.factors) operands.push_back(Dim::OfSymbol(factor));
    }
  } else if (const auto* binary = std::get_if<DimBinary>(&symbol.definition)) {
    operands = {binary->lhs, binary->rhs};
  }
  return operands;
}

}  // namespace

loops::E SlotFunction::Value(Dim dim) {
  if (dim.is_static()) return builder_.I(dim.value());
  const auto found = set_.find(dim.symbol());
  return found != set_.end() ? found->second : builder_.Slot(dim.symbol());
}

void SlotFunction::Set(int32_t slot, loops::E value) {
  const loops::E bound = builder_.Let(value, "slot");
  builder_.SetSlot(slot, bound);
  set_[slot] = bound;
}

void SlotFunction::SetExpression(SymbolId id) {
  const Symbol& symbol = symbols_.at(id);
  loops::E value;
  if (const auto* polynomial = std::get_if<Polynomial>(&symbol.definition)) {
    value = builder_.I(polynomial->constant);
    for (const Monomial& term : polynomial->terms) {
      loops::E product = builder_.I(term.coefficient);
      for (const SymbolId factor : term.factors) product = product * Value(Dim::OfSymbol(factor));
      value = value + product;
    }
  } else {
    const auto& binary = std::get<DimBinary>(symbol.definition);
    const loops::E a = Value(binary.lhs), b = Value(binary.rhs);
    switch (binary.op) {
      case DimOp::kFloorDiv:
        value = FloorDiv(a, b);
        break;
      case DimOp::kCeilDiv:
        value = CeilDiv(a, b);
        break;
      case DimOp::kMod:
        value = FloorMod(a, b);
        break;
      case DimOp::kMin:
        value = Min(a, b);
        break;
      case DimOp::kMax:
        value = Max(a, b);
        break;
    }
  }
  Set(id, value);
}

loops::E SlotFunction::Bytes(const Shape& shape, const std::string& name) {
  return BytesOf(builder_, shape, symbols_, [this](Dim dim) { return Value(dim); }, name);
}

void RuntimeDependence::AddOperand(Dim dim, std::set<SymbolId>& all) {
  if (dim.is_static()) return;
  const std::set<SymbolId>& more = Of(dim.symbol());
  all.insert(more.begin(), more.end());
}

const std::set<SymbolId>& RuntimeDependence::Of(SymbolId id) {
  if (const auto found = known_.find(id); found != known_.end()) return found->second;
  std::set<SymbolId> all;
  const Symbol& symbol = symbols_.at(id);
  if (symbol.is_runtime()) all.insert(id);
  for (const Dim operand : OperandsOf(symbol)) AddOperand(operand, all);
  return known_[id] = std::move(all);
}

std::vector<SymbolId> RuntimeDependence::Affected(const std::set<SymbolId>& changed) {
  std::vector<SymbolId> affected;
  for (SymbolId id = 0; id < symbols_.size(); ++id) {  // symbols are interned after their operands
    if (!symbols_.at(id).is_expression()) continue;
    for (const SymbolId runtime : Of(id)) {
      if (!changed.contains(runtime)) continue;
      affected.push_back(id);
      break;
    }
  }
  return affected;
}

std::vector<SymbolId> RuntimeDependence::Planned() {
  std::vector<SymbolId> planned;
  for (SymbolId id = 0; id < symbols_.size(); ++id) {
    if (symbols_.at(id).is_expression() && Of(id).empty()) planned.push_back(id);
  }
  return planned;
}

}  // namespace quench::codegen
