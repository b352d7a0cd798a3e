// Scratch memory of scheduled nests.
#pragma once

#include <absl/status/statusor.h>

#include <set>

#include "common/ir/symbols.h"
#include "common/loops/loops.h"

namespace quench::codegen {

// The value of an i64 expression over constants and slots as a dim. UNIMPLEMENTED for other
// expressions.
absl::StatusOr<Dim> DimOf(const loops::Function& function, loops::ExprId expr,
                          SymbolTable& symbols);

// Bytes of scratch that a kernel compiled from `function` takes from its caller, per concurrent
// task, a multiple of 64; 0 when it fits on the stack. Buffers in `kept` take none.
absl::StatusOr<Dim> ScratchBytes(const loops::Function& function, SymbolTable& symbols,
                                 int64_t stack_bytes, const std::set<loops::BufferId>& kept = {});
// Static scratch up to this many bytes lies on the stack; of a GPU, which has memory for the stacks of all threads
// that it could run at once.
inline constexpr int64_t kStackScratchBytes = 16 << 10;
inline constexpr int64_t kDeviceStackBytes = 1 << 10;
inline constexpr int64_t kScratchAlignment = 64;

}  // namespace quench::codegen
