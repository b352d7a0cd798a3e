// Results and progress of emission. LLVM-free header.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/ir/symbols.h"

namespace quench::codegen {

// (stage, functions done, functions in all); called on the thread that emits.
using EmissionProgress = std::function<void(const char* stage, int64_t done, int64_t total)>;

struct EmittedKernel {
  std::string symbol;  // hidden, unique in its module
  std::vector<std::string> messages;
  Dim tasks = 1, scratch_bytes = 0;  // the plan's
};

}  // namespace quench::codegen
