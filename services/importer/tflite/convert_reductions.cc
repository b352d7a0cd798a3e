// Reductions along axes.
#include <algorithm>

#include "common/base/status.h"
#include "services/importer/tflite/converters.h"

namespace quench::importer::tflite_ops {
namespace {

const char* ReductionOf(const std::string& op) {
  if (op == "MEAN") return "ReduceMean";
  if (op == "SUM") return "ReduceSum";
  if (op == "REDUCE_PROD") return "ReduceProd";
  if (op == "REDUCE_MAX" || op == "REDUCE_ANY") return "ReduceMax";
  return "ReduceMin";
}

// Without axes there is nothing to reduce.
ValueId ReduceAlong(TfliteNode& n, const char* op, ValueId x) {
  const std::optional<std::vector<int64_t>> axes = n.KnownInts(1);
  if (axes && axes->empty()) return x;
  ValueId list = axes ? n.c.Ints(*axes) : n.Sizes(1);
  if (!axes && n.c.Rank(list) == 0) list = n.Emit("Unsqueeze", {list, n.c.Ints({0})});
  return n.Emit(op, {x, list}, {{"keepdims", int64_t{n.Flag("keep_dims")}}});
}

}  // namespace

absl::Status Reduce(Converter& c) {
  TfliteNode n(c);
  return n.Finish(ReduceAlong(n, ReductionOf(c.node().op), n.Real(0)));
}

absl::Status ReduceBool(Converter& c) {
  TfliteNode n(c);
  const ValueId numbers = n.Cast(n.Raw(0), DataType::kI32);
  return n.FinishRaw(n.Cast(ReduceAlong(n, ReductionOf(c.node().op), numbers), DataType::kBool));
}

absl::Status ArgMinMax(Converter& c) {
  TfliteNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.RequireInt(1, "the axis"));
  const char* op = c.node().op == "ARG_MAX" ? "ArgMax" : "ArgMin";
  const ValueId place = n.Emit(op, {n.Raw(0)}, {{"axis", axis}, {"keepdims", int64_t{0}}});
  return n.Finish(place);
}

absl::Status CumSum(Converter& c) {
  TfliteNode n(c);
  return n.Finish(n.Emit("CumSum", {n.Real(0), n.Raw(1)},
                         {{"exclusive", n.Int("exclusive")}, {"reverse", n.Int("reverse")}}));
}

// Boxes that overlap none better, padded to as many as were asked for, and how many there are.
absl::Status NonMaxSuppression(Converter& c) {
  TfliteNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const int64_t most, n.RequireInt(2, "the number of boxes"));
  const bool scores_too = c.node().op == "NON_MAX_SUPPRESSION_V5";
  if (scores_too && c.has(5)) {
    const Tensor* sigma = c.constant(c.in(5));
    if (sigma == nullptr || sigma->size() != 1 || sigma->FloatAt(0) != 0)
      return c.Unsupported("soft suppression (soft_nms_sigma is not 0)");
  }
  const ValueId boxes = n.Emit("Unsqueeze", {n.Real(0), c.Ints({0})});
  const ValueId scores = n.Emit("Unsqueeze", {n.Real(1), c.Ints({0, 1})});
  const auto single = [&](int input) { return n.Emit("Reshape", {n.Real(input), c.Ints({1})}); };
  const ValueId found =
      n.Emit("NonMaxSuppression", {boxes, scores, c.Ints({most}), single(3), single(4)});
  // Rows are (batch, class, box).
  const ValueId places = n.Emit(
      "Squeeze", {n.Emit("Slice", {found, c.Ints({2}), c.Ints({3}), c.Ints({1})}), c.Ints({1})});
  const ValueId count = n.Emit("Size", {places});
  const ValueId missing = n.Emit("Sub", {c.Ints({most}), n.Emit("Reshape", {count, c.Ints({1})})});
  const ValueId pads = n.Emit("Concat", {c.Ints({0}), missing}, {{"axis", int64_t{0}}});
  const auto padded = [&](ValueId list) {
    return n.Emit("Reshape", {n.Emit("Pad", {list, pads}), c.Ints({most})});
  };
  std::vector<ValueId> results = {n.Cast(padded(places), DataType::kI32)};
  if (scores_too) results.push_back(padded(n.Emit("Gather", {n.Real(1), places})));
  results.push_back(n.Cast(count, DataType::kI32));
  return c.FinalValues(results);
}

}  // namespace quench::importer::tflite_ops
