// Operators that move, select and count elements: they take quantized tensors as the integers they
// are.
#include <algorithm>
#include <limits>
#include <numeric>

#include "common/base/status.h"
#include "services/importer/tflite/attributes.h"
#include "services/importer/tflite/converters.h"

namespace quench::importer::tflite_ops {
namespace {

// `op` on input 0 and `others`: on the integers where input and output mean the same, else on the
// numbers.
absl::Status Move(TfliteNode& n, const char* op, const std::vector<ValueId>& others,
                  Attributes attributes = {}) {
  const bool raw = n.HasSameScale(0);
  std::vector<ValueId> inputs = {raw ? n.Raw(0) : n.Real(0)};
  inputs.insert(inputs.end(), others.begin(), others.end());
  const ValueId result = n.Emit(op, std::move(inputs), std::move(attributes));
  return raw ? n.FinishRaw(result) : n.Finish(result);
}

absl::StatusOr<int64_t> AxisOf(const TfliteNode& n, int64_t axis, int rank) {
  if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
  return n.c.Error(fmt::format("axis {} does not exist, the rank is {}", axis, rank));
}

int64_t Saturated(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return b > 0 ? kEnd : -kEnd;
  return sum;
}

// The shape of a value as an i64 vector.
ValueId ShapeOf(TfliteNode& n, ValueId id) { return n.Emit("Shape", {id}); }

constexpr int64_t kMaxDiagonal = 4096;

// A bool matrix that is true on its diagonal.
ValueId Diagonal(Converter& c, int64_t rows, int64_t columns) {
  std::vector<uint8_t> bits(static_cast<size_t>(rows * columns), 0);
  for (int64_t i = 0; i < std::min(rows, columns); ++i)
    bits[static_cast<size_t>(i * columns + i)] = 1;
  return c.AddConstant(Tensor::Of(DataType::kBool, {rows, columns}, bits));
}

}  // namespace

absl::Status Reshape(Converter& c) {
  TfliteNode n(c);
  std::optional<std::vector<int64_t>> known = n.KnownInts(1);
  if (!c.has(1)) known = c.node().Ints("new_shape");
  if (!known) return Move(n, "Reshape", {n.Sizes(1)}, {{"allowzero", int64_t{1}}});
  const bool zero = std::find(known->begin(), known->end(), 0) != known->end();
  return Move(n, "Reshape", {c.Ints(*known)}, {{"allowzero", int64_t{zero}}});
}

absl::Status Squeeze(Converter& c) {
  TfliteNode n(c);
  const std::vector<int64_t> axes = c.node().Ints("squeeze_dims");
  return Move(n, "Squeeze", axes.empty() ? std::vector<ValueId>() : std::vector{c.Ints(axes)});
}

absl::Status ExpandDims(Converter& c) {
  TfliteNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.RequireInts(1, "the axis"));
  return Move(n, "Unsqueeze", {c.Ints(axes)});
}

absl::Status TransposeAxes(Converter& c) {
  TfliteNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> perm, n.RequireInts(1, "the order of axes"));
  return Move(n, "Transpose", {}, {{"perm", perm}});
}

absl::Status Concatenation(Converter& c) {
  TfliteNode n(c);
  const int count = static_cast<int>(c.inputs().size());
  bool raw = n.Int("fused_activation_function") == 0;
  for (int i = 0; i < count; ++i) raw = raw && n.HasSameScale(i);
  std::vector<ValueId> parts;
  for (int i = 0; i < count; ++i) parts.push_back(raw ? n.Raw(i) : n.Real(i));
  const ValueId result = n.Emit("Concat", parts, {{"axis", n.Int("axis")}});
  return raw ? n.FinishRaw(result) : n.Finish(n.Activate(result));
}

absl::Status Pack(Converter& c) {
  TfliteNode n(c);
  const int64_t axis = n.Int("axis");
  std::vector<ValueId> parts;
  for (int i = 0; i < static_cast<int>(c.inputs().size()); ++i)
    parts.push_back(n.Emit("Unsqueeze", {n.Raw(i), c.Ints({axis})}));
  return n.FinishRaw(n.Emit("Concat", parts, {{"axis", axis}}));
}

absl::Status Unpack(Converter& c) {
  TfliteNode n(c);
  const int64_t axis = n.Int("axis");
  const std::vector<ValueId> parts =
      c.EmitMany("Split", {n.Raw(0)}, c.num_outputs(),
                 {{"axis", axis}, {"num_outputs", int64_t{c.num_outputs()}}});
  std::vector<ValueId> results;
  for (const ValueId part : parts) results.push_back(n.Emit("Squeeze", {part, c.Ints({axis})}));
  return c.FinalValues(results);
}

absl::Status Split(Converter& c) {
  TfliteNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.RequireInt(0, "the axis"));
  return c.FinalValues(c.EmitMany("Split", {n.Raw(1)}, c.num_outputs(),
                                  {{"axis", axis}, {"num_outputs", int64_t{c.num_outputs()}}}));
}

absl::Status SplitV(Converter& c) {
  TfliteNode n(c);
  QUENCH_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, n.RequireInts(1, "the sizes of the parts"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.RequireInt(2, "the axis"));
  QUENCH_RETURN_IF_ERROR(c.RequireRank(0));
  QUENCH_ASSIGN_OR_RETURN(const int64_t at, AxisOf(n, axis, c.Rank(c.in(0))));
  for (const int64_t size : sizes) {
    if (size < -1 || size > kMaxSize) return c.Error(fmt::format("a part has size {}", size));
  }
  const auto rest = std::find(sizes.begin(), sizes.end(), -1);
  const Dim whole = c.type(c.in(0)).dims[static_cast<size_t>(at)];
  if (rest != sizes.end()) {
    if (!whole.is_static()) return c.Unsupported("the size of a part is known only at run time");
    *rest = whole.value() - (std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) + 1);
  }
  return c.FinalValues(
      c.EmitMany("Split", {n.Raw(0), c.Ints(sizes)}, c.num_outputs(), {{"axis", at}}));
}

absl::Status Slice(Converter& c) {
  TfliteNode n(c);
  QUENCH_RETURN_IF_ERROR(c.RequireRank(0));
  std::vector<int64_t> axes(static_cast<size_t>(c.Rank(c.in(0))));
  std::iota(axes.begin(), axes.end(), 0);
  const std::optional<std::vector<int64_t>> begin = n.KnownInts(1), size = n.KnownInts(2);
  if (begin && size && begin->size() == size->size()) {
    std::vector<int64_t> end;
    for (size_t i = 0; i < begin->size(); ++i)
      end.push_back((*size)[i] < 0 ? kEnd : Saturated((*begin)[i], (*size)[i]));
    return Move(n, "Slice", {c.Ints(*begin), c.Ints(end), c.Ints(axes)});
  }
  const ValueId first = n.Sizes(1), count = n.Sizes(2);
  const ValueId open = n.Emit("Less", {count, c.Scalar(DataType::kI64, 0)});
  const ValueId end =
      n.Emit("Where", {open, c.AddConstant(Tensor::I64({kEnd})), n.Emit("Add", {first, count})});
  return Move(n, "Slice", {first, end, c.Ints(axes)});
}

absl::Status StridedSlice(Converter& c) {
  TfliteNode n(c);
  QUENCH_RETURN_IF_ERROR(c.RequireRank(0));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> strides, n.RequireInts(3, "the strides"));
  const std::optional<std::vector<int64_t>> begin = n.KnownInts(1), end = n.KnownInts(2);
  const int rank = c.Rank(c.in(0));
  const auto bit = [&](const char* mask, size_t i) { return ((n.Int(mask) >> i) & 1) != 0; };
  const size_t entries = strides.size();
  if ((begin && begin->size() != entries) || (end && end->size() != entries) || entries > 32)
    return c.Error("its begins, ends and strides are not as many");
  int64_t consumed = 0;
  for (size_t i = 0; i < entries; ++i)
    consumed += !bit("new_axis_mask", i) && !bit("ellipsis_mask", i);
  if (consumed > rank)
    return c.Error(fmt::format("slices {} axes of a tensor of rank {}", consumed, rank));

  // Entry i slices input axis axes[k] from entry picks[k] of begin and end.
  std::vector<int64_t> axes, steps, picks, new_axes, dropped, first_known, last_known;
  std::vector<uint8_t> from_start, to_end;
  int64_t axis = 0, out_axis = 0;
  for (size_t i = 0; i < entries; ++i) {
    if (bit("ellipsis_mask", i)) {
      int64_t rest = 0;
      for (size_t j = i + 1; j < entries; ++j) rest += !bit("new_axis_mask", j);
      out_axis += rank - rest - axis;
      axis = rank - rest;
      continue;
    }
    if (bit("new_axis_mask", i)) {
      new_axes.push_back(out_axis++);
      continue;
    }
    const bool shrink = bit("shrink_axis_mask", i);
    axes.push_back(axis);
    picks.push_back(static_cast<int64_t>(i));
    steps.push_back(shrink ? 1 : strides[i]);
    if (strides[i] == 0) return c.Error("a stride is 0");
    from_start.push_back(bit("begin_mask", i) && !shrink);
    to_end.push_back(bit("end_mask", i) && !shrink);
    first_known.push_back(from_start.back() ? (strides[i] < 0 ? kEnd : 0)
                                            : (begin ? (*begin)[i] : 0));
    int64_t last = end ? (*end)[i] : 0;
    if (n.Flag("offset") && begin && end && !to_end.back())
      last = Saturated(last, first_known.back());
    if (to_end.back()) last = strides[i] < 0 ? -kEnd : kEnd;
    if (shrink) last = first_known.back() == -1 ? kEnd : Saturated(first_known.back(), 1);
    last_known.push_back(last);
    if (shrink) {
      dropped.push_back(axis);
    } else {
      ++out_axis;
    }
    ++axis;
  }
  ValueId first = kNone, last = kNone;
  if (begin && end) {
    first = c.Ints(first_known);
    last = c.Ints(last_known);
  } else {
    if (n.Flag("offset")) return c.Unsupported("ends are offsets from begins of the run");
    const auto chosen = [&](int input, const std::vector<uint8_t>& masked,
                            const std::vector<int64_t>& fallback) {
      const ValueId given = n.Emit("Gather", {n.Sizes(input), c.Ints(picks)});
      const ValueId mask =
          c.AddConstant(Tensor::Of(DataType::kBool, {static_cast<int64_t>(masked.size())}, masked));
      return n.Emit("Where", {mask, c.Ints(fallback), given});
    };
    // Where a begin is of the run, a dropped axis ends one behind it.
    first = begin ? c.Ints(first_known) : chosen(1, from_start, first_known);
    last = end ? c.Ints(last_known) : chosen(2, to_end, last_known);
    if (!dropped.empty()) {
      std::vector<uint8_t> single;
      for (const int64_t at : axes)
        single.push_back(std::find(dropped.begin(), dropped.end(), at) != dropped.end());
      const ValueId mask =
          c.AddConstant(Tensor::Of(DataType::kBool, {static_cast<int64_t>(single.size())}, single));
      const ValueId behind = n.Emit("Add", {first, c.Ints({1})});
      const ValueId wrapped =
          n.Emit("Where", {n.Emit("Equal", {behind, c.Ints({0})}), c.Ints({kEnd}), behind});
      last = n.Emit("Where", {mask, wrapped, last});
    }
  }
  ValueId x = n.Raw(0);
  if (!axes.empty()) x = n.Emit("Slice", {x, first, last, c.Ints(axes), c.Ints(steps)});
  if (!dropped.empty()) x = n.Emit("Squeeze", {x, c.Ints(dropped)});
  if (!new_axes.empty()) x = n.Emit("Unsqueeze", {x, c.Ints(new_axes)});
  return n.FinishRaw(x);
}

absl::Status Pad(Converter& c) {
  TfliteNode n(c);
  const std::optional<std::vector<int64_t>> known = n.KnownInts(1);
  ValueId pads = kNone;
  if (known) {
    std::vector<int64_t> begins, ends;
    for (size_t i = 0; i + 1 < known->size(); i += 2) {
      begins.push_back((*known)[i]);
      ends.push_back((*known)[i + 1]);
    }
    begins.insert(begins.end(), ends.begin(), ends.end());
    pads = c.Ints(begins);
  } else {
    pads = n.Emit("Reshape", {n.Transpose(n.Sizes(1), {1, 0}), c.Ints({-1})});
  }
  if (!n.HasSameScale(0) || (c.has(2) && n.IsQuantized(0) && !n.HasSameScale(2)))
    return n.Finish(n.Emit("Pad", {n.Real(0), pads, c.has(2) ? n.Real(2) : kNone}));
  if (c.has(2)) {
    const ValueId value = n.Emit("Reshape", {n.Raw(2), c.Ints({})});
    return n.FinishRaw(n.Emit("Pad", {n.Raw(0), pads, value}));
  }
  // Padding is 0 as a number.
  const TensorScale scale = ScaleOf(c.node(), "input", 0);
  const ValueId zero = scale.zero.empty()
                           ? kNone
                           : c.Scalar(c.type(c.in(0)).dtype, static_cast<double>(scale.zero[0]));
  return n.FinishRaw(n.Emit("Pad", {n.Raw(0), pads, zero}));
}

absl::Status MirrorPad(Converter& c) {
  TfliteNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> pads, n.RequireInts(1, "the padding"));
  const bool symmetric = n.Int("mode") == tflite::MirrorPadMode_SYMMETRIC;
  if (!symmetric) {
    std::vector<int64_t> begins, ends;
    for (size_t i = 0; i + 1 < pads.size(); i += 2) {
      begins.push_back(pads[i]);
      ends.push_back(pads[i + 1]);
    }
    begins.insert(begins.end(), ends.begin(), ends.end());
    return Move(n, "Pad", {c.Ints(begins)}, {{"mode", std::string("reflect")}});
  }
  // The edge itself is mirrored too: axis by axis, slices backwards beside the tensor.
  ValueId x = n.Raw(0);
  for (size_t i = 0; i + 1 < pads.size(); i += 2) {
    const auto axis = static_cast<int64_t>(i / 2);
    const auto slice = [&](int64_t first, int64_t last) {
      return n.Emit("Slice", {x, c.Ints({first}), c.Ints({last}), c.Ints({axis}), c.Ints({-1})});
    };
    std::vector<ValueId> parts;
    if (pads[i] > 0) parts.push_back(slice(pads[i] - 1, -kEnd));
    parts.push_back(x);
    if (pads[i + 1] > 0) parts.push_back(slice(-1, -1 - pads[i + 1]));
    if (parts.size() > 1) x = n.Emit("Concat", parts, {{"axis", axis}});
  }
  return n.FinishRaw(x);
}

absl::Status Gather(Converter& c) {
  TfliteNode n(c);
  QUENCH_RETURN_IF_ERROR(c.RequireRank(0));
  const int rank = c.Rank(c.in(0));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, AxisOf(n, n.Int("axis"), rank));
  int64_t batch = n.Int("batch_dims");
  if (batch < 0) batch += c.Rank(c.in(1));
  if (batch == 0) return Move(n, "Gather", {n.Raw(1)}, {{"axis", axis}});
  if (batch != axis) return c.Unsupported(fmt::format("batch_dims is {} and axis {}", batch, axis));
  const ValueId tuples = n.Emit("Unsqueeze", {n.Cast(n.Raw(1), DataType::kI64), c.Ints({-1})});
  return Move(n, "GatherND", {tuples}, {{"batch_dims", batch}});
}

absl::Status GatherNd(Converter& c) {
  TfliteNode n(c);
  return Move(n, "GatherND", {n.Cast(n.Raw(1), DataType::kI64)});
}

// Updates of one place add up.
absl::Status ScatterNd(Converter& c) {
  TfliteNode n(c);
  const DataType dtype = c.type(c.in(1)).dtype;
  const ValueId zeros = n.Emit("Expand", {c.Scalar(dtype, 0), n.Sizes(2)});
  return n.FinishRaw(n.Emit("ScatterND", {zeros, n.Cast(n.Raw(0), DataType::kI64), n.Raw(1)},
                            {{"reduction", std::string("add")}}));
}

absl::Status SparseToDense(Converter& c) {
  TfliteNode n(c);
  QUENCH_RETURN_IF_ERROR(c.RequireRank(0));
  ValueId places = n.Cast(n.Raw(0), DataType::kI64), values = n.Raw(2);
  const int rank = c.Rank(places);
  if (rank == 0) places = n.Emit("Unsqueeze", {places, c.Ints({0, 1})});
  if (rank == 1) places = n.Emit("Unsqueeze", {places, c.Ints({1})});
  if (c.Rank(values) == 0) {
    const ValueId count =
        n.Emit("Slice", {ShapeOf(n, places), c.Ints({0}), c.Ints({1}), c.Ints({0})});
    values = n.Emit("Expand", {values, count});
  }
  const ValueId dense = n.Emit("Expand", {n.Raw(3), n.Sizes(1)});
  return n.FinishRaw(n.Emit("ScatterND", {dense, places, values}));
}

absl::Status DynamicUpdateSlice(Converter& c) {
  TfliteNode n(c);
  const Type whole = c.type(c.in(0));
  const Type part = c.type(c.in(1));
  if (!whole.ranked || !whole.is_static() || !part.ranked || !part.is_static())
    return c.Unsupported("its sizes are known only at run time");
  if (whole.rank() != part.rank())
    return c.Error(
        fmt::format("updates a tensor of rank {} by one of rank {}", whole.rank(), part.rank()));
  constexpr int64_t kMostPlaces = int64_t{1} << 24;
  const auto rank = static_cast<int64_t>(whole.rank());
  std::vector<int64_t> shape, limits;
  int64_t count = 1;
  for (int64_t i = 0; i < rank; ++i) {
    shape.push_back(part.dims[static_cast<size_t>(i)].value());
    limits.push_back(whole.dims[static_cast<size_t>(i)].value() - shape.back());
    count *= shape.back();
    if (count > kMostPlaces) break;
  }
  if (count * rank > kMostPlaces) return c.Unsupported("it updates more than 16 M places");
  // The place of each element of the update, from which the beginning is counted.
  std::vector<int64_t> places(static_cast<size_t>(count * rank));
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    for (int64_t axis = rank; axis-- > 0;) {
      places[static_cast<size_t>(i * rank + axis)] = rest % shape[static_cast<size_t>(axis)];
      rest /= shape[static_cast<size_t>(axis)];
    }
  }
  shape.push_back(rank);
  const ValueId grid = c.AddConstant(Tensor::Of(DataType::kI64, shape, places));
  // A beginning from which the update would leave the tensor moves back.
  const ValueId begin =
      n.Emit("Max", {n.Emit("Min", {n.Sizes(2), c.Ints(limits)}), c.Scalar(DataType::kI64, 0)});
  return n.FinishRaw(n.Emit("ScatterND", {n.Raw(0), n.Emit("Add", {grid, begin}), n.Raw(1)}));
}

absl::Status Tile(Converter& c) {
  TfliteNode n(c);
  return Move(n, "Tile", {n.Sizes(1)});
}

absl::Status BroadcastTo(Converter& c) {
  TfliteNode n(c);
  return Move(n, "Expand", {n.Sizes(1)});
}

// The shape that two shapes broadcast to: sizes of 1 become the other's.
absl::Status BroadcastArgs(Converter& c) {
  TfliteNode n(c);
  std::vector<int64_t> lengths;
  for (const int input : {0, 1}) {
    const Type& shape = c.type(c.in(input));
    if (!shape.ranked || shape.rank() != 1 || !shape.dims[0].is_static())
      return c.Unsupported(fmt::format("the length of the shape in input {} is not known", input));
    lengths.push_back(shape.dims[0].value());
  }
  const int64_t rank = std::max(lengths[0], lengths[1]);
  if (rank > kMaxRank) return c.Error(fmt::format("has a shape of {} sizes", rank));
  const auto padded = [&](int input) {
    const int64_t missing = rank - lengths[static_cast<size_t>(input)];
    const std::vector<int64_t> ones(static_cast<size_t>(missing), 1);
    const ValueId shape = n.Sizes(input);
    return ones.empty() ? shape : n.Emit("Concat", {c.Ints(ones), shape}, {{"axis", int64_t{0}}});
  };
  const ValueId a = padded(0), b = padded(1);
  const ValueId one = n.Emit("Equal", {a, c.Scalar(DataType::kI64, 1)});
  return n.Finish(n.Emit("Where", {one, b, a}));
}

// Fills between the elements of each axis; behind the last there are none.
absl::Status Dilate(Converter& c) {
  TfliteNode n(c);
  const Type type = c.type(c.in(0));
  if (!type.ranked || !type.is_static())
    return c.Unsupported("its sizes are known only at run time");
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, n.RequireInts(1, "the dilations"));
  const auto rank = static_cast<size_t>(type.rank());
  if (steps.size() != rank)
    return c.Error(fmt::format("has {} dilations for rank {}", steps.size(), rank));
  std::vector<int64_t> apart, pads(4 * rank, 0), together, ends, axes;
  for (size_t i = 0; i < rank; ++i) {
    const int64_t size = type.dims[i].value();
    if (steps[i] < 1 || size < 1 || steps[i] > kMaxSize / size)
      return c.Error(fmt::format("dilates an axis of {} by {}", size, steps[i]));
    apart.insert(apart.end(), {size, 1});
    pads[2 * rank + 2 * i + 1] = steps[i] - 1;
    together.push_back(size * steps[i]);
    ends.push_back(together.back() - steps[i] + 1);
    axes.push_back(static_cast<int64_t>(i));
  }
  const ValueId spread = n.Emit("Reshape", {n.Raw(0), c.Ints(apart)});
  const ValueId filled = n.Emit("Pad", {spread, c.Ints(pads), n.Raw(2)});
  const ValueId whole = n.Emit("Reshape", {filled, c.Ints(together)});
  const std::vector<int64_t> begins(rank, 0);
  return n.FinishRaw(n.Emit("Slice", {whole, c.Ints(begins), c.Ints(ends), c.Ints(axes)}));
}

absl::Status Fill(Converter& c) {
  TfliteNode n(c);
  return n.FinishRaw(n.Emit("Expand", {n.Raw(1), n.Sizes(0)}));
}

absl::Status Range(Converter& c) {
  TfliteNode n(c);
  return n.FinishRaw(n.Emit("Range", {n.Raw(0), n.Raw(1), n.Raw(2)}));
}

absl::Status Shape(Converter& c) {
  TfliteNode n(c);
  return n.Finish(ShapeOf(n, n.Raw(0)));
}

absl::Status Rank(Converter& c) {
  TfliteNode n(c);
  return n.Finish(n.Emit("Size", {ShapeOf(n, n.Raw(0))}));
}

absl::Status ZerosLike(Converter& c) {
  TfliteNode n(c);
  return n.FinishRaw(n.Emit("Expand", {c.Scalar(c.type(c.in(0)).dtype, 0), ShapeOf(n, n.Raw(0))}));
}

absl::Status Reverse(Converter& c) {
  TfliteNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.RequireInts(1, "the axes"));
  const size_t count = axes.size();
  return Move(n, "Slice",
              {c.Ints(std::vector<int64_t>(count, -1)), c.Ints(std::vector<int64_t>(count, -kEnd)),
               c.Ints(axes), c.Ints(std::vector<int64_t>(count, -1))});
}

absl::Status ReverseSequence(Converter& c) {
  TfliteNode n(c);
  QUENCH_RETURN_IF_ERROR(c.RequireRank(0));
  const int rank = c.Rank(c.in(0));
  QUENCH_ASSIGN_OR_RETURN(const int64_t time, AxisOf(n, n.Int("seq_dim"), rank));
  QUENCH_ASSIGN_OR_RETURN(const int64_t batch, AxisOf(n, n.Int("batch_dim"), rank));
  // ReverseSequence has both axes in front.
  std::vector<int64_t> perm = {batch, time}, back(static_cast<size_t>(rank));
  for (int64_t axis = 0; axis < rank; ++axis) {
    if (axis != batch && axis != time) perm.push_back(axis);
  }
  if (static_cast<int>(perm.size()) != rank) return c.Error("its two axes are the same");
  for (size_t i = 0; i < perm.size(); ++i)
    back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  const ValueId x = n.Emit("ReverseSequence", {n.Transpose(n.Raw(0), perm), n.Sizes(1)},
                           {{"batch_axis", int64_t{0}}, {"time_axis", int64_t{1}}});
  return n.FinishRaw(n.Transpose(x, back));
}

absl::Status OneHot(Converter& c) {
  TfliteNode n(c);
  const auto single = [&](int input) { return n.Emit("Reshape", {n.Raw(input), c.Ints({1})}); };
  const ValueId values = n.Emit("Concat", {single(3), single(2)}, {{"axis", int64_t{0}}});
  // A place below 0 is none; the canonical operator counts it from the end.
  ValueId places = n.Raw(0);
  const DataType dtype = c.type(places).dtype;
  if (IsInteger(dtype) && dtype != DataType::kU8) {
    const ValueId below = n.Emit("Less", {places, c.Scalar(dtype, 0)});
    const ValueId behind = n.Cast(n.Emit("Reshape", {n.Raw(1), c.Ints({})}), dtype);
    places = n.Emit("Where", {below, behind, places});
  }
  return n.FinishRaw(n.Emit("OneHot", {places, n.Raw(1), values}, {{"axis", n.Int("axis")}}));
}

absl::Status TopK(Converter& c) {
  TfliteNode n(c);
  const ValueId count = n.Emit("Reshape", {n.Sizes(1), c.Ints({1})});
  const std::vector<ValueId> found =
      c.EmitMany("TopK", {n.Raw(0), count}, 2, {{"axis", int64_t{-1}}});
  const DataType places = c.declared(1).dtype;
  return c.FinalValues(
      {found[0], n.Cast(found[1], places == DataType::kUndefined ? DataType::kI32 : places)});
}

absl::Status Unique(Converter& c) {
  TfliteNode n(c);
  const std::vector<ValueId> found = c.EmitMany("Unique", {n.Raw(0)}, 3, {{"sorted", int64_t{0}}});
  const DataType places = c.declared(1).dtype;
  return c.FinalValues(
      {found[0], n.Cast(found[2], places == DataType::kUndefined ? DataType::kI32 : places)});
}

// Places of what is not 0, a row each.
absl::Status Where(Converter& c) {
  TfliteNode n(c);
  return n.FinishRaw(
      n.Emit("Transpose", {n.Emit("NonZero", {n.Raw(0)})}, {{"perm", std::vector<int64_t>{1, 0}}}));
}

absl::Status MatrixDiag(Converter& c) {
  TfliteNode n(c);
  QUENCH_RETURN_IF_ERROR(c.RequireRank(0));
  const Type type = c.type(c.in(0));
  if (type.rank() == 0 || !type.dims.back().is_static())
    return c.Unsupported("the length of the diagonal is known only at run time");
  const int64_t size = type.dims.back().value();
  if (size > kMaxDiagonal) return c.Unsupported(fmt::format("a diagonal of {} elements", size));
  const ValueId rows = n.Emit("Unsqueeze", {n.Raw(0), c.Ints({-2})});
  return n.FinishRaw(n.Emit("Where", {Diagonal(c, size, size), rows, c.Scalar(type.dtype, 0)}));
}

absl::Status MatrixSetDiag(Converter& c) {
  TfliteNode n(c);
  QUENCH_RETURN_IF_ERROR(c.RequireRank(0));
  const Type type = c.type(c.in(0));
  const size_t rank = type.dims.size();
  if (rank < 2 || !type.dims[rank - 1].is_static() || !type.dims[rank - 2].is_static())
    return c.Unsupported("the sizes of the matrix are known only at run time");
  const int64_t rows = type.dims[rank - 2].value(), columns = type.dims[rank - 1].value();
  if (rows > kMaxDiagonal || columns > kMaxDiagonal)
    return c.Unsupported(fmt::format("a matrix of {} by {}", rows, columns));
  // Entry i of the diagonal stands in row i: broadcast along the shorter side.
  const ValueId values = n.Emit("Unsqueeze", {n.Raw(1), c.Ints({rows <= columns ? -1 : -2})});
  return n.FinishRaw(n.Emit("Where", {Diagonal(c, rows, columns), values, n.Raw(0)}));
}

// ---- Blocks of space in the batch ----

namespace {

struct Blocks {
  std::vector<int64_t> sizes;         // of blocks, for each spatial axis
  std::vector<int64_t> begins, ends;  // padding or cropping
  std::vector<int64_t> spatial;       // sizes of the spatial axes of the input
  std::vector<int64_t> rest;          // sizes behind them
};

absl::StatusOr<Blocks> BlocksOf(const TfliteNode& n) {
  Converter& c = n.c;
  Blocks blocks;
  QUENCH_RETURN_IF_ERROR(c.RequireRank(0));
  QUENCH_ASSIGN_OR_RETURN(blocks.sizes, n.RequireInts(1, "the size of blocks"));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> edges, n.RequireInts(2, "the edges"));
  const Type type = c.type(c.in(0));
  if (edges.size() != 2 * blocks.sizes.size() || type.dims.size() < blocks.sizes.size() + 1)
    return c.Error("its blocks and edges do not fit its input");
  for (size_t i = 1; i < type.dims.size(); ++i) {
    if (!type.dims[i].is_static()) return c.Unsupported("its sizes are known only at run time");
    (i <= blocks.sizes.size() ? blocks.spatial : blocks.rest).push_back(type.dims[i].value());
  }
  for (size_t i = 0; i < blocks.sizes.size(); ++i) {
    if (blocks.sizes[i] <= 0) return c.Error("a block has no elements");
    blocks.begins.push_back(edges[2 * i]);
    blocks.ends.push_back(edges[2 * i + 1]);
  }
  return blocks;
}

}  // namespace

absl::Status SpaceToBatch(Converter& c) {
  TfliteNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const Blocks blocks, BlocksOf(n));
  const size_t count = blocks.sizes.size(), rest = blocks.rest.size();
  std::vector<int64_t> pads(2 * (1 + count + rest), 0);
  std::vector<int64_t> split = {0}, perm, joined = {-1};
  for (size_t i = 0; i < count; ++i) {
    pads[1 + i] = blocks.begins[i];
    pads[2 + count + rest + i] = blocks.ends[i];
    const int64_t padded = blocks.spatial[i] + blocks.begins[i] + blocks.ends[i];
    if (padded % blocks.sizes[i] != 0)
      return c.Error(fmt::format("{} elements do not make blocks of {}", padded, blocks.sizes[i]));
    split.insert(split.end(), {padded / blocks.sizes[i], blocks.sizes[i]});
    perm.push_back(static_cast<int64_t>(2 + 2 * i));
    joined.push_back(padded / blocks.sizes[i]);
  }
  perm.push_back(0);
  for (size_t i = 0; i < count; ++i) perm.push_back(static_cast<int64_t>(1 + 2 * i));
  for (size_t i = 0; i < rest; ++i) {
    perm.push_back(static_cast<int64_t>(1 + 2 * count + i));
    split.push_back(blocks.rest[i]);
    joined.push_back(blocks.rest[i]);
  }
  const TensorScale scale = ScaleOf(c.node(), "input", 0);
  const double zero = scale.zero.empty() ? 0 : static_cast<double>(scale.zero[0]);
  ValueId x = n.Emit("Pad", {n.Raw(0), c.Ints(pads), c.Scalar(c.type(c.in(0)).dtype, zero)});
  x = n.Transpose(n.Emit("Reshape", {x, c.Ints(split)}), perm);
  return n.FinishRaw(n.Emit("Reshape", {x, c.Ints(joined)}));
}

absl::Status BatchToSpace(Converter& c) {
  TfliteNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const Blocks blocks, BlocksOf(n));
  const size_t count = blocks.sizes.size(), rest = blocks.rest.size();
  std::vector<int64_t> split = blocks.sizes, perm = {static_cast<int64_t>(count)}, joined = {-1};
  std::vector<int64_t> axes, begins, ends;
  split.push_back(-1);
  for (size_t i = 0; i < count; ++i) {
    split.push_back(blocks.spatial[i]);
    perm.insert(perm.end(), {static_cast<int64_t>(count + 1 + i), static_cast<int64_t>(i)});
    const int64_t whole = blocks.spatial[i] * blocks.sizes[i];
    joined.push_back(whole);
    axes.push_back(static_cast<int64_t>(1 + i));
    begins.push_back(blocks.begins[i]);
    ends.push_back(whole - blocks.ends[i]);
  }
  for (size_t i = 0; i < rest; ++i) {
    split.push_back(blocks.rest[i]);
    perm.push_back(static_cast<int64_t>(2 * count + 1 + i));
    joined.push_back(blocks.rest[i]);
  }
  const ValueId x = n.Transpose(n.Emit("Reshape", {n.Raw(0), c.Ints(split)}), perm);
  const ValueId whole = n.Emit("Reshape", {x, c.Ints(joined)});
  return n.FinishRaw(n.Emit("Slice", {whole, c.Ints(begins), c.Ints(ends), c.Ints(axes)}));
}

}  // namespace quench::importer::tflite_ops
