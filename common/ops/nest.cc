#include "common/ops/nest.h"

#include <algorithm>
#include <limits>

#include "common/base/status.h"

namespace quench::ops {

absl::StatusOr<std::vector<int>> NormalAxes(const OpContext& ctx, std::span<const int64_t> axes,
                                            int rank) {
  std::vector<int> result;
  for (int64_t raw : axes) {
    if (raw < -rank || raw >= rank) {
      return ctx.Error(fmt::format("axis {} is out of range, the rank is {}", raw, rank));
    }
    const int axis = NormalAxis(raw, rank);
    if (std::find(result.begin(), result.end(), axis) != result.end()) {
      return ctx.Error(fmt::format("axis {} is given twice", axis));
    }
    result.push_back(axis);
  }
  return result;
}

absl::StatusOr<std::optional<std::vector<int>>> AxesInput(const OpContext& ctx, int i, int rank) {
  if (!ctx.has_input(i)) return std::optional<std::vector<int>>();
  if (ctx.input(i).rank() == 1 && ctx.input(i).dims[0].is(0))
    return std::optional(std::vector<int>());
  const auto axes = ctx.ints(i);
  QUENCH_CHECK(axes.has_value());  // the caller asks AxesAreKnown first
  QUENCH_ASSIGN_OR_RETURN(std::vector<int> result, NormalAxes(ctx, *axes, rank));
  return std::optional(std::move(result));
}

bool AxesAreKnown(const OpContext& ctx, int i) {
  if (!ctx.has_input(i) || ctx.ints(i)) return true;
  return ctx.input(i).rank() == 1 && ctx.input(i).dims[0].is(0);
}

absl::StatusOr<int> AxesCount(const OpContext& ctx, int i, int rank) {
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, i, 1, 1));
  const Dim count = ctx.input(i).dims[0];
  if (!count.is_static()) {
    return ctx.UnsupportedError(
        "only a run knows how many axes there are, so the rank of the output is not known");
  }
  if (count.value() > rank)
    return ctx.Error(fmt::format("has {} axes, the rank is {}", count.value(), rank));
  return static_cast<int>(count.value());
}

bool IsOwnRuntimeDim(const OpContext& ctx, Dim dim) {
  if (dim.is_static()) return false;
  const Symbol& symbol = ctx.symbols().at(dim.symbol());
  return symbol.is_runtime() && std::get<RuntimeSize>(symbol.definition).node == ctx.node().name;
}

void SetRuntimeDim(LowerContext& ctx, Dim dim, E value) {
  if (!IsOwnRuntimeDim(ctx, dim)) return;
  value = ctx.b().Let(value, "size");
  ctx.b().Check(value >= ctx.b().I(0),
                fmt::format("node `{}`: an output size is negative", ctx.node().name));
  ctx.b().SetSlot(dim.symbol(), value);
}

void EnsureEqual(LowerContext& ctx, Dim a, Dim b, const std::string& what) {
  if (a == b) return;
  ctx.b().Check(ctx.Extent(a) == ctx.Extent(b),
                fmt::format("node `{}`: {} differ", ctx.node().name, what));
}

std::vector<E> Replaced(std::span<const E> indices, int axis, E value) {
  std::vector<E> result(indices.begin(), indices.end());
  result[static_cast<size_t>(axis)] = value;
  return result;
}

std::vector<E> Inserted(std::span<const E> indices, int axis, E value) {
  std::vector<E> result(indices.begin(), indices.end());
  result.insert(result.begin() + axis, value);
  return result;
}

std::vector<E> Erased(std::span<const E> indices, int axis) {
  std::vector<E> result(indices.begin(), indices.end());
  result.erase(result.begin() + axis);
  return result;
}

std::vector<E> DimsOf(B buffer) {
  std::vector<E> dims;
  for (int axis = 0; axis < buffer.rank(); ++axis) dims.push_back(buffer.dim(axis));
  return dims;
}

E ProductOf(Builder& b, std::span<const E> dims) {
  if (dims.empty()) return b.I(1);
  E product = dims.front();
  for (E dim : dims.subspan(1)) product = product * dim;
  return product;
}

E Flatten(Builder& b, std::span<const E> indices, std::span<const E> dims) {
  if (indices.empty()) return b.I(0);
  E position = indices.front();
  for (size_t i = 1; i < indices.size(); ++i) position = position * dims[i] + indices[i];
  return position;
}

std::vector<E> Unflatten(Builder& b, E position, std::span<const E> dims) {
  std::vector<E> indices(dims.size());
  E rest = position;
  for (size_t i = dims.size(); i-- > 0;) {
    if (i == 0) {
      indices[0] = rest;
      break;
    }
    indices[i] = b.Let(rest % dims[i], "i");
    rest = b.Let(rest / dims[i], "rest");
  }
  return indices;
}

E CheckedIndex(Builder& b, E raw, E size, const std::string& what) {
  const E index = b.Let(Cast(raw, DataType::kI64), "raw");
  b.Check(index >= -size && index < size, what + " is out of range");
  return b.Let(Select(index < b.I(0), index + size, index), "index");
}

E Element(LowerContext& ctx, int input, int64_t i) {
  if (const auto known = ctx.elements(input); known && i < static_cast<int64_t>(known->size())) {
    return ctx.Extent((*known)[static_cast<size_t>(i)]);
  }
  const B buffer = ctx.in(input);
  const std::vector<E> indices(static_cast<size_t>(buffer.rank()), ctx.b().I(i));
  return Cast(buffer.At(indices), DataType::kI64);
}

RuntimeAxes::RuntimeAxes(LowerContext& ctx, int input, int rank)
    : ctx_(ctx), input_(input), rank_(rank), count_(ctx.in(input).dim(0)) {
  Builder& b = ctx.b();
  const auto raw = [&](E entry) { return Cast(ctx.in(input).At({entry}), DataType::kI64); };
  const std::string where = fmt::format("node `{}` ({}): ", ctx.node().name, ctx.node().op);
  const E lowest = b.Reduce(BinaryOp::kMin, b.I(0), count_, raw);
  const E highest = b.Reduce(BinaryOp::kMax, b.I(-1), count_, raw);
  b.Check(lowest >= b.I(-rank) && highest < b.I(rank),
          fmt::format("{}an axis is out of range, the rank is {}", where, rank));
  for (int axis = 0; axis < rank; ++axis) {
    const E times = b.Let(Of(axis, [&](E) { return b.I(1); }), "times");
    b.Check(times <= b.I(1), fmt::format("{}axis {} is given twice", where, axis));
    has_.push_back(b.Let(times == b.I(1), "has"));
  }
}

E RuntimeAxes::Named(E entry) const {
  const E raw = Cast(ctx_.in(input_).At({entry}), DataType::kI64);
  return Select(raw < ctx_.b().I(0), raw + rank_, raw);
}

E RuntimeAxes::KeptBefore(int axis) const {
  E kept = ctx_.b().I(0);
  for (int i = 0; i < axis; ++i) kept = kept + Cast(!Has(i), DataType::kI64);
  return kept;
}

E RuntimeAxes::Of(int axis, const std::function<E(E)>& value) const {
  Builder& b = ctx_.b();
  return b.Reduce(BinaryOp::kAdd, b.I(0), count_,
                  [&](E entry) { return Select(Named(entry) == b.I(axis), value(entry), b.I(0)); });
}

E ExtentSum(LowerContext& ctx, std::span<const Dim> dims) {
  int64_t fixed = 0;
  std::vector<E> symbolic;
  for (const Dim dim : dims) {
    if (dim.is_static()) {
      fixed += dim.value();
    } else {
      symbolic.push_back(ctx.Extent(dim));
    }
  }
  if (symbolic.empty()) return ctx.b().I(fixed);
  const E sum = Combined(symbolic, [](E a, E b) { return a + b; });
  return fixed == 0 ? sum : sum + fixed;
}

bool ProvablyLessEqual(const OpContext& ctx, Dim a, Dim b) {
  return ctx.symbols().BoundsOf(ctx.symbols().Sub(b, a)).min >= 0;
}

void ParallelRows(Builder& b, std::span<const E> dims,
                  const std::function<void(std::span<const E>)>& body) {
  b.ParallelFor(ProductOf(b, dims), [&](E row) { body(Unflatten(b, row, dims)); }, "row");
}

namespace {
void SerialFrom(Builder& b, std::span<const E> dims, std::vector<E>& indices,
                const std::function<void(std::span<const E>)>& body) {
  if (indices.size() == dims.size()) {
    body(indices);
    return;
  }
  b.For(dims[indices.size()], [&](E i) {
    indices.push_back(i);
    SerialFrom(b, dims, indices, body);
    indices.pop_back();
  });
}
}  // namespace

void SerialForAll(Builder& b, std::span<const E> dims,
                  const std::function<void(std::span<const E>)>& body) {
  std::vector<E> indices;
  SerialFrom(b, dims, indices, body);
}

void CopyAll(Builder& b, B from, B to) {
  const std::vector<E> dims = DimsOf(to);
  b.ParallelForAll(dims, [&](std::span<const E> i) { b.Store(to, i, from.At(i)); });
}

}  // namespace quench::ops
