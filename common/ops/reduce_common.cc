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

// The axes come from data. Where they stay as axes of size 1 the rank is known, else it follows from
// the number of axes; every size is then one of the input's.
absl::Status InferRuntimeAxes(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, TypeSet({DataType::kI64})));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 1, 1, 1));
  const std::vector<Dim>& from = ctx.input(0).dims;
  const int rank = ctx.input(0).rank();
  std::vector<Dim> dims;
  if (ctx.node().Int("keepdims", 1) != 0) {
    for (int axis = 0; axis < rank; ++axis) {
      const Dim dim = from[static_cast<size_t>(axis)];
      // An axis without elements gives one result where it is reduced.
      dims.push_back(dim.is(1) ? dim : ctx.RuntimeDim(axis, ctx.symbols().Max(dim, 1)));
    }
  } else {
    QUENCH_ASSIGN_OR_RETURN(const int count, AxesCount(ctx, 1, rank));
    Dim largest = 0;
    for (const Dim dim : from) largest = ctx.symbols().Max(largest, dim);
    for (int i = 0; i < rank - count; ++i) dims.push_back(ctx.RuntimeDim(i, largest));
  }
  ctx.SetOutput(0, ctx.input(0).dtype, std::move(dims));
  return absl::OkStatus();
}

// The axes that a run reduces, one by one.
class RuntimeReduction {
 public:
  explicit RuntimeReduction(LowerContext& ctx)
      : keep_(ctx.node().Int("keepdims", 1) != 0),
        x_(ctx.in(0)),
        b_(ctx.b()),
        axes_(ctx, 1, ctx.input(0).rank()) {
    const bool noop = ctx.node().Int("noop_with_empty_axes", 0) != 0;
    for (int axis = 0; axis < x_.rank(); ++axis) {
      const E has = axes_.Has(axis);
      const E all = axes_.count() == b_.I(0);
      reduced_.push_back(noop ? has : b_.Let(has || all, "reduced"));
      place_.push_back(keep_ ? b_.I(axis) : b_.Let(axes_.KeptBefore(axis), "place"));
    }
  }
  // How many elements along this axis go into one result.
  E Extent(int axis) const {
    return b_.Let(Select(Reduced(axis), x_.dim(axis), b_.I(1)), "extent");
  }
  // Size of dim i of the result.
  E Size(int i) const {
    if (keep_) return Select(Reduced(i), b_.I(1), x_.dim(i));
    E size = b_.I(0);
    for (int axis = 0; axis < x_.rank(); ++axis) size = Select(IsAt(axis, i), x_.dim(axis), size);
    return size;
  }
  // Indices of the element at `inner` of the reduced axes (0 on the others) for a result.
  std::vector<E> Source(std::span<const E> result, std::span<const E> inner) const {
    std::vector<E> source;
    for (int axis = 0; axis < x_.rank(); ++axis) {
      E outer = keep_ ? result[static_cast<size_t>(axis)] : b_.I(0);
      for (size_t i = 0; i < result.size() && !keep_; ++i)
        outer = Select(IsAt(axis, static_cast<int>(i)), result[i], outer);
      source.push_back(outer + inner[static_cast<size_t>(axis)]);
    }
    return source;
  }

 private:
  E Reduced(int axis) const { return reduced_[static_cast<size_t>(axis)]; }
  // The axis is dim i of a result without the reduced ones.
  E IsAt(int axis, int i) const {
    return !Reduced(axis) && place_[static_cast<size_t>(axis)] == b_.I(i);
  }

  bool keep_;
  B x_;
  Builder& b_;
  RuntimeAxes axes_;
  std::vector<E> reduced_, place_;
};

absl::Status LowerSizesOfReduce(LowerContext& ctx) {
  const RuntimeReduction reduction(ctx);
  for (int i = 0; i < ctx.output(0).rank(); ++i)
    SetRuntimeDim(ctx, ctx.output(0).dims[static_cast<size_t>(i)], reduction.Size(i));
  return absl::OkStatus();
}

absl::Status LowerRuntimeAxes(LowerContext& ctx,
                              const std::function<E(const ReducedElement&)>& value) {
  const RuntimeReduction reduction(ctx);
  const B x = ctx.in(0);
  std::vector<E> extents;
  for (int axis = 0; axis < x.rank(); ++axis) extents.push_back(reduction.Extent(axis));
  ctx.b().ParallelForAll(DimsOf(ctx.out(0)), [&](std::span<const E> i) {
    const std::vector<E> result(i.begin(), i.end());
    const auto at = [&, result](std::span<const E> k) { return x.At(reduction.Source(result, k)); };
    const ReducedElement element{ctx.b(), extents, at, loops::ComputeType(x.dtype())};
    ctx.b().Store(ctx.out(0), result, value(element));
  });
  return absl::OkStatus();
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
  if (!AxesAreKnown(ctx, 1)) return InferRuntimeAxes(ctx);
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
  if (!AxesAreKnown(ctx, 1)) return LowerRuntimeAxes(ctx, value);
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
          .axes = AxisRole::kReduced,
          .work = WorkKind::kReduction,
          .infer = infer,
          .lower = lower,
          .lower_sizes = LowerSizesOfReduce};
}

OpDef ArgDef(const std::string& name, const std::string& summary,
             absl::Status (*lower)(LowerContext&)) {
  return {.name = name,
          .summary = summary,
          .attributes = {{"axis", AttributeSpec::kInt},
                         {"keepdims", AttributeSpec::kInt},
                         {"select_last_index", AttributeSpec::kInt}},
          .work = WorkKind::kReduction,
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
