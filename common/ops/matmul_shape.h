// numpy.matmul's shape rules and its loops, shared by MatMul, MatMulInteger and QLinearMatMul.
#pragma once

#include <functional>
#include <vector>

#include "common/ops/helpers.h"

namespace quench::ops {

// Dims of the product of inputs a and b: a vector on the left is a row, on the right a column, and
// the dim added for it is dropped; batch dims broadcast.
absl::StatusOr<std::vector<Dim>> MatMulDims(InferContext& op, int a, int b);

// Rows x columns x depth, batch included.
Dim MatMulMacs(const OpContext& op, int a, int b);

// The terms of one output element.
struct MatMulTerms {
  std::span<const E> index;  // of output 0
  E depth;                   // number of terms
  E row;                     // index of the row; 0 for a vector on the left
  E column;                  // index of the column; 0 for a vector on the right
  std::function<E(E)> a;     // term k of each side, in its compute type
  std::function<E(E)> b;
};
// Parallel loops over output 0; `element` stores one element.
void LowerMatMul(LowerContext& op, int a, int b,
                 const std::function<void(LowerContext&, const MatMulTerms&)>& element);
// The product of inputs 0 and 1, of one type.
absl::Status LowerPlainMatMul(LowerContext& op);

}  // namespace quench::ops
