// Loops IR to the interpreter's program, for concrete sizes.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "common/loops/lanes.h"
#include "common/loops/program.h"

namespace quench::loops {

struct CompileOptions {
  bool lanes = true;  // false: one iteration at a time, always
};

// `memory` and `shapes` by BufferId. The function has passed Verify(). RESOURCE_EXHAUSTED for
// expressions or statements nested too deep to walk.
absl::StatusOr<Program> CompileProgram(const Function& function, std::span<std::byte* const> memory,
                                       std::span<const Shape> shapes,
                                       std::span<const int64_t> slots,
                                       const CompileOptions& options);

}  // namespace quench::loops
