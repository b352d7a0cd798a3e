// Loops IR to LLVM: one kernel function from one scheduled nest.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "services/codegen/kernels/kernel.h"

namespace llvm {
class Function;
}

namespace quench::codegen {

struct ModuleState;

// Emits the nest of a plan into an empty kernel function; the texts of its checks.
absl::StatusOr<std::vector<std::string>> FillNestFunction(ModuleState& state,
                                                          llvm::Function& function,
                                                          const KernelPlan& plan);

}  // namespace quench::codegen
