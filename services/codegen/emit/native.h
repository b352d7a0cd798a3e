// Operations that the target's instructions do directly: everything else is emitted by us, because
// an artifact has no C library to call.
#pragma once

#include <llvm/IR/Type.h>

#include "services/codegen/emit/module_state.h"

namespace quench::codegen {

enum class NativeOp {
  kFma,
  kRoundEven,
  kFloor,
  kCeil,
  kTrunc,
  kSqrt,
  kMaximum,
  kDivide32,
  kDivide64
};

// `type` is the scalar or vector type operated on (ignored by the integer divisions).
bool IsNative(ModuleState& state, NativeOp op, llvm::Type* type);

// Masked loads and stores of this vector type are instructions, not one branch per lane.
bool HasMaskedMemory(ModuleState& state, llvm::Type* type);

}  // namespace quench::codegen
