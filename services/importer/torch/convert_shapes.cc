// The same elements in another shape or order of axes, and repeated.
#include <algorithm>
#include <numeric>

#include "common/base/status.h"
#include "services/importer/torch/converters.h"

namespace quench::importer::torch_ops {

std::vector<int64_t> Counted(int64_t count) {
  std::vector<int64_t> axes(static_cast<size_t>(count));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

ValueId Joined(AtenNode& n, const std::vector<ValueId>& parts, int64_t axis) {
  return parts.size() == 1 ? parts[0] : n.Emit("Concat", parts, {{"axis", axis}});
}

ValueId SizesBetween(AtenNode& n, ValueId id, int64_t begin, int64_t end) {
  return n.Slice(n.ShapeOf(id), 0, begin, end);
}

ValueId Broadcast(AtenNode& n, ValueId id, ValueId shape) { return n.Emit("Expand", {id, shape}); }

// ---- The same elements ----

absl::Status View(Converter& c) {
  AtenNode n(c);
  const char* name = n.Has("shape") ? "shape" : "size";
  const std::optional<std::vector<int64_t>> known = n.Ints(name);
  const bool empty = known && std::count(known->begin(), known->end(), 0) > 0;
  return n.Finish(
      n.Emit("Reshape", {n.In("self"), n.Sizes(name)}, {{"allowzero", int64_t{empty ? 1 : 0}}}));
}

absl::Status ViewAs(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Emit("Reshape", {n.In("self"), n.ShapeOf(n.In("other"))}));
}

absl::Status Flatten(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  const int64_t rank = n.Rank(x);
  QUENCH_ASSIGN_OR_RETURN(const int64_t first, n.Axis("start_dim", rank, 0));
  QUENCH_ASSIGN_OR_RETURN(const int64_t last, n.Axis("end_dim", rank, -1));
  if (first > last) return c.Error(fmt::format("start_dim {} is behind end_dim {}", first, last));
  if (rank == 0) return n.Finish(n.Reshape(x, {1}));
  if (first == last) return n.Finish(n.Emit("Identity", {x}));
  if (first == 1 && last == rank - 1)
    return n.Finish(n.Emit("Flatten", {x}, {{"axis", int64_t{1}}}));
  std::vector<ValueId> parts;
  if (first > 0) parts.push_back(SizesBetween(n, x, 0, first));
  parts.push_back(c.Ints({-1}));
  if (last + 1 < rank) parts.push_back(SizesBetween(n, x, last + 1, rank));
  return n.Finish(n.Emit("Reshape", {x, Joined(n, parts, 0)}));
}

absl::Status Unflatten(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), 0));
  std::vector<ValueId> parts;
  if (axis > 0) parts.push_back(SizesBetween(n, x, 0, axis));
  parts.push_back(n.Sizes("sizes"));
  if (axis + 1 < n.Rank(x)) parts.push_back(SizesBetween(n, x, axis + 1, n.Rank(x)));
  return n.Finish(n.Emit("Reshape", {x, Joined(n, parts, 0)}));
}

absl::Status SqueezeOf(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> candidates, n.Axes("dim", n.Rank(x)));
  std::vector<int64_t> axes;
  for (const int64_t axis : candidates) {
    const int64_t size = n.SizeAt(x, axis);
    if (size < 0 && n.Has("dim"))
      return c.Unsupported(
          fmt::format("whether axis {} has the size 1 is known only at run time", axis));
    if (size == 1) axes.push_back(axis);
  }
  return n.Finish(axes.empty() ? n.Emit("Identity", {x}) : n.Squeeze(x, axes));
}

absl::Status UnsqueezeOf(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x) + 1, 0));
  return n.Finish(n.Unsqueeze(x, {axis}));
}

absl::Status TransposeOf(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  const int64_t rank = n.Rank(x);
  const std::string& op = c.node().op;
  std::vector<int64_t> perm = Counted(rank);
  if (op == "t") {
    if (rank > 2) return c.Error(fmt::format("its input has rank {}, expected at most 2", rank));
    if (rank == 2) perm = {1, 0};
  } else if (op == "T" || op == "numpy_T") {
    std::reverse(perm.begin(), perm.end());
  } else if (!n.Has("axis0") && !n.Has("dim0")) {  // `mT` and, of real numbers, `mH`, `adjoint`
    if (rank < 2) return c.Error(fmt::format("its input has rank {}, expected 2", rank));
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  } else if (rank > 0) {
    const bool axes = n.Has("axis0");
    QUENCH_ASSIGN_OR_RETURN(const int64_t a, n.Axis(axes ? "axis0" : "dim0", rank, 0));
    QUENCH_ASSIGN_OR_RETURN(const int64_t b, n.Axis(axes ? "axis1" : "dim1", rank, 0));
    std::swap(perm[static_cast<size_t>(a)], perm[static_cast<size_t>(b)]);
  }
  return n.Finish(n.Emit("Transpose", {x}, {{"perm", perm}}));
}

// The axes of `source` go to those of `destination`, the others keep their order.
absl::Status MoveAxes(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  const int64_t rank = n.Rank(x);
  const std::optional<std::vector<int64_t>> from = n.Ints("source"), to = n.Ints("destination");
  if (!from || !to || from->size() != to->size())
    return c.Error("source and destination have not equally many axes");
  std::vector<int64_t> perm(static_cast<size_t>(rank), -1), rest = Counted(rank);
  for (size_t i = 0; i < from->size(); ++i) {
    const int64_t source = (*from)[i] < 0 ? (*from)[i] + rank : (*from)[i];
    const int64_t destination = (*to)[i] < 0 ? (*to)[i] + rank : (*to)[i];
    const bool fits = source >= 0 && source < rank && destination >= 0 && destination < rank &&
                      perm[static_cast<size_t>(destination)] < 0;
    if (!fits || std::erase(rest, source) == 0)
      return c.Error(fmt::format("axis {} of rank {} goes to {}", (*from)[i], rank, (*to)[i]));
    perm[static_cast<size_t>(destination)] = source;
  }
  auto next = rest.begin();
  for (int64_t& axis : perm) axis = axis < 0 ? *next++ : axis;
  return n.Finish(n.Emit("Transpose", {x}, {{"perm", perm}}));
}

absl::Status Permute(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  std::optional<std::vector<int64_t>> dims = n.Ints("dims");
  const int64_t rank = n.Rank(x);
  if (!dims || static_cast<int64_t>(dims->size()) != rank)
    return c.Error(fmt::format("dims has not {} axes", rank));
  std::vector<int64_t> back(dims->size(), -1);
  for (size_t i = 0; i < dims->size(); ++i) {
    int64_t& axis = (*dims)[i];
    if (axis < -rank || axis >= rank) return c.Error(fmt::format("dims has {}", axis));
    if (axis < 0) axis += rank;
    back[static_cast<size_t>(axis)] = static_cast<int64_t>(i);
  }
  if (std::count(back.begin(), back.end(), -1) > 0) return c.Error("dims names an axis twice");
  return n.Finish(n.Emit("Transpose", {x}, {{"perm", c.node().op == "permute" ? *dims : back}}));
}

absl::Status SizeOf(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), 0));
  return n.Finish(n.Emit("Gather",
                         {n.ShapeOf(x), c.Scalar(DataType::kI64, static_cast<double>(axis))},
                         {{"axis", int64_t{0}}}));
}

// ---- Repeated ----

// -1 keeps a size: as 1, which broadcasts.
absl::Status ExpandTo(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  if (std::optional<std::vector<int64_t>> known = n.Ints("size")) {
    for (int64_t& size : *known) size = size == -1 ? 1 : size;
    return n.Finish(Broadcast(n, x, c.Ints(*known)));
  }
  const ValueId sizes = n.Sizes("size");
  const ValueId kept = n.Emit("Equal", {sizes, c.Scalar(DataType::kI64, -1)});
  return n.Finish(Broadcast(n, x, n.Emit("Where", {kept, c.Scalar(DataType::kI64, 1), sizes})));
}

absl::Status ExpandAs(Converter& c) {
  AtenNode n(c);
  return n.Finish(Broadcast(n, n.In("self"), n.ShapeOf(n.In("other"))));
}

absl::Status Repeat(Converter& c) {
  AtenNode n(c);
  ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  const char* name = n.Has("repeats") ? "repeats" : "dims";
  ValueId repeats = n.Sizes(name);
  const auto count = static_cast<int64_t>(c.node().Ints(name).size()), rank = int64_t{n.Rank(x)};
  if (count > rank) {
    x = n.Unsqueeze(x, Counted(count - rank));
  } else if (count < rank) {  // `tile`
    repeats =
        Joined(n, {c.Ints(std::vector<int64_t>(static_cast<size_t>(rank - count), 1)), repeats}, 0);
  }
  return n.Finish(n.Emit("Tile", {x, repeats}));
}

absl::Status RepeatInterleave(Converter& c) {
  AtenNode n(c);
  ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  const std::optional<int64_t> repeats = n.KnownInt("repeats");
  if (!repeats || *repeats < 0)
    return c.Unsupported("repeats that differ, or that only a run knows");
  if (!n.Has("dim")) x = n.Reshape(x, {-1});
  const int64_t rank = n.Rank(x);
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", rank, 0));
  std::vector<int64_t> tile(static_cast<size_t>(rank) + 1, 1);
  tile[static_cast<size_t>(axis) + 1] = *repeats;
  const ValueId tiled = n.Emit("Tile", {n.Unsqueeze(x, {axis + 1}), c.Ints(tile)});
  std::vector<ValueId> parts;
  if (axis > 0) parts.push_back(SizesBetween(n, x, 0, axis));
  parts.push_back(c.Ints({-1}));
  if (axis + 1 < rank) parts.push_back(SizesBetween(n, x, axis + 1, rank));
  return n.Finish(n.Emit("Reshape", {tiled, Joined(n, parts, 0)}));
}

}  // namespace quench::importer::torch_ops
