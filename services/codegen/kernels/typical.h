// Sizes at which symbolic dims are judged when costs and placements are compared. Everything that
// compares must use the same ones.
#pragma once

#include <cstdint>

#include "common/ir/symbols.h"

namespace quench::codegen {

// The value of a dim when every input's symbol has its usual size (4 for the outermost axis, 64 for
// others, within its range) and every runtime size its upper bound, else 64.
int64_t TypicalValue(const SymbolTable& symbols, Dim dim);

}  // namespace quench::codegen
