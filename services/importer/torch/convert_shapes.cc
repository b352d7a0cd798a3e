// Shapes, parts, order of axes, and tensors that are made of nothing.
#include <algorithm>
#include <numeric>

#include "common/base/status.h"
#include "services/importer/torch/converters.h"
#include "services/importer/torch/graph_builder.h"

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
  std::vector<int64_t> perm = Counted(rank);
  if (c.node().op == "t") {
    if (rank > 2) return c.Error(fmt::format("its input has rank {}, at most 2 is wanted", rank));
    if (rank == 2) perm = {1, 0};
  } else if (c.node().op == "mT") {
    if (rank < 2) return c.Error(fmt::format("its input has rank {}, 2 is wanted", rank));
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  } else if (rank > 0) {
    const bool axes = n.Has("axis0");
    QUENCH_ASSIGN_OR_RETURN(const int64_t a, n.Axis(axes ? "axis0" : "dim0", rank, 0));
    QUENCH_ASSIGN_OR_RETURN(const int64_t b, n.Axis(axes ? "axis1" : "dim1", rank, 0));
    std::swap(perm[static_cast<size_t>(a)], perm[static_cast<size_t>(b)]);
  }
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

// ---- Parts ----

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
  const ValueId start = n.Size1("start", 0);
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
    return c.Error(fmt::format("gives {} parts, {} are wanted", sizes.size(), outputs));
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

absl::Status Cat(Converter& c) {
  AtenNode n(c);
  std::vector<ValueId> parts;
  DataType dtype = DataType::kUndefined;
  for (const ValueId id : n.List("tensors")) {
    // An empty list of old programs has no sizes.
    if (n.Rank(id) == 1 && n.SizeAt(id, 0) == 0 && n.List("tensors").size() > 1) continue;
    parts.push_back(id);
    const DataType own = n.TypeOf(id);
    if (dtype == DataType::kUndefined || (IsFloat(own) && !IsFloat(dtype)) ||
        (IsFloat(own) == IsFloat(dtype) && DataTypeBits(own) > DataTypeBits(dtype)))
      dtype = own;
  }
  if (parts.empty()) return c.Error("has no tensors");
  for (ValueId& part : parts) part = n.Cast(part, dtype);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(parts[0], "tensors"));
  const int rank = n.Rank(parts[0]);
  if (rank == 0) return c.Error("its tensors have no axes");
  const int64_t fallback = c.node().op == "hstack" && rank > 1 ? 1 : 0;
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", rank, fallback));
  return n.Finish(parts.size() == 1 ? n.Emit("Identity", {parts[0]}) : Joined(n, parts, axis));
}

absl::Status Stack(Converter& c) {
  AtenNode n(c);
  std::vector<ValueId> parts = n.List("tensors");
  if (parts.empty()) return c.Error("has no tensors");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(parts[0], "tensors"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(parts[0]) + 1, 0));
  for (ValueId& part : parts) part = n.Unsqueeze(part, {axis});
  return n.Finish(Joined(n, parts, axis));
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

// Of neighbours, n times; of booleans whether they differ.
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

// ---- Filled ----

absl::Status CopyFrom(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  return n.Finish(Broadcast(n, n.Operand("src", n.TypeOf(x)), n.ShapeOf(x)));
}

absl::Status Fill(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  return n.Finish(Broadcast(n, n.Operand("value", n.TypeOf(x)), n.ShapeOf(x)));
}

absl::Status Triangle(Converter& c) {
  AtenNode n(c);
  const bool upper = c.node().op == "triu";
  return n.Finish(n.Emit(
      "Trilu", {n.In("self"), c.Scalar(DataType::kI64, static_cast<double>(n.Int("diagonal")))},
      {{"upper", int64_t{upper}}}));
}

// ---- Made of nothing ----

static DataType DefaultOf(const AtenNode& n, DataType fallback) {
  const Attribute* value = n.c.node().Find("fill_value");
  if (value != nullptr && std::holds_alternative<int64_t>(*value) && fallback == DataType::kF32)
    return DataType::kI64;
  return fallback;
}

absl::Status Filled(Converter& c) {
  AtenNode n(c);
  const ValueId like = n.In("self");
  const DataType fallback = like != kNone ? n.TypeOf(like) : DefaultOf(n, DataType::kF32);
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, n.Dtype("dtype", fallback));
  const bool ones = c.node().op.find("ones") != std::string::npos;
  const ValueId value =
      n.Has("fill_value") ? n.Operand("fill_value", dtype) : c.Scalar(dtype, ones ? 1 : 0);
  return n.Finish(Broadcast(n, value, n.Sizes("size")));
}

absl::Status ScalarTensor(Converter& c) {
  AtenNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, n.Dtype("dtype", DataType::kF32));
  return n.Finish(n.Emit("Identity", {n.Operand("s", dtype)}));
}

absl::Status FilledLike(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, n.Dtype("dtype", n.TypeOf(x)));
  const bool ones = c.node().op.starts_with("ones");
  const ValueId value =
      n.Has("fill_value") ? n.Operand("fill_value", dtype) : c.Scalar(dtype, ones ? 1 : 0);
  return n.Finish(Broadcast(n, value, n.ShapeOf(x)));
}

absl::Status Arange(Converter& c) {
  AtenNode n(c);
  bool real = false;
  for (const char* name : {"start", "end", "step"}) {
    const Attribute* value = c.node().Find(name);
    real = real || (value != nullptr && std::holds_alternative<double>(*value)) ||
           (n.In(name) != kNone && IsFloat(n.TypeOf(n.In(name))));
  }
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype,
                          n.Dtype("dtype", real ? DataType::kF32 : DataType::kI64));
  const DataType counted = IsFloat(dtype) ? DataType::kF32 : DataType::kI64;
  const auto number = [&](const char* name, double fallback) {
    return n.Has(name) ? n.Operand(name, counted) : c.Scalar(counted, fallback);
  };
  const ValueId y = n.Emit("Range", {number("start", 0), number("end", 0), number("step", 1)});
  return n.Finish(n.Cast(y, dtype));
}

// ---- Spectra ----

absl::Status Stft(Converter& c) {
  AtenNode n(c);
  ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  const int64_t size = n.Int("n_fft", 0);
  const int64_t hop = n.Int("hop_length", size / 4), length = n.Int("win_length", size);
  if (size < 1 || hop < 1 || length < 1 || length > size)
    return c.Error(fmt::format("has n_fft {}, hop_length {}, win_length {}", size, hop, length));
  if (n.Flag("normalized") || n.Flag("return_complex"))
    return c.Unsupported("normalized or complex spectra");
  const bool batched = n.Rank(x) == 2;
  if (!batched) x = n.Unsqueeze(x, {0});
  ValueId window = n.In("window");
  if (window == kNone)
    window = c.AddConstant(
        Tensor::Of(DataType::kF32, {length}, std::vector<float>(static_cast<size_t>(length), 1)));
  const int64_t before = (size - length) / 2, after = size - length - before;
  if (length < size) window = n.Emit("Pad", {window, c.Ints({before, after})});
  // [batch, frames, bins, 2] -> [batch, bins, frames, 2]
  const ValueId frames =
      n.Emit("STFT",
             {n.Unsqueeze(x, {2}), c.Scalar(DataType::kI64, static_cast<double>(hop)), window,
              c.Scalar(DataType::kI64, static_cast<double>(size))},
             {{"onesided", int64_t{n.Flag("onesided", true)}}});
  const ValueId y = n.Transpose(frames, {0, 2, 1, 3});
  return n.Finish(batched ? y : n.Squeeze(y, {0}));
}

}  // namespace quench::importer::torch_ops
