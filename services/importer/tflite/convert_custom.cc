// Custom operators that models of others use.
#include <algorithm>

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

}  // namespace

// Boxes of detections by their scores: decoded, the best class of each, without those that a better
// one overlaps, in `max_detections` rows of which those behind the last are 0. As
// lite/kernels/detection_postprocess.cc of TensorFlow does without `use_regular_nms`.
absl::Status DetectionPostProcess(Converter& c) {
  TfliteNode n(c);
  if (n.Flag("use_regular_nms"))
    return c.Unsupported("suppression for each class (use_regular_nms)");
  if (n.Int("max_classes_per_detection", 1) != 1)
    return c.Unsupported("several classes of one box (max_classes_per_detection)");
  QUENCH_RETURN_IF_ERROR(c.RequireRank(1));
  if (c.Rank(c.in(1)) != 3) return c.Error("its class predictions are no tensor of rank 3");
  const Dim width = c.type(c.in(1)).dims.back();
  const int64_t classes = n.Int("num_classes"), most = n.Int("max_detections");
  if (!width.is_static() || width.value() < classes || classes <= 0 || most <= 0)
    return c.Error(fmt::format("has {} classes and {} detections at most", classes, most));

  const ValueId codes = n.Emit("Squeeze", {n.Real(0), c.Ints({0})});
  const ValueId boxes = DecodeBoxes(n, codes, n.Real(2));
  // The first columns are the background.
  const ValueId scores =
      n.Emit("Slice", {n.Emit("Squeeze", {n.Real(1), c.Ints({0})}),
                       c.Ints({width.value() - classes}), c.Ints({kEnd}), c.Ints({-1})});
  const ValueId best = n.Emit("ReduceMax", {scores, c.Ints({-1})}, {{"keepdims", int64_t{0}}});
  const ValueId best_class =
      n.Emit("ArgMax", {scores}, {{"axis", int64_t{-1}}, {"keepdims", int64_t{0}}});
  const ValueId found =
      n.Emit("NonMaxSuppression",
             {n.Emit("Unsqueeze", {boxes, c.Ints({0})}),
              n.Emit("Unsqueeze", {best, c.Ints({0, 1})}), c.Ints({most}),
              c.AddConstant(
                  Tensor::Of(DataType::kF32, {1},
                             std::vector<float>{static_cast<float>(n.Float("nms_iou_threshold"))})),
              c.AddConstant(Tensor::Of(
                  DataType::kF32, {1},
                  std::vector<float>{static_cast<float>(n.Float("nms_score_threshold"))}))});
  // Rows are (batch, class, box).
  const ValueId places = n.Emit("Squeeze", {Column(n, found, 2), c.Ints({1})});
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
  return c.FinalValues({padded(chosen(boxes), false),
                        padded(n.Cast(chosen(best_class), DataType::kF32), true),
                        padded(chosen(best), true),
                        n.Emit("Reshape", {n.Cast(count, DataType::kF32), c.Ints({1})})});
}

}  // namespace quench::importer::tflite_ops
