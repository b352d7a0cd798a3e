// Where a program's buffers lie, and the function that computes it for every size.
#pragma once

#include <absl/status/status.h>

#include "services/codegen/plan/program.h"

namespace quench::codegen {

// Reuses memory in place where calls allow it, frees heap memory after its last use, and places
// everything else in one arena: at fixed offsets when all sizes are fixed (or bounded by at most
// twice their typical arena), else by the placement at typical sizes, kept as an order that is
// valid at all sizes (StackingOf). Plans the plan function.
absl::Status AssignMemory(Program& program, SymbolTable& symbols, const Target& target);

}  // namespace quench::codegen
