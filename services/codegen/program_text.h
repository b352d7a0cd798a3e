// Programs as text, and what is legal of them.
#pragma once

#include <absl/status/status.h>

#include <string>

#include "common/ir/symbols.h"
#include "services/codegen/program.h"

namespace quench::codegen {

// One line for each storage, buffer and step; a step's line has its position, for the lives of
// storages are counted in these. After AssignMemory storages have offsets.
std::string ProgramText(const Program& program, const SymbolTable& symbols);

// Every step names buffers, storages and weights there are; buffers lie in storages; storages of the
// arena are used within their lives; a call has a plan with as many tasks as it runs; two storages
// that are alive at once do not lie over each other at typical sizes, once they are placed. All
// defects at once, INTERNAL: a program is our own.
absl::Status VerifyProgram(const Program& program, size_t weight_entries);

}  // namespace quench::codegen
