// Sizes as their readers know them: over dims of inputs.
#pragma once

#include <string>

#include "common/ir/symbols.h"

namespace quench {

// As SymbolTable::ToString, with every `$id` replaced by what it stands for. Definitions share their operands, so that
// the text may be long beyond measure: one above 4096 characters is cut, and ends in `...`.
std::string SpelledOut(const SymbolTable& symbols, Dim dim);

}  // namespace quench
