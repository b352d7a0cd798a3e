#include "common/ops/cumulative.h"

namespace quench::ops {
namespace {

absl::StatusOr<int64_t> WantedAxis(const OpContext& op) {
  const std::optional<std::vector<int64_t>> axis = op.ints(1);
  if (!axis) return op.UnsupportedError("the axis is known only at run time");
  if (axis->size() != 1) {
    return op.Error(fmt::format("the axis has {} elements, it must be one", axis->size()));
  }
  return axis->front();
}

}  // namespace

absl::Status InferCumulative(InferContext& op) {
  QUENCH_RETURN_IF_ERROR(RequireType(op, 0, kNumericTypes));
  QUENCH_RETURN_IF_ERROR(RequireType(op, 1, kIndexTypes));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, WantedAxis(op));
  QUENCH_RETURN_IF_ERROR(op.Axis(axis, op.input(0).rank()).status());
  op.SetOutput(0, op.input(0));
  return absl::OkStatus();
}

absl::Status LowerCumulative(LowerContext& op, BinaryOp step, double start) {
  loops::Builder& b = op.b();
  QUENCH_ASSIGN_OR_RETURN(const int64_t wanted, WantedAxis(op));
  const int axis = NormalAxis(wanted, op.input(0).rank());
  const bool exclusive = op.node().Int("exclusive", 0) != 0;
  const bool reverse = op.node().Int("reverse", 0) != 0;
  std::vector<E> others = op.Extents(op.input(0).dims);
  const E length = others[static_cast<size_t>(axis)];
  others.erase(others.begin() + axis);
  b.ParallelForAll(others, [&](std::span<const E> outer) {
    const auto total = b.Local(b.F(start, loops::ComputeType(op.input(0).dtype)), "total");
    b.For(length, [&](E i) {
      std::vector<E> index(outer.begin(), outer.end());
      index.insert(index.begin() + axis, reverse ? length - 1 - i : i);
      const E x = op.in(0).At(index);
      if (exclusive) b.Store(op.out(0), index, total.Get());
      total.Set(Binary(step, total.Get(), x));
      if (!exclusive) b.Store(op.out(0), index, total.Get());
    });
  });
  return absl::OkStatus();
}

}  // namespace quench::ops
