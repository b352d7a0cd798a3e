// Loops functions that compute slots: the values of expression symbols, sizes, offsets.
#pragma once

#include <map>
#include <set>
#include <string>

#include "common/loops/builder.h"
#include "services/codegen/plan/laid_out_sizes.h"

namespace quench::codegen {

// Builds one such function. Slots that it has set are read back as values, never from the slot.
class SlotFunction {
 public:
  SlotFunction(const std::string& name, const SymbolTable& symbols)
      : builder_(name), symbols_(symbols) {}

  loops::Builder& b() { return builder_; }
  // The value of a dim: a constant, a value set by this function, or a slot.
  loops::E Value(Dim dim);
  void Set(int32_t slot, loops::E value);
  // Sets an expression symbol from its definition.
  void SetExpression(SymbolId id);
  loops::E Bytes(const Shape& shape, const std::string& name);
  loops::Function Finish() { return builder_.Finish(); }

 private:
  loops::Builder builder_;
  const SymbolTable& symbols_;
  std::map<int32_t, loops::E> set_;
};

// Runtime symbols that a symbol depends on, directly or through expressions and itself.
class RuntimeDependence {
 public:
  explicit RuntimeDependence(const SymbolTable& symbols) : symbols_(symbols) {}
  const std::set<SymbolId>& Of(SymbolId id);
  // Expression symbols that depend on one of `changed`, operands before users.
  std::vector<SymbolId> Affected(const std::set<SymbolId>& changed);
  // Expression symbols that depend on no runtime symbol.
  std::vector<SymbolId> Planned();

 private:
  void AddOperand(Dim dim, std::set<SymbolId>& all);
  const SymbolTable& symbols_;
  std::map<SymbolId, std::set<SymbolId>> known_;
};

}  // namespace quench::codegen
