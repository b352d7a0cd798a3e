// Elements by their indices: taken out, and put in.
#include <algorithm>
#include <cmath>
#include <functional>

#include "common/base/status.h"
#include "services/importer/torch/converters.h"

namespace quench::importer::torch_ops {

absl::Status IndexSelect(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), 0));
  return n.Finish(n.Emit("Gather", {x, n.In("index")}, {{"axis", axis}}));
}

absl::Status Take(Converter& c) {
  AtenNode n(c);
  return n.Finish(
      n.Emit("Gather", {n.Reshape(n.In("self"), {-1}), n.In("index")}, {{"axis", int64_t{0}}}));
}

absl::Status GatherOf(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), 0));
  return n.Finish(n.Emit("GatherElements", {x, n.In("index")}, {{"axis", axis}}));
}

// The part of the source that has an index.
static ValueId SourceFor(AtenNode& n, ValueId index) {
  ValueId source = n.In("src");
  bool same = true;
  for (int64_t i = 0; i < n.Rank(index); ++i)
    same = same && n.SizeAt(source, i) >= 0 && n.SizeAt(source, i) == n.SizeAt(index, i);
  if (same) return source;
  const std::vector<int64_t> zeros(static_cast<size_t>(n.Rank(index)), 0);
  return n.Emit("Slice", {source, n.c.Ints(zeros), n.ShapeOf(index)});
}

absl::Status Scatter(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self"), index = n.In("index");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), 0));
  const ValueId source = n.In("src") != kNone
                             ? SourceFor(n, index)
                             : Broadcast(n, n.Operand("value", n.TypeOf(x)), n.ShapeOf(index));
  const std::string asked = c.node().op == "scatter_add" ? "add" : n.Text("reduce", "none");
  const std::string reduction = asked == "multiply" ? "mul" : asked;
  return n.Finish(n.Emit("ScatterElements", {x, index, n.Cast(source, n.TypeOf(x))},
                         {{"axis", axis}, {"reduction", reduction}}));
}

// The ONNX name of a reduction of PyTorch, and the number that changes nothing in it.
struct Reducer {
  const char* reduction;
  double neutral;
};

static absl::StatusOr<Reducer> ReducerOf(const AtenNode& n) {
  const std::string name = n.Text("reduce");
  if (name == "sum" || name == "mean") return Reducer{"add", 0};
  if (name == "prod") return Reducer{"mul", 1};
  if (name == "amax") return Reducer{"max", -INFINITY};  // of integers the lowest
  if (name == "amin") return Reducer{"min", INFINITY};
  return n.c.Error(fmt::format("has the reduction `{}`", name));
}

// `put(into, values, reduction)` scatters. Without the elements that were there, those that are written to begin with
// the neutral number. A mean is a sum over how many there were.
static absl::StatusOr<ValueId> ScatterReduced(
    AtenNode& n, ValueId x, ValueId source,
    const std::function<ValueId(ValueId, ValueId, const char*)>& put) {
  QUENCH_ASSIGN_OR_RETURN(const Reducer reducer, ReducerOf(n));
  const bool keep = n.Flag("include_self", true), mean = n.Text("reduce") == "mean";
  const auto filled = [&](ValueId like, double value) {
    return Broadcast(n, n.Scalar(x, value), n.ShapeOf(like));
  };
  const ValueId first = keep ? x : put(x, filled(source, reducer.neutral), "none");
  const ValueId y = put(first, source, reducer.reduction);
  if (!mean) return y;
  const ValueId count = put(filled(x, keep ? 1 : 0), filled(source, 1), "add");
  const ValueId divisor = n.Emit("Max", {count, n.Scalar(x, 1)});
  if (IsFloat(n.TypeOf(x))) return n.Emit("Div", {y, divisor});
  return FloorQuotient(n, y, divisor, n.TypeOf(x));
}

absl::Status ScatterReduce(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self"), index = n.In("index");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), 0));
  const auto put = [&](ValueId into, ValueId values, const char* reduction) {
    return n.Emit("ScatterElements", {into, index, values},
                  {{"axis", axis}, {"reduction", std::string(reduction)}});
  };
  QUENCH_ASSIGN_OR_RETURN(const ValueId y, ScatterReduced(n, x, SourceFor(n, index), put));
  return n.Finish(y);
}

// Axes with an index move to the front, behind one another; where they go from there follows from whether they stood
// side by side.
struct Indexed {
  ValueId x = kNone;      // axes with an index first
  ValueId where = kNone;  // [..., number of indices]
  ValueId only = kNone;   // the first index, if there is one alone
  std::vector<int64_t> perm;
  int64_t count = 0, first = 0, index_rank = 0;
  bool adjacent = true;
};

// One for each axis from the first, kNone for those without. A mask is an index of each of its axes: where it is true.
static absl::StatusOr<std::vector<ValueId>> IndicesOf(AtenNode& n) {
  std::vector<ValueId> indices;
  for (const ValueId id : n.List("indices")) {
    if (id == kNone || n.TypeOf(id) != DataType::kBool) {
      indices.push_back(id);
      continue;
    }
    QUENCH_RETURN_IF_ERROR(n.RequireRank(id, "indices"));
    if (n.Rank(id) == 0) return n.c.Unsupported("a mask without axes");
    const ValueId places = n.Emit("NonZero", {id});
    for (int i = 0; i < n.Rank(id); ++i)
      indices.push_back(
          n.Emit("Gather", {places, n.c.Scalar(DataType::kI64, i)}, {{"axis", int64_t{0}}}));
  }
  return indices;
}

static absl::StatusOr<Indexed> IndexedOf(AtenNode& n) {
  Indexed result;
  result.x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(result.x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<ValueId> indices, IndicesOf(n));
  if (static_cast<int>(indices.size()) > n.Rank(result.x))
    return n.c.Error(
        fmt::format("has {} indices, its input rank {}", indices.size(), n.Rank(result.x)));
  std::vector<int64_t> axes;
  std::vector<ValueId> given;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] == kNone) continue;
    QUENCH_RETURN_IF_ERROR(n.RequireRank(indices[i], "indices"));
    axes.push_back(static_cast<int64_t>(i));
    given.push_back(indices[i]);
  }
  if (axes.empty()) return n.c.Error("has no index");
  for (size_t i = 1; i < axes.size(); ++i)
    result.adjacent = result.adjacent && axes[i] == axes[i - 1] + 1;
  result.perm = axes;
  for (int64_t axis = 0; axis < n.Rank(result.x); ++axis) {
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) result.perm.push_back(axis);
  }
  result.first = axes[0];
  result.only = given[0];
  result.count = static_cast<int64_t>(axes.size());
  ValueId shape = kNone;
  if (given.size() > 1) {
    ValueId sum = given[0];
    for (size_t i = 1; i < given.size(); ++i)
      sum = n.Emit("Add", {n.Cast(sum, DataType::kI64), n.Cast(given[i], DataType::kI64)});
    shape = n.ShapeOf(sum);
    result.index_rank = n.Rank(sum);
  } else {
    result.index_rank = n.Rank(given[0]);
  }
  std::vector<ValueId> columns;
  for (ValueId id : given) {
    id = n.Cast(id, DataType::kI64);
    if (shape != kNone) id = Broadcast(n, id, shape);
    columns.push_back(n.Unsqueeze(id, {result.index_rank}));
  }
  result.where = Joined(n, columns, result.index_rank);
  return result;
}

absl::Status Index(Converter& c) {
  AtenNode n(c);
  std::vector<ValueId> indices = n.List("indices");
  const bool leads = !indices.empty() && indices[0] != kNone;
  if (std::erase(indices, kNone);
      leads && indices.size() == 1 && n.TypeOf(indices[0]) == DataType::kBool) {
    // A mask: rows where it is true.
    const ValueId rows = n.Transpose(n.Emit("NonZero", {indices[0]}), {1, 0});
    return n.Finish(n.Emit("GatherND", {n.In("self"), rows}));
  }
  QUENCH_ASSIGN_OR_RETURN(Indexed at, IndexedOf(n));
  if (at.count == 1) return n.Finish(n.Emit("Gather", {at.x, at.only}, {{"axis", at.first}}));
  const ValueId y = n.Emit("GatherND", {n.Transpose(at.x, at.perm), at.where});
  if (!at.adjacent || at.first == 0) return n.Finish(y);
  // [index..., before, after] -> [before, index..., after]
  std::vector<int64_t> order;
  for (int64_t i = 0; i < at.first; ++i) order.push_back(at.index_rank + i);
  for (int64_t i = 0; i < at.index_rank; ++i) order.push_back(i);
  for (int64_t i = at.index_rank + at.first; i < n.Rank(y); ++i) order.push_back(i);
  return n.Finish(n.Transpose(y, order));
}

absl::Status IndexPut(Converter& c) {
  AtenNode n(c);
  const std::vector<ValueId> indices = n.List("indices");
  const ValueId x = n.In("self"), values = n.In("values");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  const bool masks =
      indices.size() == 1 && indices[0] != kNone && n.TypeOf(indices[0]) == DataType::kBool;
  if (masks && !n.Flag("accumulate") && n.Rank(values) == 0) {  // one number wherever it is true
    ValueId mask = indices[0];
    for (int i = n.Rank(mask); i < n.Rank(x); ++i) mask = n.Unsqueeze(mask, {i});
    return n.Finish(n.Emit("Where", {mask, n.Cast(values, n.TypeOf(x)), x}));
  }
  QUENCH_ASSIGN_OR_RETURN(const Indexed at, IndexedOf(n));
  const ValueId moved = n.Transpose(at.x, at.perm);
  // Values broadcast to [index..., rest]; where the index stood in the middle, they stand there too.
  std::vector<ValueId> shape = {n.Slice(n.ShapeOf(at.where), 0, 0, at.index_rank)};
  if (n.Rank(moved) > at.count) shape.push_back(SizesBetween(n, moved, at.count, n.Rank(moved)));
  if (at.adjacent && at.first > 0 && n.Rank(values) > at.index_rank)
    return c.Unsupported("values for an index behind another axis");
  const ValueId updates = Broadcast(n, n.Cast(values, n.TypeOf(x)), Joined(n, shape, 0));
  const ValueId y = n.Emit("ScatterND", {moved, at.where, updates},
                           {{"reduction", std::string(n.Flag("accumulate") ? "add" : "none")}});
  std::vector<int64_t> back(at.perm.size());
  for (size_t i = 0; i < back.size(); ++i)
    back[static_cast<size_t>(at.perm[i])] = static_cast<int64_t>(i);
  return n.Finish(n.Transpose(y, back));
}

// `x` with `part` written to, or reduced into, these positions of the axis; others keep their contents.
static ValueId AlongAxis(AtenNode& n, ValueId x, int64_t axis, ValueId positions, ValueId part,
                         const char* reduction = "none") {
  std::vector<int64_t> perm = Counted(n.Rank(x));
  std::swap(perm[0], perm[static_cast<size_t>(axis)]);
  const ValueId front = n.Transpose(x, perm), source = n.Transpose(part, perm);
  const ValueId y = n.Emit("ScatterND", {front, n.Unsqueeze(positions, {1}), source},
                           {{"reduction", std::string(reduction)}});
  return n.Transpose(y, perm);
}

// Whole parts of the tensor, one for each index.
absl::Status IndexWrite(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  if (n.Rank(x) == 0) return c.Unsupported("a tensor without axes");
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), 0));
  const ValueId index = n.Reshape(n.In("index"), {-1});
  ValueId source = n.In("source");
  if (source == kNone) {  // `index_fill`
    const ValueId part = n.Emit("Gather", {x, index}, {{"axis", axis}});
    source = Broadcast(n, n.Operand("value", n.TypeOf(x)), n.ShapeOf(part));
  }
  source = n.Times(n.Cast(source, n.TypeOf(x)), n.Number("alpha", 1));
  const auto put = [&](ValueId into, ValueId values, const char* reduction) {
    return AlongAxis(n, into, axis, index, values, reduction);
  };
  if (!n.Has("reduce")) return n.Finish(put(x, source, n.Is("index_add") ? "add" : "none"));
  QUENCH_ASSIGN_OR_RETURN(const ValueId y, ScatterReduced(n, x, source, put));
  return n.Finish(y);
}

absl::Status SliceScatter(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), 0));
  const ValueId size = n.Squeeze(SizesBetween(n, x, axis, axis + 1), {0});
  const ValueId all =
      n.Emit("Range", {c.Scalar(DataType::kI64, 0), size, c.Scalar(DataType::kI64, 1)});
  const ValueId positions = n.Emit("Slice", {all, n.Size1("start", 0), n.Size1("end", kTorchEnd),
                                             c.Ints({0}), n.Size1("step", 1)});
  // The source broadcasts to the part that it replaces.
  const ValueId part = n.Emit("Slice", {x, n.Size1("start", 0), n.Size1("end", kTorchEnd),
                                        c.Ints({axis}), n.Size1("step", 1)});
  const ValueId source = Broadcast(n, n.Cast(n.In("src"), n.TypeOf(x)), n.ShapeOf(part));
  return n.Finish(AlongAxis(n, x, axis, positions, source));
}

absl::Status SelectScatter(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), 0));
  const ValueId size = n.Squeeze(SizesBetween(n, x, axis, axis + 1), {0});
  ValueId index = n.Operand("index", DataType::kI64);
  index = n.Emit("Mod", {n.Emit("Add", {index, size}), size}, {{"fmod", int64_t{0}}});
  const ValueId all =
      n.Emit("Range", {c.Scalar(DataType::kI64, 0), size, c.Scalar(DataType::kI64, 1)});
  ValueId mask = n.Emit("Equal", {all, index});
  std::vector<int64_t> behind;
  for (int64_t i = axis + 1; i < n.Rank(x); ++i) behind.push_back(i - axis);
  mask = n.Unsqueeze(mask, behind);
  const ValueId source = n.Unsqueeze(n.Cast(n.In("src"), n.TypeOf(x)), {axis});
  return n.Finish(n.Emit("Where", {mask, source, x}));
}

absl::Status NonZeroOf(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Transpose(n.Emit("NonZero", {n.In("self")}), {1, 0}));
}

// A tensor of indices for each axis.
absl::Status NonZeroByAxis(Converter& c) {
  AtenNode n(c);
  ValueId x = n.In(n.Has("condition") ? "condition" : "self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  if (n.Rank(x) == 0) x = n.Unsqueeze(x, {0});
  const ValueId all = n.Emit("NonZero", {x});
  std::vector<ValueId> axes;
  for (int i = 0; i < c.num_outputs(); ++i)
    axes.push_back(n.Emit("Gather", {all, c.Scalar(DataType::kI64, i)}, {{"axis", int64_t{0}}}));
  return c.FinalValues(axes);
}

absl::Status MaskedSelect(Converter& c) {
  AtenNode n(c);
  const ValueId x = Broadcast(n, n.In("self"), n.ShapeOf(n.In("mask")));
  const ValueId mask = Broadcast(n, n.Cast(n.In("mask"), DataType::kBool), n.ShapeOf(x));
  const ValueId places = n.Transpose(n.Emit("NonZero", {mask}), {1, 0});
  return n.Finish(n.Emit("GatherND", {x, places}));
}

}  // namespace quench::importer::torch_ops
