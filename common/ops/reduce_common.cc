#include "common/ops/reduce_common.h"

#include <algorithm>
#include <numeric>

namespace quench::ops {
namespace {

// Reduced axes. Axes that are omitted or empty mean all, or none with `noop_with_empty_axes`.
absl::StatusOr<std::vector<int>> ReducedAxes(const OpContext& ctx) {
  const int rank = ctx.input(0).rank();
  QUENCH_ASSIGN_OR_RETURN(const std::optional<std::vector<int>> axes, AxesInput(ctx, 1, rank));
  if (axes && !axes->empty()) return *axes;
  std::vector<int> all;
  if (ctx.node().Int("noop_with_empty_axes", 0) != 0) return all;
  all.resize(static_cast<size_t>(rank));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

bool Has(const std::vector<int>& axes, int axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

std::vector<Dim> ReducedDims(const OpContext& ctx, const std::vector<int>& axes) {
  const bool keep = ctx.node().Int("keepdims", 1) != 0;
  std::vector<Dim> dims;
  for (int axis = 0; axis < ctx.input(0).rank(); ++axis) {
    if (!Has(axes, axis)) {
      dims.push_back(ctx.input(0).dims[static_cast<size_t>(axis)]);
    } else if (keep) {
      dims.push_back(1);
    }
  }
  return dims;
}

absl::Status InferArg(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kNumericTypes));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 1));
  QUENCH_ASSIGN_OR_RETURN(const int axis, ctx.Axis(ctx.node().Int("axis", 0), ctx.input(0).rank()));
  if (ctx.input(0).dims[static_cast<size_t>(axis)].is(0))
    return ctx.Error(fmt::format("axis {} is empty", axis));
  ctx.SetOutput(0, DataType::kI64, ReducedDims(ctx, {axis}));
  return absl::OkStatus();
}

}  // namespace

absl::Status InferReduce(InferContext& ctx, DataTypes allowed,
                         Dim (*fold)(SymbolTable&, Dim, Dim)) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, allowed));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int> axes, ReducedAxes(ctx));
  ctx.SetOutput(0, ctx.input(0).dtype, ReducedDims(ctx, axes));
  const auto elements = ctx.elements(0);
  if (fold == nullptr || !elements || elements->empty() || axes.empty()) return absl::OkStatus();
  Dim total = elements->front();
  for (size_t i = 1; i < elements->size(); ++i) total = fold(ctx.symbols(), total, (*elements)[i]);
  ctx.SetElements(0, {total});
  return absl::OkStatus();
}

E ReducedElement::Combine(BinaryOp op, E init, const std::function<E(E)>& element) const {
  return b.ReduceAll(op, init, extents,
                     [&](std::span<const E> k) { return element ? element(at(k)) : at(k); });
}

E ReducedElement::Sum(const std::function<E(E)>& element) const {
  return Combine(BinaryOp::kAdd, b.F(0, type), element);
}

E ReducedElement::Count() const { return Cast(ProductOf(b, extents), type); }

absl::Status LowerReduce(LowerContext& ctx, const std::function<E(const ReducedElement&)>& value) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int> axes, ReducedAxes(ctx));
  const bool keep = ctx.node().Int("keepdims", 1) != 0;
  const B x = ctx.in(0);
  std::vector<E> extents;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (Has(axes, axis)) extents.push_back(x.dim(axis));
  }
  ctx.b().ParallelForAll(DimsOf(ctx.out(0)), [&](std::span<const E> i) {
    const std::vector<E> outer(i.begin(), i.end());
    const auto at = [&, outer](std::span<const E> k) {
      std::vector<E> source;
      size_t kept = 0;
      size_t reduced = 0;
      for (int axis = 0; axis < x.rank(); ++axis) {
        const bool gone = Has(axes, axis);
        source.push_back(gone ? k[reduced++] : outer[kept]);
        if (!gone || keep) ++kept;
      }
      return x.At(source);
    };
    const ReducedElement element{ctx.b(), extents, at, loops::ComputeType(x.dtype())};
    ctx.b().Store(ctx.out(0), outer, value(element));
  });
  return absl::OkStatus();
}

OpDef ReduceDef(const std::string& name, const std::string& summary,
                absl::Status (*infer)(InferContext&), absl::Status (*lower)(LowerContext&)) {
  return {.name = name,
          .summary = summary,
          .min_inputs = 1,
          .max_inputs = 2,
          .attributes = {{"keepdims", AttributeSpec::kInt},
                         {"noop_with_empty_axes", AttributeSpec::kInt}},
          .infer = infer,
          .lower = lower};
}

OpDef ArgDef(const std::string& name, const std::string& summary,
             absl::Status (*lower)(LowerContext&)) {
  return {.name = name,
          .summary = summary,
          .attributes = {{"axis", AttributeSpec::kInt},
                         {"keepdims", AttributeSpec::kInt},
                         {"select_last_index", AttributeSpec::kInt}},
          .infer = InferArg,
          .lower = lower};
}

// Two reductions without branches: the extreme value, then the first place that holds it (a NaN
// counts as such).
absl::Status LowerArg(LowerContext& ctx, BinaryOp op) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const int axis = NormalAxis(ctx.node().Int("axis", 0), x.rank());
  const bool keep = ctx.node().Int("keepdims", 1) != 0;
  const bool last = ctx.node().Int("select_last_index", 0) != 0;
  const DataType type = loops::ComputeType(x.dtype());
  const E size = x.dim(axis);
  b.Check(size > b.I(0),
          fmt::format("node `{}`: the axis of {} is empty", ctx.node().name, ctx.node().op));
  b.ParallelForAll(DimsOf(ctx.out(0)), [&](std::span<const E> i) {
    const std::vector<E> at = keep ? std::vector<E>(i.begin(), i.end()) : Inserted(i, axis, b.I(0));
    const auto load = [&](E k) { return x.At(Replaced(at, axis, k)); };
    const E init = op == BinaryOp::kMax ? LowestOf(b, type) : HighestOf(b, type);
    const E best = b.Let(b.Reduce(op, init, size, load), "best");
    const E none = last ? b.I(-1) : size;
    const E place = b.Reduce(last ? BinaryOp::kMax : BinaryOp::kMin, none, size, [&](E k) {
      const E value = load(k);
      const E hit = IsFloat(type) ? (value == best || value != value) : value == best;
      return Select(hit, k, none);
    });
    b.Store(ctx.out(0), i, place);
  });
  return absl::OkStatus();
}

}  // namespace quench::ops
