// Custom operators that models of others use.
#include <limits>

#include "common/base/status.h"
#include "services/importer/tflite/converters.h"

namespace quench::importer::tflite_ops {
namespace {

// Column `i` of the last axis of `x`, which it keeps with size 1.
ValueId Column(TfliteNode& n, ValueId x, int64_t i) {
  Converter& c = n.c;
  return n.Emit("Slice", {x, c.Ints({i}), c.Ints({i + 1}), c.Ints({-1})});
}

// Corners [boxes, 4] as (top, left, bottom, right), of codes relative to anchors: both are (y, x,
// height, width) of centres.
ValueId DecodeBoxes(TfliteNode& n, ValueId codes, ValueId anchors) {
  const auto scaled = [&](int64_t i, const char* scale) {
    return n.Emit("Div", {Column(n, codes, i), n.c.Scalar(DataType::kF32, n.Float(scale, 1))});
  };
  std::vector<ValueId> low, high;
  for (const int64_t axis : {0, 1}) {
    const ValueId size = Column(n, anchors, axis + 2);
    const ValueId centre =
        n.Emit("Add", {n.Emit("Mul", {scaled(axis, axis == 0 ? "y_scale" : "x_scale"), size}),
                       Column(n, anchors, axis)});
    const ValueId extent =
        n.Emit("Mul", {n.Emit("Exp", {scaled(axis + 2, axis == 0 ? "h_scale" : "w_scale")}), size});
    const ValueId half = n.Emit("Mul", {extent, n.c.Scalar(DataType::kF32, 0.5)});
    low.push_back(n.Emit("Sub", {centre, half}));
    high.push_back(n.Emit("Add", {centre, half}));
  }
  low.insert(low.end(), high.begin(), high.end());
  return n.Emit("Concat", low, {{"axis", int64_t{-1}}});
}

// Boxes [boxes, 4] and scores [boxes, classes] without the background, whose columns are the first.
struct Candidates {
  ValueId boxes, scores;
};

// Rows (batch, class, box): of each class in `scores` [1, classes, boxes] at most `limit`, without
// those that a better one overlaps.
ValueId Suppressed(TfliteNode& n, ValueId boxes, ValueId scores, int64_t limit) {
  Converter& c = n.c;
  const auto number = [&](const char* name) {
    return c.AddConstant(
        Tensor::Of(DataType::kF32, {1}, std::vector<float>{static_cast<float>(n.Float(name))}));
  };
  return n.Emit("NonMaxSuppression",
                {n.Emit("Unsqueeze", {boxes, c.Ints({0})}), scores, c.Ints({limit}),
                 number("nms_iou_threshold"), number("nms_score_threshold")});
}

// Column `i` of those rows, as a list.
ValueId ListOf(TfliteNode& n, ValueId rows, int64_t i) {
  return n.Emit("Squeeze", {Column(n, rows, i), n.c.Ints({1})});
}

// Each box with its best class.
absl::Status OneClassOfEachBox(TfliteNode& n, const Candidates& from, int64_t most) {
  Converter& c = n.c;
  const ValueId best = n.Emit("ReduceMax", {from.scores, c.Ints({-1})}, {{"keepdims", int64_t{0}}});
  const ValueId best_class =
      n.Emit("ArgMax", {from.scores}, {{"axis", int64_t{-1}}, {"keepdims", int64_t{0}}});
  const ValueId found =
      Suppressed(n, from.boxes, n.Emit("Unsqueeze", {best, c.Ints({0, 1})}), most);
  const ValueId places = ListOf(n, found, 2);
  const ValueId count = n.Emit("Size", {places});
  const ValueId missing = n.Emit("Sub", {c.Ints({most}), n.Emit("Reshape", {count, c.Ints({1})})});
  const auto padded = [&](ValueId rows, bool is_list) {
    const ValueId pads =
        is_list ? n.Emit("Concat", {c.Ints({0}), missing}, {{"axis", int64_t{0}}})
                : n.Emit("Concat", {c.Ints({0, 0}), missing, c.Ints({0})}, {{"axis", int64_t{0}}});
    return n.Emit("Reshape", {n.Emit("Pad", {rows, pads}),
                              is_list ? c.Ints({1, most}) : c.Ints({1, most, 4})});
  };
  const auto chosen = [&](ValueId all) {
    return n.Emit("Gather", {all, places}, {{"axis", int64_t{0}}});
  };
  return c.FinalValues({padded(chosen(from.boxes), false),
                        padded(n.Cast(chosen(best_class), DataType::kF32), true),
                        padded(chosen(best), true),
                        n.Emit("Reshape", {n.Cast(count, DataType::kF32), c.Ints({1})})});
}

// Each class by itself, then the best of all.
absl::Status EachClass(TfliteNode& n, const Candidates& from, int64_t most) {
  Converter& c = n.c;
  const int64_t limit = n.Int("detections_per_class", 100);
  if (limit <= 0) return c.Error(fmt::format("has {} detections of a class at most", limit));
  const ValueId scores = n.Emit("Unsqueeze", {n.Transpose(from.scores, {1, 0}), c.Ints({0})});
  const ValueId found = Suppressed(n, from.boxes, scores, limit);
  const ValueId count = n.Emit("Size", {ListOf(n, found, 2)});
  // Behind those that were found, `most` that are worse than any.
  const ValueId none = c.Scalar(DataType::kF32, std::numeric_limits<float>::lowest());
  const ValueId list =
      n.Emit("Pad", {n.Emit("GatherND", {scores, found}), c.Ints({0, most}), none});
  const std::vector<ValueId> best = c.EmitMany("TopK", {list, c.Ints({most})}, 2);
  const ValueId is_one = n.Emit("Less", {best[1], count});
  const auto chosen = [&](int64_t column) {
    const ValueId all = n.Emit("Pad", {ListOf(n, found, column), c.Ints({0, most})});
    return n.Emit("Gather", {all, best[1]}, {{"axis", int64_t{0}}});
  };
  const auto row = [&](ValueId values, ValueId keep, std::vector<int64_t> dims) {
    const ValueId kept = n.Emit("Where", {keep, values, c.Scalar(DataType::kF32, 0)});
    return n.Emit("Reshape", {kept, c.Ints(std::move(dims))});
  };
  const ValueId boxes = n.Emit("Gather", {from.boxes, chosen(2)}, {{"axis", int64_t{0}}});
  const ValueId total = n.Emit("Min", {count, c.Scalar(DataType::kI64, static_cast<double>(most))});
  return c.FinalValues({row(boxes, n.Emit("Unsqueeze", {is_one, c.Ints({1})}), {1, most, 4}),
                        row(n.Cast(chosen(1), DataType::kF32), is_one, {1, most}),
                        row(best[0], is_one, {1, most}),
                        n.Emit("Reshape", {n.Cast(total, DataType::kF32), c.Ints({1})})});
}

}  // namespace

// Boxes of detections by their scores, decoded, in `max_detections` rows of which those behind the
// last are 0. As lite/kernels/detection_postprocess.cc of TensorFlow does.
absl::Status DetectionPostProcess(Converter& c) {
  TfliteNode n(c);
  const bool each_class = n.Flag("use_regular_nms");
  if (!each_class && n.Int("max_classes_per_detection", 1) != 1)
    return c.Unsupported("several classes of one box (max_classes_per_detection)");
  QUENCH_RETURN_IF_ERROR(c.RequireRank(1));
  if (c.Rank(c.in(1)) != 3) return c.Error("its class predictions are not a tensor of rank 3");
  const Dim width = c.type(c.in(1)).dims.back();
  const int64_t classes = n.Int("num_classes"), most = n.Int("max_detections");
  if (!width.is_static() || width.value() < classes || classes <= 0 || most <= 0)
    return c.Error(fmt::format("has {} classes and {} detections at most", classes, most));

  const ValueId codes = n.Emit("Squeeze", {n.Real(0), c.Ints({0})});
  const Candidates from = {
      DecodeBoxes(n, codes, n.Real(2)),
      n.Emit("Slice", {n.Emit("Squeeze", {n.Real(1), c.Ints({0})}),
                       c.Ints({width.value() - classes}), c.Ints({kEnd}), c.Ints({-1})})};
  return each_class ? EachClass(n, from, most) : OneClassOfEachBox(n, from, most);
}

}  // namespace quench::importer::tflite_ops
