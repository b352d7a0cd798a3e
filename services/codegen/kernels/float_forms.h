// The forms of products of floats.
#pragma once

#include <optional>

#include "services/codegen/forms/any_form.h"
#include "services/codegen/kernels/kernel.h"

namespace quench::codegen {

// Weights that are f32, or halves that are widened as they are read.
FloatForm FloatsOf(const KernelRequest& request, DataType w);

// Pairs of bf16 or f16 where both operands are of that type and the target multiplies them as they are,
// else floats.
AnyForm PairsOrFloats(const KernelRequest& request, DataType x, DataType w);

// Matrices of bf16 or f16 where both operands are of that type and the target multiplies them.
std::optional<MatrixForm> MatricesOf(const KernelRequest& request, DataType x, DataType w);

}  // namespace quench::codegen
