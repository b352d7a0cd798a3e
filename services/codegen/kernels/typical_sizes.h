// Typical sizes of symbolic dims, used to compare costs and placements. All comparisons must use
// the same ones.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/ir/symbols.h"

namespace quench::codegen {

// The value of a dim when every input's symbol has its usual size (4 for the outermost axis, 64 for
// others, within its range) and every runtime size its upper bound, else 64. Each symbol is
// evaluated once, because definitions share their operands. The table may grow in between.
class TypicalSizes {
 public:
  explicit TypicalSizes(const SymbolTable& symbols) : symbols_(symbols) {}
  int64_t Of(Dim dim);
  std::vector<int64_t> Slots();  // of every symbol that there is now

 private:
  int64_t Evaluate(const Symbol& symbol);
  int64_t Evaluate(const Polynomial& polynomial);
  int64_t Evaluate(const DimBinary& binary);

  const SymbolTable& symbols_;
  std::vector<std::optional<int64_t>> known_;
};

inline int64_t TypicalValue(const SymbolTable& symbols, Dim dim) {
  return TypicalSizes(symbols).Of(dim);
}

}  // namespace quench::codegen
