// Loops IR to LLVM: one kernel function from one loop nest.
#pragma once

#include <absl/status/statusor.h>

#include <span>
#include <string>

#include "services/codegen/kernels/kernel.h"

namespace quench::codegen {

struct ModuleState;

// Emits and optimises `function` as kernel `symbol`. See KernelEmitter::EmitLoops.
absl::StatusOr<EmittedKernel> EmitNest(ModuleState& state, const std::string& symbol,
                                       const loops::Function& function,
                                       std::span<const Layout> layouts, SymbolTable& symbols,
                                       bool vectorise);

// Equal iff the nests compute the same thing over the same layouts: everything but the names.
std::string NestIdentity(const loops::Function& function, std::span<const Layout> layouts,
                         bool vectorise);

}  // namespace quench::codegen
