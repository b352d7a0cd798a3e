// Operators that move, select and count elements, where TensorFlow Lite has none that does the same.
#include <algorithm>
#include <numeric>

#include "common/base/status.h"
#include "services/importer/tensorflow/converters.h"

namespace quench::importer::tensorflow_ops {
namespace {

absl::StatusOr<int64_t> IntOf(Converter& c, int input, const char* what) {
  return TfNode(c).RequireInt(input, what);
}

absl::Status Join(Converter& c, std::vector<ValueId> parts, int64_t axis) {
  if (parts.empty()) return c.Error("joins nothing");
  return c.Final("Concat", std::move(parts), {{"axis", axis}});
}

constexpr int64_t kMaxList = 1 << 20;

}  // namespace

absl::Status ConcatV2(Converter& c) {
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 2));
  const int last = static_cast<int>(c.inputs().size()) - 1;
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, IntOf(c, last, "the axis"));
  return Join(c, {c.inputs().begin(), c.inputs().end() - 1}, axis);
}

absl::Status ConcatV1(Converter& c) {
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 2));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, IntOf(c, 0, "the axis"));
  return Join(c, {c.inputs().begin() + 1, c.inputs().end()}, axis);
}

absl::Status ParallelConcat(Converter& c) { return Join(c, c.inputs(), 0); }

absl::Status GatherV2(Converter& c) {
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 3));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, IntOf(c, 2, "the axis"));
  return ConvertAsTflite(c, "GATHER", {c.in(0), c.in(1)}, {{"axis", axis}});
}

absl::Status MirrorPad(Converter& c) {
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 2));
  const bool symmetric = c.node().String("mode", "") == "SYMMETRIC";
  return ConvertAsTflite(c, "MIRROR_PAD", c.inputs(),
                         {{"mode", int64_t{symmetric ? tflite::MirrorPadMode_SYMMETRIC
                                                     : tflite::MirrorPadMode_REFLECT}}});
}

namespace {

std::vector<int32_t> IntsOf(const std::vector<int64_t>& values) {
  std::vector<int32_t> ints;
  for (const int64_t value : values) ints.push_back(static_cast<int32_t>(value));
  return ints;
}

// Sizes that are known are constants: paddings and shapes of the model are computed from them.
ValueId ShapeOf(TfNode& n, ValueId id) {
  Converter& c = n.c;
  const auto dtype = static_cast<DataType>(n.Int("out_type", static_cast<int64_t>(DataType::kI32)));
  const Type& type = c.type(id);
  if (!type.is_static() || !c.types_are_final()) return n.Cast(n.Emit("Shape", {id}), dtype);
  std::vector<int64_t> dims;
  for (const Dim dim : type.dims) dims.push_back(dim.value());
  if (dtype == DataType::kI64) return c.Ints(dims);
  return c.AddConstant(
      Tensor::Of(DataType::kI32, {static_cast<int64_t>(dims.size())}, IntsOf(dims)));
}

// A constant, or a value: a copy of a constant would be none.
absl::Status FinishKnown(Converter& c, ValueId id) {
  const Tensor* constant = c.constant(id);
  return constant != nullptr ? c.FinalConstant(*constant) : Finish(c, id);
}

}  // namespace

absl::Status Shape(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 1));
  return FinishKnown(c, ShapeOf(n, c.in(0)));
}

absl::Status ShapeN(Converter& c) {
  TfNode n(c);
  std::vector<ValueId> shapes;
  for (const ValueId id : c.inputs()) shapes.push_back(ShapeOf(n, id));
  return c.FinalValues(shapes);
}

absl::Status Size(Converter& c) {
  TfNode n(c);
  const auto dtype = static_cast<DataType>(n.Int("out_type", static_cast<int64_t>(DataType::kI32)));
  const ValueId sizes = ShapeOf(n, c.in(0));
  if (c.constant(sizes) == nullptr) return Finish(c, n.Cast(n.Emit("Size", {c.in(0)}), dtype));
  return Finish(c, n.Cast(n.Emit("ReduceProd", {sizes}, {{"keepdims", int64_t{0}}}), dtype));
}

absl::Status OnesLike(Converter& c) {
  TfNode n(c);
  return Finish(c,
                n.Emit("Expand", {c.Scalar(c.type(c.in(0)).dtype, 1), n.Emit("Shape", {c.in(0)})}));
}

absl::Status LinSpace(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 3));
  QUENCH_ASSIGN_OR_RETURN(const int64_t count, n.RequireInt(2, "the number of elements"));
  if (count < 1 || count > kMaxList) return c.Error(fmt::format("has {} elements", count));
  std::vector<double> shares;
  for (int64_t i = 0; i < count; ++i)
    shares.push_back(count == 1 ? 0 : static_cast<double>(i) / static_cast<double>(count - 1));
  const std::vector<float> floats(shares.begin(), shares.end());
  const ValueId share =
      n.Cast(c.AddConstant(Tensor::Of(DataType::kF32, {count}, floats)), c.type(c.in(0)).dtype);
  const ValueId span = n.Emit("Sub", {c.in(1), c.in(0)});
  return Finish(c, n.Emit("Add", {c.in(0), n.Emit("Mul", {share, span})}));
}

// Place i of the result says where i stands.
absl::Status InvertPermutation(Converter& c) {
  TfNode n(c);
  const ValueId order = c.in(0);
  const DataType dtype = c.type(order).dtype;
  const ValueId size = n.Cast(n.Emit("Size", {order}), dtype);
  const ValueId count = n.Emit("Range", {c.Scalar(dtype, 0), size, c.Scalar(dtype, 1)});
  const ValueId places = n.Emit("Unsqueeze", {n.Cast(order, DataType::kI64), c.Ints({-1})});
  return Finish(c, n.Emit("ScatterND", {order, places, count}));
}

// Keeps `lower` diagonals below and `upper` above the main one; negative: all.
absl::Status MatrixBandPart(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 3));
  QUENCH_ASSIGN_OR_RETURN(const int64_t lower, n.RequireInt(1, "the number of diagonals"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t upper, n.RequireInt(2, "the number of diagonals"));
  const auto part = [&](ValueId id, int64_t diagonal, bool up) {
    return n.Emit("Trilu", {id, c.Scalar(DataType::kI64, static_cast<double>(diagonal))},
                  {{"upper", int64_t{up}}});
  };
  ValueId x = c.in(0);
  if (upper >= 0) x = part(x, upper, false);
  if (lower >= 0) x = part(x, -lower, true);
  return Finish(c, x == c.in(0) ? n.Emit("Identity", {x}) : x);
}

absl::Status TensorScatter(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 3));
  const bool adds = c.node().op == "TensorScatterAdd";
  return Finish(c, n.Emit("ScatterND", {c.in(0), n.Cast(c.in(1), DataType::kI64), c.in(2)},
                          {{"reduction", std::string(adds ? "add" : "none")}}));
}

absl::Status Roll(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 3));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> shifts, n.RequireInts(1, "the shifts"));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.RequireInts(2, "the axes"));
  const Type type = c.type(c.in(0));
  if (shifts.size() != axes.size()) return c.Error("its shifts and axes are not as many");
  ValueId x = c.in(0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t rank = type.rank(), axis = axes[i] < 0 ? axes[i] + rank : axes[i];
    if (axis < 0 || axis >= rank)
      return c.Error(fmt::format("axis {} does not exist, the rank is {}", axes[i], rank));
    const Dim size = type.dims[static_cast<size_t>(axis)];
    if (!size.is_static()) return c.Unsupported("its sizes are known only at run time");
    if (size.value() == 0) continue;
    const int64_t shift = ((shifts[i] % size.value()) + size.value()) % size.value();
    if (shift == 0) continue;
    const int64_t at = size.value() - shift;
    const auto part = [&](int64_t from, int64_t to) {
      return n.Emit("Slice", {x, c.Ints({from}), c.Ints({to}), c.Ints({axis})});
    };
    x = n.Emit("Concat", {part(at, kEnd), part(0, at)}, {{"axis", axis}});
  }
  return Finish(c, x == c.in(0) ? n.Emit("Identity", {x}) : x);
}

namespace {

// The operators of version 1 have one size of blocks, for both axes.
absl::Status BlocksV1(Converter& c, const char* op) {
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 2));
  const int64_t block = c.node().Int("block_size", 0);
  return ConvertAsTflite(c, op, {c.in(0), c.Ints({block, block}), c.in(1)});
}

}  // namespace

absl::Status SpaceToBatchV1(Converter& c) { return BlocksV1(c, "SPACE_TO_BATCH_ND"); }
absl::Status BatchToSpaceV1(Converter& c) { return BlocksV1(c, "BATCH_TO_SPACE_ND"); }

absl::Status CumProd(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 2));
  return c.Final("CumProd", {c.in(0), n.Sizes(1)},
                 {{"exclusive", n.Int("exclusive")}, {"reverse", n.Int("reverse")}});
}

// Boxes that overlap none better, as many as there are.
absl::Status NonMaxSuppressionV3(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 4));
  const ValueId boxes = n.Emit("Unsqueeze", {c.in(0), c.Ints({0})});
  const ValueId scores = n.Emit("Unsqueeze", {c.in(1), c.Ints({0, 1})});
  const auto single = [&](ValueId id) { return n.Emit("Reshape", {id, c.Ints({1})}); };
  const ValueId found = n.Emit(
      "NonMaxSuppression",
      {boxes, scores, single(n.Sizes(2)), single(c.in(3)), c.has(4) ? single(c.in(4)) : kNone});
  const ValueId places = n.Emit("Slice", {found, c.Ints({2}), c.Ints({3}), c.Ints({1})});
  return Finish(c, n.Cast(n.Emit("Squeeze", {places, c.Ints({1})}), DataType::kI32));
}

}  // namespace quench::importer::tensorflow_ops
