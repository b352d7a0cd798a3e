// Programs as text, which program_parse.h reads.
#pragma once

#include <string>

#include "common/ir/symbols.h"
#include "services/codegen/plan/program.h"

namespace quench::codegen {

// First the symbols, whose ids are slots; then one line for each storage, buffer, value and step. A step's
// line has its position, in which the lives of storages are counted; the steps of a branch or body are
// indented. After AssignMemory storages have offsets. Nothing is said of the loops of kernels, of what weights
// are, and of what only BuildProgram reads.
std::string ProgramText(const Program& program, const SymbolTable& symbols);

}  // namespace quench::codegen
