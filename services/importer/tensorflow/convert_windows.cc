// Products, convolutions, pooling, normalisation, resizing: in NCHW, between Transposes.
#include <algorithm>

#include "common/base/status.h"
#include "services/importer/graph/transposed_convolution.h"
#include "services/importer/tensorflow/converters.h"

namespace quench::importer::tensorflow_ops {
namespace {

// Options of a window for each spatial axis.
struct Window {
  std::vector<int64_t> strides, dilations, kernel;
  std::string padding;        // "SAME", "VALID", "EXPLICIT"
  std::vector<int64_t> pads;  // of "EXPLICIT": begins, then ends
};

// The entries of spatial axes in a list for all axes; 1 where it is missing.
absl::StatusOr<std::vector<int64_t>> Spatial(const Converter& c, const std::vector<int64_t>& all,
                                             int spatial, const char* what) {
  const auto count = static_cast<size_t>(spatial);
  if (all.empty()) return std::vector<int64_t>(count, 1);
  if (all.size() != count + 2)
    return c.Error(fmt::format("{} has {} entries, expected {}", what, all.size(), count + 2));
  const size_t first = HasChannelsFirst(c) ? 2 : 1;
  const size_t channel = HasChannelsFirst(c) ? 1 : count + 1;
  if (all[0] != 1 || all[channel] != 1)
    return c.Unsupported(fmt::format("{} of the batch or the channels is not 1", what));
  std::vector<int64_t> result(all.begin() + static_cast<int64_t>(first),
                              all.begin() + static_cast<int64_t>(first + count));
  if (std::any_of(result.begin(), result.end(), [](int64_t v) { return v < 1 || v > kMaxSize; }))
    return c.Error(fmt::format("{} is not positive", what));
  return result;
}

absl::StatusOr<Window> WindowOf(const Converter& c, int spatial) {
  Window window;
  QUENCH_ASSIGN_OR_RETURN(window.strides, Spatial(c, c.node().Ints("strides"), spatial, "strides"));
  QUENCH_ASSIGN_OR_RETURN(window.dilations,
                          Spatial(c, c.node().Ints("dilations"), spatial, "dilations"));
  window.padding = c.node().String("padding", "VALID");
  if (window.padding == "EXPLICIT") {
    const std::vector<int64_t> pads = c.node().Ints("explicit_paddings");
    if (pads.size() != 2 * static_cast<size_t>(spatial + 2))
      return c.Error(fmt::format("explicit_paddings has {} entries", pads.size()));
    const size_t first = HasChannelsFirst(c) ? 2 : 1;
    for (const size_t end : {0, 1}) {
      for (size_t i = 0; i < static_cast<size_t>(spatial); ++i)
        window.pads.push_back(pads[2 * (first + i) + end]);
    }
  } else if (window.padding != "SAME" && window.padding != "VALID") {
    return c.Error(fmt::format("padding is `{}`", window.padding));
  }
  return window;
}

void AddPadding(const Window& window, Attributes& attributes) {
  if (window.padding == "EXPLICIT")
    attributes["pads"] = window.pads;
  else
    attributes["auto_pad"] = std::string(window.padding == "SAME" ? "SAME_UPPER" : "VALID");
}

absl::Status RequireRankOf(const Converter& c, int input, int rank) {
  QUENCH_RETURN_IF_ERROR(c.RequireRank(input));
  if (c.Rank(c.in(input)) == rank) return absl::OkStatus();
  return c.Error(
      fmt::format("input {} has rank {}, expected {}", input, c.Rank(c.in(input)), rank));
}

// Kernels [spatial.., in, out] as [out, in, spatial..].
std::vector<int64_t> KernelOrder(int spatial) {
  std::vector<int64_t> order = {spatial + 1, spatial};
  for (int64_t i = 0; i < spatial; ++i) order.push_back(i);
  return order;
}

int64_t SizeAt(const Converter& c, ValueId id, int axis) {
  const Type& type = c.type(id);
  if (!type.ranked || axis >= type.rank()) return -1;
  const Dim dim = type.dims[static_cast<size_t>(axis)];
  return dim.is_static() ? dim.value() : -1;
}

int ChannelAxis(const Converter& c, int spatial) { return HasChannelsFirst(c) ? 1 : spatial + 1; }

}  // namespace

absl::Status MatMul(Converter& c) {
  QUENCH_RETURN_IF_ERROR(RequireRankOf(c, 0, 2));
  QUENCH_RETURN_IF_ERROR(RequireRankOf(c, 1, 2));
  TfNode n(c);
  const bool a = n.Flag("transpose_a"), b = n.Flag("transpose_b");
  if (!n.Int("use_dense", 1) || !IsFloat(c.type(c.in(0)).dtype)) {
    const auto side = [&](int input, bool turned) {
      return turned ? n.Transpose(c.in(input), {1, 0}) : c.in(input);
    };
    return Finish(c, n.Emit("MatMul", {side(0, a), side(1, b)}));
  }
  return c.Final("Gemm", {c.in(0), c.in(1)}, {{"transA", int64_t{a}}, {"transB", int64_t{b}}});
}

absl::Status BiasAdd(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(c.RequireRank(0));
  ValueId bias = c.in(1);
  if (HasChannelsFirst(c) && c.Rank(c.in(0)) > 2) {
    std::vector<int64_t> axes;
    for (int64_t i = 1; i + 1 < c.Rank(c.in(0)); ++i) axes.push_back(i);
    bias = n.Emit("Unsqueeze", {bias, c.Ints(axes)});
  }
  return Finish(c, n.Emit("Add", {c.in(0), bias}));
}

absl::Status Convolution(Converter& c) {
  TfNode n(c);
  const int spatial = c.node().op == "Conv3D" ? 3 : 2;
  for (const int input : {0, 1}) QUENCH_RETURN_IF_ERROR(RequireRankOf(c, input, spatial + 2));
  QUENCH_ASSIGN_OR_RETURN(const Window window, WindowOf(c, spatial));
  const int64_t channels = SizeAt(c, c.in(0), ChannelAxis(c, spatial));
  const int64_t taken = SizeAt(c, c.in(1), spatial);
  if (taken < 1) return c.Unsupported("the channels of its kernel are not known");
  if (channels >= 0 && (channels == 0 || channels % taken != 0))
    return c.Error(fmt::format("has {} channels, its kernel takes {}", channels, taken));
  Attributes attributes = {{"strides", window.strides},
                           {"dilations", window.dilations},
                           {"group", channels < 0 ? 1 : channels / taken}};
  AddPadding(window, attributes);
  const ValueId kernel = n.Transpose(c.in(1), KernelOrder(spatial));
  const ValueId result =
      n.Emit("Conv", {ToFirst(n, c.in(0), spatial), kernel}, std::move(attributes));
  return Finish(c, FromFirst(n, result, spatial));
}

// Kernels [height, width, channels, multiplier]: results of a channel lie beside one another.
absl::Status DepthwiseConvolution(Converter& c) {
  TfNode n(c);
  for (const int input : {0, 1}) QUENCH_RETURN_IF_ERROR(RequireRankOf(c, input, 4));
  QUENCH_ASSIGN_OR_RETURN(const Window window, WindowOf(c, 2));
  std::vector<int64_t> sizes;
  for (const int axis : {0, 1, 2, 3}) sizes.push_back(SizeAt(c, c.in(1), axis));
  if (*std::min_element(sizes.begin(), sizes.end()) < 1)
    return c.Unsupported("the sizes of its kernel are not known");
  Attributes attributes = {
      {"strides", window.strides}, {"dilations", window.dilations}, {"group", sizes[2]}};
  AddPadding(window, attributes);
  const ValueId turned = n.Transpose(c.in(1), {2, 3, 0, 1});
  const ValueId kernel =
      n.Emit("Reshape", {turned, c.Ints({sizes[2] * sizes[3], 1, sizes[0], sizes[1]})});
  const ValueId result = n.Emit("Conv", {ToFirst(n, c.in(0), 2), kernel}, std::move(attributes));
  return Finish(c, FromFirst(n, result, 2));
}

absl::Status TransposedConvolution(Converter& c) {
  TfNode n(c);
  const int spatial = c.node().op == "Conv3DBackpropInputV2" ? 3 : 2;
  for (const int input : {1, 2}) QUENCH_RETURN_IF_ERROR(RequireRankOf(c, input, spatial + 2));
  QUENCH_ASSIGN_OR_RETURN(const Window window, WindowOf(c, spatial));
  SizedTransposedConvolution op{.images = ToFirst(n, c.in(2), spatial),
                                .weights = n.Transpose(c.in(1), KernelOrder(spatial)),
                                .sizes = c.in(0),
                                .first = HasChannelsFirst(c) ? 2 : 1,
                                .strides = window.strides,
                                .dilations = window.dilations,
                                .begins = {}};
  if (SizeAt(c, c.in(0), 0) == spatial) op.first = 0;
  if (window.padding == "VALID") op.begins.emplace(window.strides.size(), 0);
  if (window.padding == "EXPLICIT")
    op.begins.emplace(window.pads.begin(), window.pads.begin() + spatial);
  QUENCH_ASSIGN_OR_RETURN(const ValueId result, EmitTransposedConvolution(c, op));
  return Finish(c, FromFirst(n, result, spatial));
}

absl::Status Pool(Converter& c) {
  TfNode n(c);
  const std::string& op = c.node().op;
  const int spatial = op.ends_with("3D") ? 3 : 2;
  QUENCH_RETURN_IF_ERROR(RequireRankOf(c, 0, spatial + 2));
  std::vector<int64_t> kernel = c.node().Ints("ksize"), strides = c.node().Ints("strides");
  if (op == "MaxPoolV2") {
    QUENCH_ASSIGN_OR_RETURN(kernel, n.RequireInts(1, "the window"));
    QUENCH_ASSIGN_OR_RETURN(strides, n.RequireInts(2, "the strides"));
  }
  QUENCH_ASSIGN_OR_RETURN(Window window, WindowOf(c, spatial));
  QUENCH_ASSIGN_OR_RETURN(window.strides, Spatial(c, strides, spatial, "strides"));
  QUENCH_ASSIGN_OR_RETURN(window.kernel, Spatial(c, kernel, spatial, "ksize"));
  Attributes attributes = {{"strides", window.strides}, {"kernel_shape", window.kernel}};
  AddPadding(window, attributes);
  const char* pool = op.starts_with("Max") ? "MaxPool" : "AveragePool";
  const ValueId result = n.Emit(pool, {ToFirst(n, c.in(0), spatial)}, std::move(attributes));
  return Finish(c, FromFirst(n, result, spatial));
}

namespace {

// By the statistics of the batch itself, as in training.
absl::Status NormByBatch(TfNode& n, ValueId x, double epsilon) {
  Converter& c = n.c;
  const ValueId axes = c.Ints({0, 2, 3});
  const auto mean = [&](ValueId id) {
    return n.Emit("ReduceMean", {id, axes}, {{"keepdims", int64_t{1}}});
  };
  const auto shaped = [&](ValueId id) { return n.Emit("Unsqueeze", {id, c.Ints({0, 2, 3})}); };
  const ValueId average = mean(x);
  const ValueId centred = n.Emit("Sub", {x, average});
  const ValueId variance = mean(n.Emit("Mul", {centred, centred}));
  const ValueId deviation =
      n.Emit("Sqrt", {n.Emit("Add", {variance, c.Scalar(c.type(x).dtype, epsilon)})});
  const ValueId normal = n.Emit("Div", {centred, deviation});
  const ValueId y = n.Emit("Add", {n.Emit("Mul", {normal, shaped(c.in(1))}), shaped(c.in(2))});
  const auto list = [&](ValueId id) { return n.Emit("Squeeze", {id, c.Ints({0, 2, 3})}); };
  return c.FinalValues({FromFirst(n, y, 2), list(average), list(variance)});
}

}  // namespace

absl::Status BatchNorm(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 5));
  const int spatial = c.Rank(c.in(0)) == 5 ? 3 : 2;
  QUENCH_RETURN_IF_ERROR(RequireRankOf(c, 0, spatial + 2));
  const double epsilon = n.Float("epsilon", 1e-4);
  const ValueId x = ToFirst(n, c.in(0), spatial);
  if (n.Int("is_training", 1) != 0) {
    if (spatial == 3) return c.Unsupported("normalises volumes by the batch itself");
    return NormByBatch(n, x, epsilon);
  }
  const ValueId y =
      n.Emit("BatchNormalization", {x, c.in(1), c.in(2), c.in(3), c.in(4)}, {{"epsilon", epsilon}});
  const auto same = [&](int input) { return n.Emit("Identity", {c.in(input)}); };
  std::vector<ValueId> results = {FromFirst(n, y, spatial)};
  for (const int output : {1, 2}) {
    const bool wanted = c.num_outputs() > output && c.IsUsed(output);
    results.push_back(wanted ? same(output + 2) : kNone);
  }
  return c.FinalValues(results);
}

absl::Status GlobalBatchNorm(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 5));
  QUENCH_RETURN_IF_ERROR(RequireRankOf(c, 0, 4));
  const DataType dtype = c.type(c.in(0)).dtype;
  ValueId gamma = c.in(4);
  if (!n.Flag("scale_after_normalization"))
    gamma = n.Emit("Expand", {c.Scalar(dtype, 1), n.Emit("Shape", {c.in(1)})});
  const ValueId y =
      n.Emit("BatchNormalization",
             {n.Transpose(c.in(0), ToChannelsFirst(2)), gamma, c.in(3), c.in(1), c.in(2)},
             {{"epsilon", n.Float("variance_epsilon", 1e-3)}});
  return Finish(c, n.Transpose(y, ToChannelsLast(2)));
}

// Integer images become floats by ResizeBilinear.
absl::Status Resize(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 2));
  const bool nearest = c.node().op == "ResizeNearestNeighbor";
  const ValueId x =
      nearest || IsFloat(c.type(c.in(0)).dtype) ? c.in(0) : n.Cast(c.in(0), DataType::kF32);
  return ConvertAsTflite(c, nearest ? "RESIZE_NEAREST_NEIGHBOR" : "RESIZE_BILINEAR", {x, c.in(1)});
}

absl::Status ResizeBicubic(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireRankOf(c, 0, 4));
  if (!n.Flag("half_pixel_centers"))
    return c.Unsupported("interpolates by the old table (half_pixel_centers is false)");
  const ValueId x = n.Transpose(n.Cast(c.in(0), DataType::kF32), ToChannelsFirst(2));
  const ValueId result = n.Emit("Resize", {x, kNone, kNone, n.Sizes(1)},
                                {{"mode", std::string("cubic")},
                                 {"coordinate_transformation_mode", std::string("half_pixel")},
                                 {"cubic_coeff_a", -0.5},
                                 {"exclude_outside", int64_t{1}},
                                 {"axes", std::vector<int64_t>{2, 3}}});
  return Finish(c, n.Transpose(result, ToChannelsLast(2)));
}

absl::Status SpaceDepth(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireRankOf(c, 0, 4));
  const bool to_space = c.node().op == "DepthToSpace";
  Attributes attributes = {{"blocksize", n.Int("block_size")}};
  if (to_space) attributes["mode"] = std::string("DCR");
  const ValueId result = n.Emit(to_space ? "DepthToSpace" : "SpaceToDepth",
                                {ToFirst(n, c.in(0), 2)}, std::move(attributes));
  return Finish(c, FromFirst(n, result, 2));
}

}  // namespace quench::importer::tensorflow_ops
