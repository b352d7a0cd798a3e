// Runs loops IR directly: the oracle for generated code, the constant folder and the debug
// evaluator. Compiles a function to a small program over concrete sizes first (compiler.h); no
// LLVM, no code generation. >= 50 M scalar operations a second, many more where loops are marked
// parallel or reduce.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <span>
#include <vector>

#include "common/base/context.h"
#include "common/loops/loops.h"

namespace quench::loops {

// Row-major dense memory of one parameter buffer, of any alignment. Inputs are not written, and
// overlap no output.
struct BufferView {
  std::byte* data = nullptr;  // may be null when a dim is 0
  std::vector<int64_t> dims;
};

struct InterpretOptions {
  // Runs many iterations of loops marked parallel or reduce at once. Reductions keep their order,
  // so results are bit-identical; false shows whether a parallel mark lies.
  bool lanes = true;
};

// Runs `function` (which passes Verify) with its parameter buffers (inputs, then outputs, in order)
// and slots (index = symbol id; kSetSlot writes them; sizes of buffers are taken before).
//
// Errors: every load and store is bounds-checked, a violation is INTERNAL with the buffer's name,
// as are buffers whose number or dims are not the declared ones; a failed kCheck is
// INVALID_ARGUMENT with its message; types narrower than 8 bits, f4 and f8e8m0 are UNIMPLEMENTED;
// scratch above 4 GiB in total, and expressions nested more than 1000 deep, are RESOURCE_EXHAUSTED;
// CANCELLED and DEADLINE_EXCEEDED come from the context, which is asked every few milliseconds.
// Scratch starts out zero; a negative extent means an empty loop or buffer.
absl::Status Interpret(const Function& function, std::span<const BufferView> parameters,
                       std::span<int64_t> slots, const StepContext& context = {},
                       const InterpretOptions& options = {});

// The value of a buffer's dim (or any i64 expression over constants and slots) for these slots.
absl::StatusOr<int64_t> EvaluateExtent(const Function& function, ExprId extent,
                                       std::span<const int64_t> slots);

}  // namespace quench::loops
