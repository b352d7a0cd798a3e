#include "common/ops/matmul_shape.h"

namespace quench::ops {
namespace {

std::vector<Dim> BatchDims(const Type& type) {
  if (type.rank() <= 2) return {};
  return {type.dims.begin(), type.dims.end() - 2};
}

Dim Depth(const Type& a) { return a.dims.back(); }

}  // namespace

absl::StatusOr<std::vector<Dim>> MatMulDims(InferContext& op, int a, int b) {
  QUENCH_RETURN_IF_ERROR(RequireRank(op, a, 1));
  QUENCH_RETURN_IF_ERROR(RequireRank(op, b, 1));
  const Type& left = op.input(a);
  const Type& right = op.input(b);
  const Dim depth = right.rank() == 1 ? right.dims[0] : right.dims[right.dims.size() - 2];
  QUENCH_RETURN_IF_ERROR(RequireEqual(op, Depth(left), depth, "columns of a and rows of b"));
  const std::vector<Dim> batches[] = {BatchDims(left), BatchDims(right)};
  QUENCH_ASSIGN_OR_RETURN(std::vector<Dim> dims, op.Broadcast(batches));
  if (left.rank() > 1) dims.push_back(left.dims[left.dims.size() - 2]);
  if (right.rank() > 1) dims.push_back(right.dims.back());
  return dims;
}

Dim MatMulMacs(const OpContext& op, int a, int /*b*/) {
  SymbolTable& symbols = op.symbols();
  return symbols.Mul(symbols.Product(op.output(0).dims), Depth(op.input(a)));
}

void LowerMatMul(LowerContext& op, int a, int b,
                 const std::function<void(LowerContext&, const MatMulTerms&)>& element) {
  const Type& left = op.input(a);
  const Type& right = op.input(b);
  const std::vector<Dim>& out = op.output(0).dims;
  const bool rows = left.rank() > 1;
  const bool columns = right.rank() > 1;
  const size_t batch_rank = out.size() - (rows ? 1 : 0) - (columns ? 1 : 0);
  const std::span<const Dim> batch(out.data(), batch_rank);
  auto batch_axes = [&](const Type& type) {
    const int own = std::max(type.rank() - 2, 0);
    std::vector<int> axes;
    for (int i = 0; i < own; ++i) axes.push_back(static_cast<int>(batch_rank) - own + i);
    return axes;
  };
  const BroadcastLoad left_load(op, a, batch_axes(left), batch);
  const BroadcastLoad right_load(op, b, batch_axes(right), batch);
  loops::Builder& builder = op.b();
  builder.ParallelForAll(op.Extents(out), [&](std::span<const E> index) {
    MatMulTerms terms;
    terms.index = index;
    terms.depth = op.Extent(Depth(left));
    terms.row = rows ? index[batch_rank] : builder.I(0);
    terms.column = columns ? index[index.size() - 1] : builder.I(0);
    terms.a = [&](E k) {
      const std::vector<E> tail = rows ? std::vector<E>{terms.row, k} : std::vector<E>{k};
      return left_load.At(index, tail);
    };
    terms.b = [&](E k) {
      const std::vector<E> tail = columns ? std::vector<E>{k, terms.column} : std::vector<E>{k};
      return right_load.At(index, tail);
    };
    element(op, terms);
  });
}

}  // namespace quench::ops
