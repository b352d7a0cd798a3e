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
  const auto axes = ctx.ints(i);
  if (!axes)
    return ctx.UnsupportedError(
        "axes are computed at run time, they must be known when the model is compiled");
  QUENCH_ASSIGN_OR_RETURN(std::vector<int> result, NormalAxes(ctx, *axes, rank));
  return std::optional(std::move(result));
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

E ExtentSum(LowerContext& ctx, std::span<const Dim> dims) {
  int64_t fixed = 0;
  E sum;
  for (Dim dim : dims) {
    if (dim.is_static()) {
      fixed += dim.value();
    } else {
      sum = sum.valid() ? sum + ctx.Extent(dim) : ctx.Extent(dim);
    }
  }
  if (!sum.valid()) return ctx.b().I(fixed);
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
