#include "common/ops/helpers.h"
#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::Status InferDet(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireType(c, 0, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireRank(c, 0, 2));
  const std::vector<Dim>& dims = c.input(0).dims;
  QUENCH_RETURN_IF_ERROR(RequireEqual(c, dims[dims.size() - 2], dims.back(), "rows and columns"));
  c.SetOutput(0, c.input(0).dtype, {dims.begin(), dims.end() - 2});
  return absl::OkStatus();
}

// Swaps rows a and b of the n columns of m, from column `first` on.
void SwapRows(Builder& b, B m, E row_a, E row_b, E first, E n) {
  b.For(first, n, [&](E column) {
    const E kept = b.Let(m.At({row_a, column}), "kept");
    const E moved = b.Let(m.At({row_b, column}), "moved");
    b.Store(m, {row_a, column}, moved);
    b.Store(m, {row_b, column}, kept);
  });
}

// Gaussian elimination with partial pivoting; the determinant is the signed product of the pivots.
void Eliminate(Builder& b, B m, E n, E k, Builder::LocalRef determinant) {
  const auto best = b.Local(Unary(UnaryOp::kAbs, m.At({k, k})), "best");
  const auto pivot_row = b.Local(k, "pivot_row");
  b.For(k + 1, n, [&](E row) {
    const E size = b.Let(Unary(UnaryOp::kAbs, m.At({row, k})), "size");
    b.If(size > best.Get(), [&] {
      best.Set(size);
      pivot_row.Set(row);
    });
  });
  const E other = b.Let(pivot_row.Get(), "other");
  b.If(other != k, [&] {
    SwapRows(b, m, k, other, k, n);
    determinant.Set(-determinant.Get());
  });
  const E pivot = b.Let(m.At({k, k}), "pivot");
  determinant.Set(determinant.Get() * pivot);
  // A column without a pivot has determinant 0 already; its rows stay as they are.
  b.If(pivot != ConstantLike(pivot, 0), [&] {
    b.For(k + 1, n, [&](E row) {
      const E factor = b.Let(m.At({row, k}) / pivot, "factor");
      b.For(k + 1, n, [&](E column) {
        b.Store(m, {row, column}, m.At({row, column}) - factor * m.At({k, column}));
      });
    });
  });
}

absl::Status LowerDet(LowerContext& c) {
  Builder& b = c.b();
  const DataType type = loops::ComputeType(c.input(0).dtype);
  const E n = c.Extent(c.input(0).dims.back());
  const B m = b.Scratch("m", type, {n, n}, loops::ScratchScope::kIteration);
  ParallelRows(b, c.Extents(c.output(0).dims), [&](std::span<const E> batch) {
    b.For(n, [&](E row) {
      b.For(n, [&](E column) {
        std::vector<E> at(batch.begin(), batch.end());
        at.insert(at.end(), {row, column});
        b.Store(m, {row, column}, c.in(0).At(at));
      });
    });
    const auto determinant = b.Local(b.F(1, type), "determinant");
    b.For(n, [&](E k) { Eliminate(b, m, n, k, determinant); });
    b.Store(c.out(0), batch, determinant.Get());
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& DetOp() {
  static const OpDef op = {
      .name = "Det",
      .summary = "determinants of square matrices, batch dims kept",
      .infer = InferDet,
      .lower = LowerDet,
  };
  return op;
}

}  // namespace quench::ops
