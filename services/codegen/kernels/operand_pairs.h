// Pairs of 16-bit floats that a target multiplies as they are.
#pragma once

#include <optional>

#include "services/codegen/kernels/kernel.h"

namespace quench::codegen {

// The type of both operands if the target multiplies pairs of them, a lane of 32 bits each.
std::optional<DataType> PairsOf(const KernelRequest& request, DataType x, DataType w);

}  // namespace quench::codegen
