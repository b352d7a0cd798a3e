// Convolutions, products, pooling, resizing: in NCHW, between Transposes of what is quantized.
#include <algorithm>

#include "common/base/status.h"
#include "services/importer/graph/transposed_convolution.h"
#include "services/importer/tflite/converters.h"

namespace quench::importer::tflite_ops {
namespace {

absl::StatusOr<std::string> AutoPad(const TfliteNode& n) {
  switch (n.Int("padding")) {
    case tflite::Padding_SAME:
      return std::string("SAME_UPPER");
    case tflite::Padding_VALID:
      return std::string("VALID");
    default:
      return n.c.Error(
          fmt::format("padding is {}, expected 0 (SAME) or 1 (VALID)", n.Int("padding")));
  }
}

std::vector<int64_t> Strides(const TfliteNode& n) { return {n.Int("stride_h"), n.Int("stride_w")}; }

bool AllPositive(const std::vector<int64_t>& values) {
  return std::all_of(values.begin(), values.end(), [](int64_t v) { return v > 0; });
}

absl::Status RequireRankOf(const TfliteNode& n, int input, int rank) {
  QUENCH_RETURN_IF_ERROR(n.c.RequireRank(input));
  if (n.c.Rank(n.c.in(input)) == rank) return absl::OkStatus();
  return n.c.Error(
      fmt::format("input {} has rank {}, expected {}", input, n.c.Rank(n.c.in(input)), rank));
}

// Convolution of `spatial` axes; `weights` is in ONNX's order already.
absl::Status FinishConvolution(TfliteNode& n, int spatial, ValueId weights, Attributes attributes,
                               int64_t group) {
  QUENCH_ASSIGN_OR_RETURN(attributes["auto_pad"], AutoPad(n));
  attributes["group"] = group;
  std::vector<ValueId> inputs = {n.Real(0, ToChannelsFirst(spatial)), weights};
  if (n.c.has(2)) inputs.push_back(n.Real(2));
  const ValueId sum = n.Emit("Conv", inputs, std::move(attributes));
  return n.Finish(n.Activate(sum), ToChannelsLast(spatial));
}

absl::Status CheckWindow(const TfliteNode& n, const std::vector<int64_t>& strides,
                         const std::vector<int64_t>& dilations) {
  if (AllPositive(strides) && AllPositive(dilations)) return absl::OkStatus();
  return n.c.Error(fmt::format("strides are [{}] and dilations [{}], all must be positive",
                               fmt::join(strides, ", "), fmt::join(dilations, ", ")));
}

absl::Status Convolve2d(Converter& c, bool depthwise) {
  TfliteNode n(c);
  for (const int input : {0, 1}) QUENCH_RETURN_IF_ERROR(RequireRankOf(n, input, 4));
  const std::vector<int64_t> strides = Strides(n);
  const std::vector<int64_t> dilations = {n.Int("dilation_h_factor", 1),
                                          n.Int("dilation_w_factor", 1)};
  QUENCH_RETURN_IF_ERROR(CheckWindow(n, strides, dilations));
  const Dim channels = c.type(c.in(0)).dims[3];
  const Dim taken = c.type(c.in(1)).dims[3];
  if (!channels.is_static() || !taken.is_static() || channels.value() <= 0 || taken.value() <= 0)
    return c.Unsupported("the number of channels is known only at run time");
  int64_t group = channels.value();
  if (!depthwise) {
    if (channels.value() % taken.value() != 0)
      return c.Error(
          fmt::format("has {} channels, its kernel takes {}", channels.value(), taken.value()));
    group = channels.value() / taken.value();
  }
  const std::vector<int64_t> order =
      depthwise ? std::vector<int64_t>{3, 0, 1, 2} : std::vector<int64_t>{0, 3, 1, 2};
  return FinishConvolution(n, 2, n.Real(1, order), {{"strides", strides}, {"dilations", dilations}},
                           group);
}

absl::Status ConvolveTransposed(Converter& c, int spatial,
                                const std::vector<int64_t>& weights_order,
                                const std::vector<int64_t>& strides,
                                const std::vector<int64_t>& dilations) {
  TfliteNode n(c);
  for (const int input : {1, 2}) QUENCH_RETURN_IF_ERROR(RequireRankOf(n, input, spatial + 2));
  QUENCH_RETURN_IF_ERROR(RequireRankOf(n, 0, 1));
  QUENCH_RETURN_IF_ERROR(CheckWindow(n, strides, dilations));
  QUENCH_ASSIGN_OR_RETURN(const std::string auto_pad, AutoPad(n));
  SizedTransposedConvolution op{.images = n.Real(2, ToChannelsFirst(spatial)),
                                .weights = n.Real(1, weights_order),
                                .bias = c.has(3) ? n.Real(3) : kNone,
                                .sizes = n.Raw(0),
                                .strides = strides,
                                .dilations = dilations,
                                .begins = {}};
  if (auto_pad == "VALID") op.begins.emplace(strides.size(), 0);
  QUENCH_ASSIGN_OR_RETURN(const ValueId sum, EmitTransposedConvolution(c, op));
  return n.Finish(n.Activate(sum), ToChannelsLast(spatial));
}

}  // namespace

absl::Status Convolution(Converter& c) { return Convolve2d(c, false); }
absl::Status DepthwiseConvolution(Converter& c) { return Convolve2d(c, true); }

absl::Status Convolution3d(Converter& c) {
  TfliteNode n(c);
  for (const int input : {0, 1}) QUENCH_RETURN_IF_ERROR(RequireRankOf(n, input, 5));
  const std::vector<int64_t> strides = {n.Int("stride_d"), n.Int("stride_h"), n.Int("stride_w")};
  const std::vector<int64_t> dilations = {
      n.Int("dilation_d_factor", 1), n.Int("dilation_h_factor", 1), n.Int("dilation_w_factor", 1)};
  QUENCH_RETURN_IF_ERROR(CheckWindow(n, strides, dilations));
  return FinishConvolution(n, 3, n.Real(1, {4, 3, 0, 1, 2}),
                           {{"strides", strides}, {"dilations", dilations}}, 1);
}

absl::Status TransposedConvolution(Converter& c) {
  TfliteNode n(c);
  return ConvolveTransposed(c, 2, {3, 0, 1, 2}, Strides(n), {1, 1});
}

absl::Status TransposedConvolution3d(Converter& c) {
  TfliteNode n(c);
  return ConvolveTransposed(c, 3, {4, 3, 0, 1, 2},
                            {n.Int("stride_d"), n.Int("stride_h"), n.Int("stride_w")},
                            {n.Int("dilation_d_factor", 1), n.Int("dilation_h_factor", 1),
                             n.Int("dilation_w_factor", 1)});
}

absl::Status FullyConnected(Converter& c) {
  TfliteNode n(c);
  QUENCH_RETURN_IF_ERROR(c.RequireRank(0));
  QUENCH_RETURN_IF_ERROR(RequireRankOf(n, 1, 2));
  if (n.Int("weights_format") != 0) return c.Unsupported("weights are shuffled (weights_format 1)");
  const Dim width = c.type(c.in(1)).dims[1];
  const int rank = c.Rank(c.in(0));
  const bool flatten = !n.Flag("keep_num_dims") && rank != 2;
  if (rank == 2 || flatten) {
    ValueId x = n.Real(0);
    if (flatten) {
      if (!width.is_static()) return c.Unsupported("the width of its weights is not known");
      x = n.Emit("Reshape", {x, c.Ints({-1, width.value()})});
    }
    std::vector<ValueId> inputs = {x, n.Real(1)};
    if (c.has(2)) inputs.push_back(n.Real(2));
    return n.Finish(n.Activate(n.Emit("Gemm", inputs, {{"transB", int64_t{1}}})));
  }
  ValueId sum = n.Emit("MatMul", {n.Real(0), n.Real(1, {1, 0})});
  if (c.has(2)) sum = n.Emit("Add", {sum, n.Real(2)});
  return n.Finish(n.Activate(sum));
}

absl::Status BatchMatMul(Converter& c) {
  TfliteNode n(c);
  const auto side = [&](int input, const char* flag) -> absl::StatusOr<ValueId> {
    if (!n.Flag(flag)) return n.Real(input);
    QUENCH_RETURN_IF_ERROR(c.RequireRank(input));
    std::vector<int64_t> perm;
    for (int64_t i = 0; i < c.Rank(c.in(input)); ++i) perm.push_back(i);
    if (perm.size() < 2) return c.Error(fmt::format("input {} is not a matrix", input));
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return n.Real(input, perm);
  };
  QUENCH_ASSIGN_OR_RETURN(const ValueId a, side(0, "adj_x"));
  QUENCH_ASSIGN_OR_RETURN(const ValueId b, side(1, "adj_y"));
  return n.Finish(n.Emit("MatMul", {a, b}));
}

absl::Status Pool(Converter& c) {
  TfliteNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireRankOf(n, 0, 4));
  Attributes attributes = {
      {"strides", Strides(n)},
      {"kernel_shape", std::vector<int64_t>{n.Int("filter_height"), n.Int("filter_width")}}};
  QUENCH_RETURN_IF_ERROR(
      CheckWindow(n, Strides(n), {n.Int("filter_height"), n.Int("filter_width")}));
  QUENCH_ASSIGN_OR_RETURN(attributes["auto_pad"], AutoPad(n));
  const bool maximum = c.node().op == "MAX_POOL_2D";
  const DataType dtype = c.type(c.in(0)).dtype;
  if (maximum && n.HasSameScale(0) && n.Int("fused_activation_function") == 0 &&
      (dtype == DataType::kI8 || dtype == DataType::kU8)) {
    const ValueId x = n.Transpose(n.Raw(0), ToChannelsFirst(2));
    return n.FinishRaw(n.Transpose(n.Emit("MaxPool", {x}, attributes), ToChannelsLast(2)));
  }
  ValueId x = n.Real(0, ToChannelsFirst(2));
  if (c.node().op == "L2_POOL_2D") x = n.Emit("Mul", {x, x});
  ValueId result = n.Emit(maximum ? "MaxPool" : "AveragePool", {x}, attributes);
  if (c.node().op == "L2_POOL_2D") result = n.Emit("Sqrt", {result});
  return n.Finish(n.Activate(result), ToChannelsLast(2));
}

absl::Status Resize(Converter& c) {
  TfliteNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireRankOf(n, 0, 4));
  const bool nearest = c.node().op == "RESIZE_NEAREST_NEIGHBOR";
  const bool corners = n.Flag("align_corners"), half = n.Flag("half_pixel_centers");
  Attributes attributes = {
      {"mode", std::string(nearest ? "nearest" : "linear")},
      {"coordinate_transformation_mode",
       std::string(corners ? "align_corners" : (half ? "half_pixel" : "asymmetric"))},
      {"axes", std::vector<int64_t>{2, 3}}};
  // With centers at halves the nearest one is floor((i + 0.5) * scale).
  if (nearest)
    attributes["nearest_mode"] = std::string(corners || half ? "round_prefer_ceil" : "floor");
  const bool moves = nearest && n.HasSameScale(0);
  const ValueId x =
      moves ? n.Transpose(n.Raw(0), ToChannelsFirst(2)) : n.Real(0, ToChannelsFirst(2));
  const ValueId result = n.Emit("Resize", {x, kNone, kNone, n.Sizes(1)}, std::move(attributes));
  return moves ? n.FinishRaw(n.Transpose(result, ToChannelsLast(2)))
               : n.Finish(result, ToChannelsLast(2));
}

absl::Status SpaceToDepth(Converter& c) {
  TfliteNode n(c);
  const ValueId x = n.Transpose(n.Raw(0), ToChannelsFirst(2));
  const ValueId result = n.Emit("SpaceToDepth", {x}, {{"blocksize", n.Int("block_size")}});
  return n.FinishRaw(n.Transpose(result, ToChannelsLast(2)));
}

absl::Status DepthToSpace(Converter& c) {
  TfliteNode n(c);
  const ValueId x = n.Transpose(n.Raw(0), ToChannelsFirst(2));
  const ValueId result = n.Emit("DepthToSpace", {x},
                                {{"blocksize", n.Int("block_size")}, {"mode", std::string("DCR")}});
  return n.FinishRaw(n.Transpose(result, ToChannelsLast(2)));
}

}  // namespace quench::importer::tflite_ops
