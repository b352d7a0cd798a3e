#include "common/ops/pool_shape.h"

namespace quench::ops {

absl::Status InferPool(InferContext& op, DataTypes allowed) {
  QUENCH_RETURN_IF_ERROR(RequireType(op, 0, allowed));
  QUENCH_RETURN_IF_ERROR(RequireRank(op, 0, 3));
  const std::vector<Dim>& in = op.input(0).dims;
  QUENCH_ASSIGN_OR_RETURN(const Windows windows, ReadWindows(op, op.input(0).rank() - 2));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Dim> spatial,
                          WindowOutputs(op, std::span(in).subspan(2), windows));
  std::vector<Dim> dims = {in[0], in[1]};
  dims.insert(dims.end(), spatial.begin(), spatial.end());
  op.SetOutput(0, op.input(0).dtype, std::move(dims));
  return absl::OkStatus();
}

void LowerPool(LowerContext& op,
               const std::function<void(LowerContext&, const PoolWindow&)>& element) {
  loops::Builder& b = op.b();
  const std::vector<Dim>& in = op.input(0).dims;
  const std::vector<Dim>& out = op.output(0).dims;
  const int rank = op.input(0).rank() - 2;
  const Windows windows = KnownWindows(op, rank);
  std::vector<WindowAxis> axes;
  for (int d = 0; d < rank; ++d) {
    const auto i = static_cast<size_t>(d + 2);
    axes.emplace_back(op, windows, d, in[i], out[i]);
  }
  b.ParallelForAll(op.Extents(out), [&](std::span<const E> index) {
    std::vector<E> first;
    std::vector<E> extents;
    for (size_t d = 0; d < axes.size(); ++d) {
      const auto [low, high] = axes[d].Range(index[d + 2]);
      first.push_back(low);
      extents.push_back(b.expr(low.id()).kind == loops::ExprKind::kInt ? high : high - low);
    }
    PoolWindow window;
    window.index = index;
    window.extents = extents;
    window.axes = axes;
    window.at = [&](std::span<const E> term) {
      std::vector<E> at = {index[0], index[1]};
      for (size_t d = 0; d < axes.size(); ++d) {
        const bool from_zero = b.expr(first[d].id()).kind == loops::ExprKind::kInt;
        at.push_back(axes[d].Input(index[d + 2], from_zero ? term[d] : first[d] + term[d]));
      }
      return at;
    };
    element(op, window);
  });
}

absl::Status InferGlobalPool(InferContext& op, DataTypes allowed) {
  QUENCH_RETURN_IF_ERROR(RequireType(op, 0, allowed));
  QUENCH_RETURN_IF_ERROR(RequireRank(op, 0, 2));
  std::vector<Dim> dims = op.input(0).dims;
  for (size_t i = 2; i < dims.size(); ++i) dims[i] = 1;
  op.SetOutput(0, op.input(0).dtype, std::move(dims));
  return absl::OkStatus();
}

absl::Status LowerGlobalPool(LowerContext& op, BinaryOp reduce, const std::function<E(E)>& value,
                             const std::function<E(E sum, E count)>& finish) {
  loops::Builder& b = op.b();
  const DataType type = loops::ComputeType(op.input(0).dtype);
  const std::vector<E> extents = op.Extents(std::span(op.input(0).dims).subspan(2));
  b.ParallelForAll(op.Extents(op.output(0).dims), [&](std::span<const E> index) {
    const E init = reduce == BinaryOp::kMax ? LowestOf(b, type) : b.F(0, type);
    const E sum = b.ReduceAll(reduce, init, extents, [&](std::span<const E> term) {
      std::vector<E> at = {index[0], index[1]};
      at.insert(at.end(), term.begin(), term.end());
      return value(op.in(0).At(at));
    });
    E count = b.I(1);
    for (const E extent : extents) count = count * extent;
    b.Store(op.out(0), index, finish(sum, Cast(count, type)));
  });
  return absl::OkStatus();
}

absl::StatusOr<int64_t> NormOrder(const OpContext& op) {
  const int64_t p = op.node().Int("p", 2);
  if (p < 1) return op.Error(fmt::format("p is {}, it must be at least 1", p));
  return p;
}

E PowerOfAbs(E x, int64_t p) {
  if (p == 2) return x * x;
  const E magnitude = Unary(UnaryOp::kAbs, x);
  return p == 1 ? magnitude : Pow(magnitude, ConstantLike(x, static_cast<double>(p)));
}

E RootOf(E sum, int64_t p) {
  if (p == 1) return sum;
  if (p == 2) return Unary(UnaryOp::kSqrt, sum);
  return Pow(sum, ConstantLike(sum, 1.0 / static_cast<double>(p)));
}

}  // namespace quench::ops
