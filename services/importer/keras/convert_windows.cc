// Convolutions, pooling and resizing: with channels first, between Transposes.
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "services/importer/keras/converters.h"

namespace quench::importer::keras_layers {
namespace {

struct Window {
  std::vector<int64_t> strides, dilations;
  std::string padding;
};

absl::StatusOr<Window> WindowOf(const KerasNode& n, size_t spatial) {
  Window window{n.Ints("strides", spatial), n.Ints("dilation_rate", spatial),
                n.Text("padding", "valid")};
  for (const auto* list : {&window.strides, &window.dilations}) {
    if (std::any_of(list->begin(), list->end(), [](int64_t v) { return v < 1 || v > 1 << 20; }))
      return n.c.Error(fmt::format("strides are [{}] and dilations [{}], all must be positive",
                                   fmt::join(window.strides, ", "),
                                   fmt::join(window.dilations, ", ")));
  }
  const std::string& padding = window.padding;
  if (padding != "valid" && padding != "same" && !(padding == "causal" && spatial == 1))
    return n.c.Error(fmt::format("padding is `{}`, expected `valid` or `same`", padding));
  return window;
}

// Where Conv puts zeros: `kernel` are the sizes of its window.
void SetPads(const Window& window, const std::vector<int64_t>& kernel, Attributes& attributes) {
  if (window.padding == "causal") {
    attributes["pads"] = std::vector<int64_t>{(kernel[0] - 1) * window.dilations[0], 0};
  } else {
    attributes["auto_pad"] = std::string(window.padding == "same" ? "SAME_UPPER" : "VALID");
  }
}

// Kernels are [sizes..., in, out], ONNX has [out, in, sizes...].
std::vector<int64_t> KernelOrder(int64_t spatial) {
  std::vector<int64_t> perm = {spatial + 1, spatial};
  for (int64_t i = 0; i < spatial; ++i) perm.push_back(i);
  return perm;
}

// The layer's output: with its activation, channels where the layer has them.
absl::Status FinishWindow(KerasNode& n, ValueId y, int spatial) {
  const std::string name = n.Text("activation");
  // Softmax is over the channels, wherever they are.
  if (name == "softmax" || name == "log_softmax") {
    QUENCH_ASSIGN_OR_RETURN(y, n.Activate(n.FromFirst(y, spatial)));
    return n.Finish(y);
  }
  QUENCH_ASSIGN_OR_RETURN(y, n.Activate(y));
  return n.Finish(n.FromFirst(y, spatial));
}

absl::Status Convolve(Converter& c, int spatial) {
  KerasNode n(c);
  const auto axes = static_cast<size_t>(spatial);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(spatial + 2));
  QUENCH_ASSIGN_OR_RETURN(const Window window, WindowOf(n, axes));
  const int64_t groups = n.Int("groups", 1);
  const int64_t channels = n.Size(n.in(0), n.ChannelsFirst() ? 1 : spatial + 1);
  if (groups < 1 || (channels >= 0 && channels % groups != 0))
    return c.Error(fmt::format("has {} channels in {} groups", channels, groups));
  std::vector<int64_t> dims = n.Ints("kernel_size", axes, -1);
  dims.push_back(channels < 0 ? -1 : channels / groups);
  dims.push_back(n.Int("filters", -1));
  QUENCH_RETURN_IF_ERROR(n.RequireDims("kernel", dims));
  const std::vector<int64_t> kernel = n.WeightDims("kernel");
  Attributes attributes = {
      {"strides", window.strides}, {"dilations", window.dilations}, {"group", groups}};
  SetPads(window, kernel, attributes);
  std::vector<ValueId> inputs = {n.ToFirst(n.Float(n.in(0)), spatial),
                                 n.Transpose(n.Weight("kernel"), KernelOrder(spatial))};
  if (n.Weight("bias") != kNone) inputs.push_back(n.Weight("bias"));
  return FinishWindow(n, n.Emit("Conv", inputs, std::move(attributes)), spatial);
}

// One kernel of [sizes..., in, multiplier] for each channel; channels are first.
absl::StatusOr<ValueId> ConvolveChannels(KerasNode& n, ValueId x, int spatial, const char* role,
                                         ValueId bias) {
  QUENCH_ASSIGN_OR_RETURN(const Window window, WindowOf(n, static_cast<size_t>(spatial)));
  std::vector<int64_t> dims = n.Ints("kernel_size", static_cast<size_t>(spatial), -1);
  dims.push_back(n.Size(x, 1));
  dims.push_back(n.Int("depth_multiplier", 1));
  QUENCH_RETURN_IF_ERROR(n.RequireDims(role, dims));
  const std::vector<int64_t> kernel = n.WeightDims(role);
  const int64_t channels = kernel[kernel.size() - 2], multiplier = kernel.back();
  std::vector<int64_t> perm = {spatial, spatial + 1};
  std::vector<int64_t> shape = {channels * multiplier, 1};
  for (int64_t i = 0; i < spatial; ++i) {
    perm.push_back(i);
    shape.push_back(kernel[static_cast<size_t>(i)]);
  }
  Attributes attributes = {
      {"strides", window.strides}, {"dilations", window.dilations}, {"group", channels}};
  SetPads(window, kernel, attributes);
  std::vector<ValueId> inputs = {x, n.Reshape(n.Transpose(n.Weight(role), perm), shape)};
  if (bias != kNone) inputs.push_back(bias);
  return n.Emit("Conv", inputs, std::move(attributes));
}

absl::Status ConvolveDepthwise(Converter& c, int spatial) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(spatial + 2));
  const ValueId x = n.ToFirst(n.Float(n.in(0)), spatial);
  QUENCH_ASSIGN_OR_RETURN(const ValueId y,
                          ConvolveChannels(n, x, spatial, "kernel", n.Weight("bias")));
  return FinishWindow(n, y, spatial);
}

absl::Status ConvolveSeparable(Converter& c, int spatial) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(spatial + 2));
  const ValueId x = n.ToFirst(n.Float(n.in(0)), spatial);
  QUENCH_ASSIGN_OR_RETURN(const ValueId inner,
                          ConvolveChannels(n, x, spatial, "depthwise_kernel", kNone));
  std::vector<int64_t> dims(static_cast<size_t>(spatial), 1);
  dims.push_back(n.Size(inner, 1));
  dims.push_back(n.Int("filters", -1));
  QUENCH_RETURN_IF_ERROR(n.RequireDims("pointwise_kernel", dims));
  std::vector<ValueId> inputs = {inner,
                                 n.Transpose(n.Weight("pointwise_kernel"), KernelOrder(spatial))};
  if (n.Weight("bias") != kNone) inputs.push_back(n.Weight("bias"));
  return FinishWindow(n, n.Emit("Conv", inputs), spatial);
}

// Sizes as Keras' deconv_output_length has them; where TensorFlow puts what a smaller output lacks.
absl::Status ConvolveTransposed(Converter& c, int spatial) {
  KerasNode n(c);
  const auto axes = static_cast<size_t>(spatial);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(spatial + 2));
  QUENCH_ASSIGN_OR_RETURN(const Window window, WindowOf(n, axes));
  std::vector<int64_t> dims = n.Ints("kernel_size", axes, -1);
  dims.push_back(n.Int("filters", -1));
  dims.push_back(n.Size(n.in(0), n.ChannelsFirst() ? 1 : spatial + 1));
  QUENCH_RETURN_IF_ERROR(n.RequireDims("kernel", dims));
  const std::vector<int64_t> kernel = n.WeightDims("kernel");
  const bool given = n.Has("output_padding");
  const std::vector<int64_t> extra = n.Ints("output_padding", axes, 0);
  const bool same = window.padding == "same";
  std::vector<int64_t> begins, ends, added;
  for (size_t i = 0; i < axes; ++i) {
    const int64_t size = (kernel[i] - 1) * window.dilations[i] + 1, stride = window.strides[i];
    // Elements that an output of all that the kernel reaches has too many; negative: too few.
    int64_t surplus = 0;
    if (given) {
      surplus = (same ? size / 2 * 2 : 0) - extra[i];
    } else {
      surplus = same ? size - stride : std::min<int64_t>(size - stride, 0);
    }
    begins.push_back(std::max<int64_t>(surplus, 0) / 2);
    ends.push_back(std::max<int64_t>(surplus, 0) - begins.back());
    added.push_back(std::max<int64_t>(-surplus, 0));
  }
  begins.insert(begins.end(), ends.begin(), ends.end());
  Attributes attributes = {{"strides", window.strides},
                           {"dilations", window.dilations},
                           {"pads", begins},
                           {"output_padding", added}};
  std::vector<ValueId> inputs = {n.ToFirst(n.Float(n.in(0)), spatial),
                                 n.Transpose(n.Weight("kernel"), KernelOrder(spatial))};
  if (n.Weight("bias") != kNone) inputs.push_back(n.Weight("bias"));
  return FinishWindow(n, n.Emit("ConvTranspose", inputs, std::move(attributes)), spatial);
}

absl::Status Pool(Converter& c, int spatial) {
  KerasNode n(c);
  const auto axes = static_cast<size_t>(spatial);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(spatial + 2));
  const std::vector<int64_t> size = n.Ints("pool_size", axes, 2);
  Window window{n.Has("strides") ? n.Ints("strides", axes) : size, size,
                n.Text("padding", "valid")};
  for (const std::vector<int64_t>* list : {&std::as_const(window.strides), &size}) {
    if (std::any_of(list->begin(), list->end(), [](int64_t v) { return v < 1; }))
      return c.Error(fmt::format("its window is [{}] with strides [{}], all must be positive",
                                 fmt::join(size, ", "), fmt::join(window.strides, ", ")));
  }
  if (window.padding != "valid" && window.padding != "same")
    return c.Error(fmt::format("padding is `{}`, expected `valid` or `same`", window.padding));
  Attributes attributes = {
      {"kernel_shape", size},
      {"strides", window.strides},
      {"auto_pad", std::string(window.padding == "same" ? "SAME_UPPER" : "VALID")}};
  const char* op = c.node().op.starts_with("Max") ? "MaxPool" : "AveragePool";
  const ValueId y = n.Emit(op, {n.ToFirst(n.in(0), spatial)}, std::move(attributes));
  return n.Finish(n.FromFirst(y, spatial));
}

}  // namespace

absl::Status Convolution1D(Converter& c) { return Convolve(c, 1); }
absl::Status Convolution2D(Converter& c) { return Convolve(c, 2); }
absl::Status Convolution3D(Converter& c) { return Convolve(c, 3); }
absl::Status DepthwiseConvolution1D(Converter& c) { return ConvolveDepthwise(c, 1); }
absl::Status DepthwiseConvolution2D(Converter& c) { return ConvolveDepthwise(c, 2); }
absl::Status SeparableConvolution1D(Converter& c) { return ConvolveSeparable(c, 1); }
absl::Status SeparableConvolution2D(Converter& c) { return ConvolveSeparable(c, 2); }
absl::Status TransposedConvolution1D(Converter& c) { return ConvolveTransposed(c, 1); }
absl::Status TransposedConvolution2D(Converter& c) { return ConvolveTransposed(c, 2); }
absl::Status TransposedConvolution3D(Converter& c) { return ConvolveTransposed(c, 3); }
absl::Status Pool1D(Converter& c) { return Pool(c, 1); }
absl::Status Pool2D(Converter& c) { return Pool(c, 2); }
absl::Status Pool3D(Converter& c) { return Pool(c, 3); }

absl::Status GlobalPool(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  const int rank = c.Rank(n.in(0));
  std::vector<int64_t> axes;
  for (int64_t i = n.ChannelsFirst() ? 2 : 1; i < rank - (n.ChannelsFirst() ? 0 : 1); ++i)
    axes.push_back(i);
  if (axes.empty()) return c.Error(fmt::format("its input has rank {}", rank));
  const bool keep = n.Flag("keepdims");
  if (n.mask() != kNone) {  // the mean of the steps that count
    const ValueId weights = n.Unsqueeze(n.Cast(n.mask(), c.type(n.in(0)).dtype), {2});
    const ValueId sum = n.Reduce("ReduceSum", n.Emit("Mul", {n.in(0), weights}), {1}, keep);
    return n.Finish(n.Emit("Div", {sum, n.Reduce("ReduceSum", weights, {1}, keep)}));
  }
  const char* op = c.node().op.starts_with("GlobalMax") ? "ReduceMax" : "ReduceMean";
  return n.Finish(n.Reduce(op, n.in(0), axes, keep));
}

absl::Status UpSample(Converter& c) {
  KerasNode n(c);
  const std::string& name = c.node().op;
  const int spatial = name.back() == 'D' ? name[name.size() - 2] - '0' : 0;
  QUENCH_RETURN_IF_ERROR(n.RequireRank(spatial + 2));
  const std::vector<int64_t> size = n.Ints("size", static_cast<size_t>(spatial), 2);
  std::vector<float> scales(size.begin(), size.end());
  if (std::any_of(size.begin(), size.end(), [](int64_t v) { return v < 1; }))
    return c.Error(fmt::format("its size is [{}], all must be positive", fmt::join(size, ", ")));
  const std::string mode = n.Text("interpolation", "nearest");
  if (mode != "nearest" && mode != "bilinear")
    return c.Unsupported(fmt::format("its interpolation is `{}`", mode));
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < spatial; ++i) axes.push_back(i + 2);
  Attributes attributes = {{"axes", axes}};
  if (mode == "nearest") {
    attributes["mode"] = std::string("nearest");
    attributes["coordinate_transformation_mode"] = std::string("asymmetric");
    attributes["nearest_mode"] = std::string("floor");
  } else {
    attributes["mode"] = std::string("linear");
    attributes["coordinate_transformation_mode"] = std::string("half_pixel");
  }
  const ValueId factors =
      c.AddConstant(Tensor::Of(DataType::kF32, {static_cast<int64_t>(scales.size())}, scales));
  const ValueId y =
      n.Emit("Resize", {n.ToFirst(n.in(0), spatial), kNone, factors}, std::move(attributes));
  return n.Finish(n.FromFirst(y, spatial));
}

}  // namespace quench::importer::keras_layers
