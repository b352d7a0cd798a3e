// Runs loops IR directly: the oracle for generated code, the constant folder and the debug
// evaluator. Compiles a function to closures over concrete sizes first; no LLVM, no code
// generation. >= 50 M scalar operations a second.
#pragma once

#include <absl/status/status.h>

#include <cstddef>
#include <span>
#include <vector>

#include "common/base/context.h"
#include "common/loops/loops.h"

namespace quench::loops {

// Row-major dense memory of one parameter buffer. Inputs are not written.
struct BufferView {
  std::byte* data = nullptr;
  std::vector<int64_t> dims;
};

// Runs `function` with its parameter buffers (inputs, then outputs, in order) and slots (index =
// symbol id; kSetSlot writes them). Every load and store is bounds-checked: a violation is INTERNAL
// with the buffer's name; a failed kCheck is INVALID_ARGUMENT with its message; cancellation is
// CANCELLED.
absl::Status Interpret(const Function& function, std::span<const BufferView> parameters,
                       std::span<int64_t> slots, const StepContext& context = {});

}  // namespace quench::loops
