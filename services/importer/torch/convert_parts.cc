// Parts of tensors, and tensors that are made of parts.
#include <algorithm>

#include "common/base/status.h"
#include "services/importer/torch/converters.h"

namespace quench::importer::torch_ops {

absl::Status Select(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), 0));
  return n.Finish(n.Emit("Gather", {x, n.Operand("index", DataType::kI64)}, {{"axis", axis}}));
}

absl::Status SliceOf(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), 0));
  const bool all = n.KnownInt("start").value_or(n.Has("start") ? 1 : 0) == 0 &&
                   (!n.Has("end") || n.KnownInt("end") == kTorchEnd) && n.Int("step", 1) == 1;
  if (all) return n.Finish(n.Emit("Identity", {x}));
  return n.Finish(n.Emit("Slice", {x, n.Size1("start", 0), n.Size1("end", kTorchEnd),
                                   c.Ints({axis}), n.Size1("step", 1)}));
}

absl::Status Narrow(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), 0));
  ValueId start = n.Size1("start", 0);
  // From behind: the end may be that of the axis.
  if (n.KnownInt("start").value_or(-1) < 0)
    start = n.Emit("Where", {n.Emit("Less", {start, c.Ints({0})}),
                             n.Emit("Add", {start, SizesBetween(n, x, axis, axis + 1)}), start});
  return n.Finish(
      n.Emit("Slice", {x, start, n.Emit("Add", {start, n.Size1("length", 0)}), c.Ints({axis})}));
}

absl::Status Chunk(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), 0));
  const int outputs = c.num_outputs();
  if (n.Has("split_sizes"))
    return c.FinalValues(
        c.EmitMany("Split", {x, n.Sizes("split_sizes")}, outputs, {{"axis", axis}}));
  const int64_t size = n.SizeAt(x, axis);
  if (size < 0)
    return c.Unsupported(fmt::format("the size of axis {} is known only at run time", axis));
  int64_t part = n.Int("split_size", 0);
  if (n.Has("chunks"))
    part = (size + n.Int("chunks", 1) - 1) / std::max<int64_t>(n.Int("chunks", 1), 1);
  std::vector<int64_t> sizes;
  for (int64_t begin = 0; begin < size && part > 0; begin += part)
    sizes.push_back(std::min(part, size - begin));
  if (sizes.empty()) sizes = {size};
  if (static_cast<int>(sizes.size()) != outputs)
    return c.Error(fmt::format("gives {} parts, expected {}", sizes.size(), outputs));
  return c.FinalValues(c.EmitMany("Split", {x, c.Ints(sizes)}, outputs, {{"axis", axis}}));
}

absl::Status Unbind(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), 0));
  std::vector<ValueId> parts;
  for (int i = 0; i < c.num_outputs(); ++i)
    parts.push_back(n.Emit("Gather", {x, c.Scalar(DataType::kI64, i)}, {{"axis", axis}}));
  return c.FinalValues(parts);
}

// The type of what is made of these parts.
static DataType WidestOf(const AtenNode& n, const std::vector<ValueId>& parts) {
  DataType dtype = DataType::kUndefined;
  for (const ValueId id : parts) {
    const DataType own = n.TypeOf(id);
    if (dtype == DataType::kUndefined || (IsFloat(own) && !IsFloat(dtype)) ||
        (IsFloat(own) == IsFloat(dtype) && DataTypeBits(own) > DataTypeBits(dtype)))
      dtype = own;
  }
  return dtype;
}

absl::Status Cat(Converter& c) {
  AtenNode n(c);
  std::vector<ValueId> parts;
  for (const ValueId id : n.List("tensors")) {
    // An empty list of old programs has no sizes.
    if (n.Rank(id) == 1 && n.SizeAt(id, 0) == 0 && n.List("tensors").size() > 1) continue;
    parts.push_back(id);
  }
  if (parts.empty()) return c.Error("has no tensors");
  const DataType dtype = WidestOf(n, parts);
  for (ValueId& part : parts) part = n.Cast(part, dtype);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(parts[0], "tensors"));
  const int rank = n.Rank(parts[0]);
  if (rank == 0) return c.Error("its tensors have no axes");
  if ((n.Is("vstack") || n.Is("row_stack")) && rank == 1) {
    for (ValueId& part : parts) part = n.Unsqueeze(part, {0});
  }
  const int64_t fallback = n.Is("hstack") && rank > 1 ? 1 : 0;
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", rank, fallback));
  return n.Finish(parts.size() == 1 ? n.Emit("Identity", {parts[0]}) : Joined(n, parts, axis));
}

absl::Status Stack(Converter& c) {
  AtenNode n(c);
  std::vector<ValueId> parts = n.List("tensors");
  if (parts.empty()) return c.Error("has no tensors");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(parts[0], "tensors"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(parts[0]) + 1, 0));
  const DataType dtype = WidestOf(n, parts);
  for (ValueId& part : parts) part = n.Unsqueeze(n.Cast(part, dtype), {axis});
  return n.Finish(Joined(n, parts, axis));
}

// A tensor for each of the axes, as large as all together.
absl::Status MeshGrid(Converter& c) {
  AtenNode n(c);
  std::vector<ValueId> parts = n.List("tensors");
  const auto count = static_cast<int64_t>(parts.size());
  std::vector<ValueId> sizes;
  const bool swapped = n.Text("indexing", "ij") == "xy" && count > 1;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t axis = swapped && i < 2 ? 1 - i : i;
    ValueId& part = parts[static_cast<size_t>(i)];
    std::vector<int64_t> shape(static_cast<size_t>(count), 1);
    shape[static_cast<size_t>(axis)] = -1;
    part = n.Reshape(part, shape);
    sizes.push_back(n.ShapeOf(part));
  }
  if (parts.empty()) return c.Error("has no tensors");
  const ValueId shape = count == 1 ? sizes[0] : n.Emit("Max", sizes);
  for (ValueId& part : parts) part = Broadcast(n, part, shape);
  return c.FinalValues(parts);
}

absl::Status Flip(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  if (const auto dims = n.Ints("dims"); dims && dims->empty())
    return n.Finish(n.Emit("Identity", {x}));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.Axes("dims", n.Rank(x)));
  const std::vector<int64_t> last(axes.size(), -1), end(axes.size(), INT64_MIN);
  return n.Finish(n.Emit("Slice", {x, c.Ints(last), c.Ints(end), c.Ints(axes), c.Ints(last)}));
}

absl::Status Roll(Converter& c) {
  AtenNode n(c);
  ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  const std::optional<std::vector<int64_t>> shifts = n.Ints("shifts"), dims = n.Ints("dims");
  if (!shifts) return c.Unsupported("shifts that only a run knows");
  const ValueId shape = n.ShapeOf(x);
  const bool flat = !dims || dims->empty();
  if (flat) x = n.Reshape(x, {-1});
  for (size_t i = 0; i < shifts->size(); ++i) {
    const int64_t rank = n.Rank(x);
    int64_t axis = flat ? 0 : i < dims->size() ? (*dims)[i] : 0;
    if (axis < 0) axis += rank;
    const int64_t size = n.SizeAt(x, axis);
    if (axis < 0 || axis >= rank || size < 0)
      return c.Unsupported("an axis whose size is known only at run time");
    const int64_t shift = size == 0 ? 0 : ((*shifts)[i] % size + size) % size;
    if (shift == 0) continue;
    x = Joined(n, {n.Slice(x, axis, size - shift, kTorchEnd), n.Slice(x, axis, 0, size - shift)},
               axis);
  }
  if (flat) x = n.Emit("Reshape", {x, shape});
  return n.Finish(n.Emit("Identity", {x}));
}

// Differences of neighbours, n times; for booleans whether they differ.
absl::Status Diff(Converter& c) {
  AtenNode n(c);
  ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_RETURN_IF_ERROR(c.RequireDataType(0));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), -1));
  const int64_t times = n.Int("n", 1);
  constexpr int64_t kMaxTimes = 64;
  if (times < 0 || times > kMaxTimes)
    return c.Unsupported(fmt::format("n is {}, 0 to {} are taken", times, kMaxTimes));
  std::vector<ValueId> parts = {x};
  if (n.Has("prepend")) parts.insert(parts.begin(), n.In("prepend"));
  if (n.Has("append")) parts.push_back(n.In("append"));
  if (parts.size() > 1) x = Joined(n, parts, axis);
  const bool flags = c.type(x).dtype == DataType::kBool;
  for (int64_t i = 0; i < times; ++i) {
    x = n.Emit(flags ? "Xor" : "Sub", {n.Slice(x, axis, 1, kTorchEnd), n.Slice(x, axis, 0, -1)});
  }
  return n.Finish(n.Emit("Identity", {x}));
}

// Windows of `size` elements, each `step` behind the one before, along a new last axis.
absl::Status Unfold(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  const int64_t rank = n.Rank(x), size = n.Int("size", -1), step = n.Int("step");
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dimension", rank, 0));
  if (rank == 0) return c.Unsupported("a tensor without axes");
  if (size < 0 || step < 1) return c.Error(fmt::format("has size {}, step {}", size, step));
  const auto scalar = [&](int64_t value) {
    return c.Scalar(DataType::kI64, static_cast<double>(value));
  };
  const ValueId length = n.Squeeze(SizesBetween(n, x, axis, axis + 1), {0});
  const ValueId end = n.Emit("Add", {length, scalar(1 - size)});
  const ValueId first = n.Emit("Range", {scalar(0), end, scalar(step)});
  const ValueId where = n.Emit("Add", {n.Unsqueeze(first, {1}), c.Ints(Counted(size))});
  const ValueId y = n.Emit("Gather", {x, where}, {{"axis", axis}});
  std::vector<int64_t> perm = Counted(rank + 1);
  std::rotate(perm.begin() + axis + 1, perm.begin() + axis + 2, perm.end());
  return n.Finish(n.Transpose(y, perm));
}

absl::Status Diagonal(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  const int64_t rank = n.Rank(x), offset = n.Int("offset");
  QUENCH_ASSIGN_OR_RETURN(const int64_t a, n.Axis("dim1", rank, 0));
  QUENCH_ASSIGN_OR_RETURN(const int64_t b, n.Axis("dim2", rank, 1));
  const int64_t rows = n.SizeAt(x, a), columns = n.SizeAt(x, b);
  if (rows < 0 || columns < 0 || a == b) return c.Unsupported("sizes that only a run knows");
  std::vector<int64_t> perm = {a, b};
  for (int64_t axis = 0; axis < rank; ++axis) {
    if (axis != a && axis != b) perm.push_back(axis);
  }
  std::vector<int64_t> pairs;
  const int64_t row = std::max<int64_t>(-offset, 0), column = std::max<int64_t>(offset, 0);
  for (int64_t i = 0; row + i < rows && column + i < columns; ++i) {
    pairs.push_back(row + i);
    pairs.push_back(column + i);
  }
  const ValueId where =
      c.AddConstant(Tensor::Of(DataType::kI64, {static_cast<int64_t>(pairs.size()) / 2, 2}, pairs));
  const ValueId y = n.Emit("GatherND", {n.Transpose(x, perm), where});
  std::vector<int64_t> back = Counted(rank - 1);
  std::rotate(back.begin(), back.begin() + 1, back.end());
  return n.Finish(back.size() < 2 ? y : n.Transpose(y, back));
}

}  // namespace quench::importer::torch_ops
