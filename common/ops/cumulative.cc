#include "common/ops/cumulative.h"

namespace quench::ops {
namespace {

// The axis when it is known before a run.
std::optional<int64_t> KnownAxis(const OpContext& op) {
  const std::optional<std::vector<int64_t>> axis = op.ints(1);
  if (!axis || axis->size() != 1) return std::nullopt;
  return axis->front();
}

// Any axis, known only at run time: every element folds its own terms, because no loop can be the
// serial one.
void LowerAnyAxis(LowerContext& op, BinaryOp step, E start) {
  loops::Builder& b = op.b();
  const std::vector<E> dims = op.Extents(op.input(0).dims);
  const auto rank = static_cast<int64_t>(dims.size());
  const E raw =
      Cast(op.input(1).rank() == 0 ? op.in(1).At({}) : op.in(1).At({b.I(0)}), DataType::kI64);
  b.Check(raw >= b.I(-rank) && raw < b.I(rank),
          fmt::format("{}: the axis is out of range", op.node().name));
  const E axis = b.Let(Select(raw < b.I(0), raw + rank, raw), "axis");
  auto along = [&](std::span<const E> values) {
    E result = values[0];
    for (size_t d = 1; d < values.size(); ++d) {
      result = Select(axis == b.I(static_cast<int64_t>(d)), values[d], result);
    }
    return result;
  };
  const E length = b.Let(along(dims), "length");
  const int64_t exclusive = op.node().Int("exclusive", 0) != 0 ? 1 : 0;
  const bool reverse = op.node().Int("reverse", 0) != 0;
  b.ParallelForAll(dims, [&](std::span<const E> index) {
    const E own = b.Let(along(index), "own");
    const E begin = reverse ? own + exclusive : b.I(0);
    const E end = reverse ? length : own + (1 - exclusive);
    const E total = b.Reduce(step, start, begin, end, [&](E k) {
      std::vector<E> at;
      for (size_t d = 0; d < index.size(); ++d) {
        at.push_back(Select(axis == b.I(static_cast<int64_t>(d)), k, index[d]));
      }
      return op.in(0).At(at);
    });
    b.Store(op.out(0), index, total);
  });
}

}  // namespace

absl::Status InferCumulative(InferContext& op) {
  QUENCH_RETURN_IF_ERROR(RequireType(op, 0, kNumericTypes));
  QUENCH_RETURN_IF_ERROR(RequireType(op, 1, kIndexTypes));
  QUENCH_RETURN_IF_ERROR(RequireRank(op, 0, 1));
  QUENCH_RETURN_IF_ERROR(RequireRank(op, 1, 0, 1));
  if (op.input(1).rank() == 1) {
    QUENCH_RETURN_IF_ERROR(RequireEqual(op, op.input(1).dims[0], 1, "number of axes and 1"));
  }
  if (const std::optional<int64_t> axis = KnownAxis(op)) {
    QUENCH_RETURN_IF_ERROR(op.Axis(*axis, op.input(0).rank()).status());
  }
  op.SetOutput(0, op.input(0));
  return absl::OkStatus();
}

absl::Status LowerCumulative(LowerContext& op, BinaryOp step, double start) {
  loops::Builder& b = op.b();
  const DataType type = loops::ComputeType(op.input(0).dtype);
  const std::optional<int64_t> known = KnownAxis(op);
  if (!known) {
    LowerAnyAxis(op, step, b.F(start, type));
    return absl::OkStatus();
  }
  const int axis = NormalAxis(*known, op.input(0).rank());
  const bool exclusive = op.node().Int("exclusive", 0) != 0;
  const bool reverse = op.node().Int("reverse", 0) != 0;
  std::vector<E> others = op.Extents(op.input(0).dims);
  const E length = others[static_cast<size_t>(axis)];
  others.erase(others.begin() + axis);
  b.ParallelForAll(others, [&](std::span<const E> outer) {
    const auto total = b.Local(b.F(start, type), "total");
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
