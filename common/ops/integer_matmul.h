// Scales and zero points of integer matrix products: one for all, per row of a, or per column of b.
#pragma once

#include "common/ops/integer.h"
#include "common/ops/matmul_shape.h"

namespace quench::ops {

// Input i, if present, is a scalar, a vector of 1 or one element per row (column) of `matrix`, or
// has the matrix's rank with 1 in place of the columns (rows).
absl::Status RequireMatrixParameter(const OpContext& op, int i, int matrix, bool rows);

// Made before the loops.
class MatrixParameter {
 public:
  MatrixParameter(LowerContext& op, int i, bool rows);
  bool valid() const { return valid_; }
  E At(const MatMulTerms& terms) const;  // in its compute type

 private:
  bool valid_ = false;
  bool rows_ = false;
  bool single_ = false;
  int rank_ = 0;
  B buffer_;
  BroadcastLoad batched_;
};

// Sum over the terms of (a - a_zero) * (b - b_zero) in i32.
E MatMulAccumulator(LowerContext& op, const MatMulTerms& terms, const MatrixParameter& a_zero,
                    const MatrixParameter& b_zero);

}  // namespace quench::ops
