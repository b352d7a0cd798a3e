#include "common/ops/integer_matmul.h"

namespace quench::ops {

absl::Status RequireMatrixParameter(const OpContext& op, int i, int matrix, bool rows) {
  if (!op.has_input(i)) return absl::OkStatus();
  const Type& type = op.input(i);
  const Type& whole = op.input(matrix);
  if (type.rank() <= 1) {
    const size_t axis = whole.dims.size() - (rows ? 2 : 1);
    const bool vector = whole.rank() == 1;
    return RequireParameter(op, i, vector ? Dim(1) : whole.dims[axis]);
  }
  QUENCH_RETURN_IF_ERROR(RequireRank(op, i, 0, whole.rank()));
  const size_t count = type.dims.size();
  const Dim own = type.dims[count - (rows ? 2 : 1)];
  const Dim other = type.dims[count - (rows ? 1 : 2)];
  QUENCH_RETURN_IF_ERROR(
      RequireEqual(op, other, 1, fmt::format("input {}: dim {} and 1", i, rows ? -1 : -2)));
  if (own.is(1)) return absl::OkStatus();
  return RequireEqual(op, own, whole.dims[whole.dims.size() - (rows ? 2 : 1)],
                      fmt::format("size of input {} and the matrix", i));
}

MatrixParameter::MatrixParameter(LowerContext& op, int i, bool rows) : rows_(rows) {
  if (!op.has_input(i)) return;
  valid_ = true;
  buffer_ = op.in(i);
  const Type& type = op.input(i);
  rank_ = type.rank();
  const Dim own = rank_ == 0 ? Dim(1) : type.dims[type.dims.size() - (rank_ > 1 && rows ? 2 : 1)];
  single_ = own.is(1);
  if (rank_ <= 2) return;
  // Batch dims are right-aligned in front of the output's rows and columns.
  const int batch = op.output(0).rank() - 2;
  std::vector<int> axes;
  for (int k = 0; k < rank_ - 2; ++k) axes.push_back(batch - (rank_ - 2) + k);
  batched_ = BroadcastLoad(op, i, std::move(axes));
}

E MatrixParameter::At(const MatMulTerms& terms) const {
  loops::Builder& b = *terms.row.builder();
  const E zero = b.I(0);
  const E own = single_ ? zero : rows_ ? terms.row : terms.column;
  const std::vector<E> pair = rows_ ? std::vector<E>{own, zero} : std::vector<E>{zero, own};
  if (rank_ > 2) return batched_.At(terms.index, pair);
  if (rank_ == 2) return buffer_.At(pair);
  return rank_ == 1 ? buffer_.At({own}) : buffer_.At({});
}

E MatMulAccumulator(LowerContext& op, const MatMulTerms& terms, const MatrixParameter& a_zero,
                    const MatrixParameter& b_zero) {
  loops::Builder& b = op.b();
  auto offset = [&](const MatrixParameter& zero) {
    return zero.valid() ? b.Let(Cast(zero.At(terms), DataType::kI32), "zero") : E();
  };
  const E a_offset = offset(a_zero);
  const E b_offset = offset(b_zero);
  return b.Reduce(BinaryOp::kAdd, b.Int(0, DataType::kI32), terms.depth, [&](E k) {
    E left = Cast(terms.a(k), DataType::kI32);
    E right = Cast(terms.b(k), DataType::kI32);
    if (a_offset.valid()) left = left - a_offset;
    if (b_offset.valid()) right = right - b_offset;
    return left * right;
  });
}

}  // namespace quench::ops
