// From a placed program to the machine code and tables of common/runtime/abi.h. LLVM-free header.
#pragma once

#include <absl/status/status.h>

#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "services/codegen/emit/module.h"
#include "services/codegen/plan/program.h"

namespace quench::codegen {

// Adds plan and run functions and the hidden quench_variant `symbol`. weight_offsets[i] is where
// weight entry i begins in the weight section.
absl::Status EmitVariant(ModuleBuilder& module, const Program& program, const Target& target,
                         const std::vector<uint64_t>& weight_offsets, const std::string& symbol);

// Adds memcpy, memmove, memset and memcmp (and their names on Arm), hidden: LLVM may call them, so
// a library without dependencies must contain them.
absl::Status EmitMemoryFunctions(ModuleBuilder& module);

}  // namespace quench::codegen
