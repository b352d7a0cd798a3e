// Convolutions, pooling, resizing, padding.
#include <algorithm>

#include "common/base/status.h"
#include "services/importer/torch/converters.h"

namespace quench::importer::torch_ops {
namespace {

std::vector<int64_t> Doubled(const std::vector<int64_t>& padding) {
  std::vector<int64_t> pads = padding;
  pads.insert(pads.end(), padding.begin(), padding.end());
  return pads;
}

// Without a batch the first axis is the channels'.
struct Batched {
  ValueId id = kNone;
  bool added = false;
};

Batched WithBatch(AtenNode& n, ValueId x, int spatial) {
  if (n.Rank(x) == spatial + 1) return {n.Unsqueeze(x, {0}), true};
  return {x, false};
}

absl::Status FinishBatched(AtenNode& n, ValueId y, bool added) {
  return n.Finish(added ? n.Squeeze(y, {0}) : y);
}

struct Window {
  std::vector<int64_t> stride, padding, dilation;
};

absl::StatusOr<ValueId> Convolve(AtenNode& n, bool transposed) {
  const ValueId weight = n.In("weight");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(weight, "weight"));
  QUENCH_RETURN_IF_ERROR(n.RequireRank(n.In("input"), "input"));
  const int spatial = n.Rank(weight) - 2;
  if (spatial < 1) return n.c.Error(fmt::format("weight has rank {}", n.Rank(weight)));
  const auto count = static_cast<size_t>(spatial);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> stride, n.IntsOf("stride", count, 1));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> dilation, n.IntsOf("dilation", count, 1));
  Attributes attributes = {
      {"strides", stride}, {"dilations", dilation}, {"group", n.Int("groups", 1)}};
  const std::string same = n.Text("padding");
  if (same == "same") {
    std::vector<int64_t> pads(2 * count);
    for (size_t i = 0; i < count; ++i) {
      const int64_t kernel = n.SizeAt(weight, static_cast<int64_t>(i) + 2);
      const int64_t total = std::max<int64_t>(dilation[i] * (kernel - 1), 0);
      pads[i] = total / 2;
      pads[count + i] = total - total / 2;
    }
    attributes["pads"] = pads;
  } else if (same.empty()) {
    QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> padding, n.IntsOf("padding", count, 0));
    attributes["pads"] = Doubled(padding);
  }
  if (transposed) {
    QUENCH_ASSIGN_OR_RETURN(attributes["output_padding"], n.IntsOf("output_padding", count, 0));
  }
  const Batched x = WithBatch(n, n.In("input"), spatial);
  const ValueId y = n.Emit(transposed ? "ConvTranspose" : "Conv", {x.id, weight, n.In("bias")},
                           std::move(attributes));
  return x.added ? n.Squeeze(y, {0}) : y;
}

}  // namespace

absl::Status Convolution(Converter& c) {
  AtenNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId y, Convolve(n, false));
  return n.Finish(y);
}

absl::Status TransposedConvolution(Converter& c) {
  AtenNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId y, Convolve(n, true));
  return n.Finish(y);
}

absl::Status AnyConvolution(Converter& c) {
  AtenNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId y, Convolve(n, n.Flag("transposed")));
  return n.Finish(y);
}

static ValueId Bounded(AtenNode& n, ValueId y) {
  if (!n.Has("output_min") && !n.Has("output_max")) return y;
  return n.Emit("Clip", {y, n.Has("output_min") ? n.Scalar(y, n.Number("output_min")) : kNone,
                         n.Has("output_max") ? n.Scalar(y, n.Number("output_max")) : kNone});
}

absl::Status PackedConvolution(Converter& c) {
  AtenNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId y, Convolve(n, false));
  return n.Finish(Bounded(n, y));
}

absl::Status PackedLinear(Converter& c) {
  AtenNode n(c);
  return n.Finish(Bounded(n, LinearOf(n, n.In("input"), n.In("weight"), n.In("bias"))));
}

// ---- Pooling ----

static int SpatialOf(const AtenNode& n) {
  const std::string& op = n.c.node().op;
  const size_t digit = op.find_first_of("123");
  return digit == std::string::npos ? 2 : op[digit] - '0';
}

static absl::StatusOr<Attributes> PoolAttributes(AtenNode& n, size_t count) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> kernel, n.IntsOf("kernel_size", count, 1));
  QUENCH_ASSIGN_OR_RETURN(std::vector<int64_t> stride, n.IntsOf("stride", count, 0));
  if (stride[0] == 0) stride = kernel;  // not given, or an empty list
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> padding, n.IntsOf("padding", count, 0));
  return Attributes{{"kernel_shape", kernel},
                    {"strides", stride},
                    {"pads", Doubled(padding)},
                    {"ceil_mode", int64_t{n.Flag("ceil_mode")}}};
}

// `ceil_mode` as padding behind, which makes the last window a whole one. It begins within the input or the padding
// before it.
static absl::Status PadToWholeWindows(AtenNode& n, ValueId x, Attributes& attributes) {
  const auto kernel = std::get<std::vector<int64_t>>(attributes["kernel_shape"]);
  const auto stride = std::get<std::vector<int64_t>>(attributes["strides"]);
  auto pads = std::get<std::vector<int64_t>>(attributes["pads"]);
  const size_t count = kernel.size();
  for (size_t i = 0; i < count; ++i) {
    const int64_t size = n.SizeAt(x, static_cast<int64_t>(i) + 2), before = pads[i];
    if (size < 0) return n.c.Unsupported("ceil_mode and divisor_override of sizes of a run");
    const int64_t room = size + 2 * before - kernel[i];
    if (room < 0 || stride[i] < 1) return n.c.Error("its window does not fit its input");
    int64_t steps = (room + stride[i] - 1) / stride[i];
    if (steps * stride[i] >= size + before) --steps;
    pads[count + i] = std::max(before, before + steps * stride[i] - room);
  }
  attributes["pads"] = pads;
  attributes["ceil_mode"] = int64_t{0};
  return absl::OkStatus();
}

absl::Status MaxPoolOf(Converter& c) {
  AtenNode n(c);
  const int spatial = SpatialOf(n);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(n.In("self"), "self"));
  QUENCH_ASSIGN_OR_RETURN(Attributes attributes, PoolAttributes(n, static_cast<size_t>(spatial)));
  QUENCH_ASSIGN_OR_RETURN(attributes["dilations"],
                          n.IntsOf("dilation", static_cast<size_t>(spatial), 1));
  const Batched x = WithBatch(n, n.In("self"), spatial);
  // ONNX counts indices through the whole tensor, PyTorch through one plane.
  if (c.IsUsed(1) && c.declared(1).dtype == DataType::kUndefined && c.num_outputs() > 1) {
    const std::vector<ValueId> y = c.EmitMany("MaxPool", {x.id}, 2, attributes);
    const ValueId shape = n.Slice(n.ShapeOf(x.id), 0, 2, kTorchEnd);
    const ValueId plane = n.Emit("ReduceProd", {shape, c.Ints({0})}, {{"keepdims", int64_t{0}}});
    const ValueId index = n.Emit("Mod", {y[1], plane}, {{"fmod", int64_t{0}}});
    return c.FinalValues(
        {x.added ? n.Squeeze(y[0], {0}) : y[0], x.added ? n.Squeeze(index, {0}) : index});
  }
  const ValueId y = n.Emit("MaxPool", {x.id}, std::move(attributes));
  return c.FinalValues({x.added ? n.Squeeze(y, {0}) : y, kNone});
}

absl::Status AveragePool(Converter& c) {
  AtenNode n(c);
  const int spatial = SpatialOf(n);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(n.In("self"), "self"));
  QUENCH_ASSIGN_OR_RETURN(Attributes attributes, PoolAttributes(n, static_cast<size_t>(spatial)));
  const Batched x = WithBatch(n, n.In("self"), spatial);
  if (!n.Has("divisor_override")) {
    attributes["count_include_pad"] = int64_t{n.Flag("count_include_pad", true)};
    return FinishBatched(n, n.Emit("AveragePool", {x.id}, std::move(attributes)), x.added);
  }
  // For whole windows, padding included, the average is the sum but for a factor.
  attributes["count_include_pad"] = int64_t{1};
  if (n.Flag("ceil_mode")) QUENCH_RETURN_IF_ERROR(PadToWholeWindows(n, x.id, attributes));
  double area = 1;
  for (const int64_t size : std::get<std::vector<int64_t>>(attributes["kernel_shape"]))
    area *= static_cast<double>(size);
  const double divisor = n.Number("divisor_override");
  if (divisor == 0) return c.Error("divisor_override is 0");
  const ValueId average = n.Emit("AveragePool", {x.id}, std::move(attributes));
  return FinishBatched(n, n.Times(average, area / divisor), x.added);
}

// The average or largest of [floor(i * in / out), ceil((i + 1) * in / out)) for each i: equal windows where `out`
// divides `in`, else each window by itself.
static absl::StatusOr<ValueId> AdaptiveAxis(AtenNode& n, ValueId x, int64_t axis, int64_t out,
                                            const char* reduce) {
  const int64_t in = n.SizeAt(x, axis);
  if (in < 1 || out < 1 || out > 1024)
    return n.c.Unsupported(fmt::format("output_size {} for a size of {}", out,
                                       in < 0 ? "any number" : std::to_string(in)));
  if (in == out) return x;
  std::vector<ValueId> parts;
  for (int64_t i = 0; i < out; ++i) {
    const int64_t begin = i * in / out, end = ((i + 1) * in + out - 1) / out;
    parts.push_back(n.Reduce(reduce, n.Slice(x, axis, begin, end), {axis}, true));
  }
  return parts.size() == 1 ? parts[0] : n.Emit("Concat", parts, {{"axis", axis}});
}

absl::Status AdaptivePool(Converter& c) {
  AtenNode n(c);
  const bool largest = c.node().op.find("max") != std::string::npos;
  if (largest && c.IsUsed(1) && c.num_outputs() > 1 && c.declared(1).known())
    return c.Unsupported("indices of adaptive pooling");
  const int spatial = SpatialOf(n);
  ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  const std::vector<int64_t> given = c.node().Ints("output_size");
  std::vector<int64_t> size = given;
  if (size.empty()) size = {n.Int("output_size", 1)};
  if (size.size() == 1) size.resize(static_cast<size_t>(spatial), size[0]);
  if (size.size() != static_cast<size_t>(spatial))
    return c.Error(fmt::format("output_size has {} numbers, expected {}", size.size(), spatial));
  const int64_t first = n.Rank(x) - spatial;
  if (first < 0) return c.Error("its input has too few axes");
  const Batched batched = WithBatch(n, x, spatial);
  const bool all_one = std::all_of(size.begin(), size.end(), [](int64_t s) { return s == 1; });
  if (all_one) {
    const ValueId y = n.Emit(largest ? "GlobalMaxPool" : "GlobalAveragePool", {batched.id});
    return c.FinalValues({batched.added ? n.Squeeze(y, {0}) : y, kNone});
  }
  std::vector<int64_t> kernel;
  bool even = true;
  for (int i = 0; i < spatial; ++i) {
    const int64_t in = n.SizeAt(x, first + i), out = size[static_cast<size_t>(i)];
    const bool kept = out < 0;  // None
    even = even && in > 0 && (kept || (out > 0 && in % out == 0));
    kernel.push_back(!even ? 0 : kept ? 1 : in / out);
  }
  if (even) {
    const ValueId y = n.Emit(largest ? "MaxPool" : "AveragePool", {batched.id},
                             {{"kernel_shape", kernel}, {"strides", kernel}});
    return c.FinalValues({batched.added ? n.Squeeze(y, {0}) : y, kNone});
  }
  for (int i = 0; i < spatial; ++i) {
    if (size[static_cast<size_t>(i)] < 0) continue;
    QUENCH_ASSIGN_OR_RETURN(x, AdaptiveAxis(n, x, first + i, size[static_cast<size_t>(i)],
                                            largest ? "ReduceMax" : "ReduceMean"));
  }
  return c.FinalValues({n.Emit("Identity", {x}), kNone});
}

// The maxima at their places in a plane, or volume, of zeros.
absl::Status MaxUnpoolOf(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  const int64_t first = n.Rank(x) - SpatialOf(n);
  if (first < 1) return c.Error("its input has too few axes");
  const ValueId planes = SizesBetween(n, x, 0, first), size = n.Sizes("output_size");
  const ValueId places = n.Emit("ReduceProd", {size, c.Ints({0})}, {{"keepdims", int64_t{1}}});
  const auto flat = [&](ValueId id) {
    return n.Emit("Reshape", {id, Joined(n, {planes, c.Ints({-1})}, 0)});
  };
  const ValueId zeros = Broadcast(n, n.Scalar(x, 0), Joined(n, {planes, places}, 0));
  const ValueId y =
      n.Emit("ScatterElements", {zeros, flat(n.In("indices")), flat(x)}, {{"axis", first}});
  return n.Finish(n.Emit("Reshape", {y, Joined(n, {planes, size}, 0)}));
}

// ---- Windows as columns ----

struct Columns {
  std::vector<int64_t> kernel, dilation, padding, stride;
};

static absl::StatusOr<Columns> ColumnsOf(const AtenNode& n) {
  Columns columns;
  QUENCH_ASSIGN_OR_RETURN(columns.kernel, n.IntsOf("kernel_size", 2, 1));
  QUENCH_ASSIGN_OR_RETURN(columns.dilation, n.IntsOf("dilation", 2, 1));
  QUENCH_ASSIGN_OR_RETURN(columns.padding, n.IntsOf("padding", 2, 0));
  QUENCH_ASSIGN_OR_RETURN(columns.stride, n.IntsOf("stride", 2, 1));
  return columns;
}

// [batch, channels * kernel, windows] -> [batch, channels, height, width]: windows add up where they overlap.
absl::Status Col2ImOf(Converter& c) {
  AtenNode n(c);
  ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const Columns columns, ColumnsOf(n));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> size, n.IntsOf("output_size", 2, 1));
  const bool batched = n.Rank(x) == 3;
  if (!batched) x = n.Unsqueeze(x, {0});
  const ValueId y = n.Emit("Col2Im", {x, c.Ints(size), c.Ints(columns.kernel)},
                           {{"dilations", columns.dilation},
                            {"pads", Doubled(columns.padding)},
                            {"strides", columns.stride}});
  return FinishBatched(n, y, !batched);
}

// The reverse, where windows repeat what they share.
absl::Status Im2Col(Converter& c) {
  AtenNode n(c);
  ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const Columns columns, ColumnsOf(n));
  const bool batched = n.Rank(x) == 4;
  if (!batched) x = n.Unsqueeze(x, {0});
  std::vector<int64_t> pads(8, 0);
  std::vector<Tensor> where;
  int64_t windows = 1;
  for (size_t i = 0; i < 2; ++i) {
    pads[2 + i] = pads[6 + i] = columns.padding[i];
    const int64_t size = n.SizeAt(x, static_cast<int64_t>(i) + 2);
    const int64_t room =
        size + 2 * columns.padding[i] - columns.dilation[i] * (columns.kernel[i] - 1) - 1;
    if (size < 0) return c.Unsupported("sizes that only a run knows");
    if (room < 0 || columns.stride[i] < 1) return c.Error("its window does not fit its input");
    const int64_t count = room / columns.stride[i] + 1;
    std::vector<int64_t> places;
    for (int64_t k = 0; k < columns.kernel[i]; ++k) {
      for (int64_t w = 0; w < count; ++w)
        places.push_back(k * columns.dilation[i] + w * columns.stride[i]);
    }
    where.push_back(Tensor::Of(DataType::kI64, {columns.kernel[i], count}, places));
    windows *= count;
  }
  if (std::count(pads.begin(), pads.end(), 0) < 8) x = n.Emit("Pad", {x, c.Ints(pads)});
  // [batch, channels, height, width] -> [batch, channels, kernel, rows, kernel, columns]
  x = n.Emit("Gather", {x, c.AddConstant(where[0])}, {{"axis", int64_t{2}}});
  x = n.Emit("Gather", {x, c.AddConstant(where[1])}, {{"axis", int64_t{4}}});
  const int64_t channels = n.SizeAt(x, 1), area = columns.kernel[0] * columns.kernel[1];
  if (channels < 0) return c.Unsupported("a number of channels that is known only at run time");
  const ValueId y = n.Reshape(n.Transpose(x, {0, 1, 2, 4, 3, 5}), {0, channels * area, windows});
  return FinishBatched(n, y, !batched);
}

// ---- Resizing ----

absl::Status Upsample(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In(n.Has("input") ? "input" : "self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "input"));
  const std::string& op = c.node().op;
  const int spatial = SpatialOf(n);
  const bool nearest = op.find("nearest") != std::string::npos;
  const bool cubic = op.find("bicubic") != std::string::npos;
  Attributes attributes;
  attributes["mode"] = std::string(nearest ? "nearest" : cubic ? "cubic" : "linear");
  if (nearest) {
    attributes["coordinate_transformation_mode"] = std::string("asymmetric");
    attributes["nearest_mode"] = std::string("floor");
    if (op.find("exact") != std::string::npos) {  // from the middle of a pixel
      attributes["coordinate_transformation_mode"] = std::string("half_pixel");
      attributes["nearest_mode"] = std::string("round_prefer_ceil");
    }
  } else {
    // pytorch_half_pixel gives 0 for a length of 1; PyTorch has no such exception.
    attributes["coordinate_transformation_mode"] =
        std::string(n.Flag("align_corners") ? "align_corners" : "half_pixel");
    if (cubic) attributes["cubic_coeff_a"] = -0.75;
  }
  if (op.find("_aa") != std::string::npos) {
    if (n.Flag("align_corners")) return c.Unsupported("align_corners with antialias");
    attributes["antialias"] = int64_t{1};
    attributes["exclude_outside"] = int64_t{1};
    if (cubic) attributes["cubic_coeff_a"] = -0.5;  // as Pillow has it
  }
  std::vector<int64_t> axes;
  for (int i = 0; i < spatial; ++i) axes.push_back(i + 2);
  attributes["axes"] = axes;
  std::vector<double> scales = n.Numbers("scale_factors");
  if (!scales.empty()) {
    if (scales.size() == 1) scales.resize(static_cast<size_t>(spatial), scales[0]);
    const std::vector<float> factors(scales.begin(), scales.end());
    const ValueId factor =
        c.AddConstant(Tensor::Of(DataType::kF32, {static_cast<int64_t>(factors.size())}, factors));
    return n.Finish(n.Emit("Resize", {x, kNone, factor}, std::move(attributes)));
  }
  if (!n.Has("output_size")) return c.Error("has neither output_size nor scale_factors");
  return n.Finish(
      n.Emit("Resize", {x, kNone, kNone, n.Sizes("output_size")}, std::move(attributes)));
}

absl::Status PixelShuffle(Converter& c) {
  AtenNode n(c);
  const bool down = n.Has("downscale_factor");
  const int64_t factor = n.Int(down ? "downscale_factor" : "upscale_factor", 1);
  const Batched image = WithBatch(n, n.In("self"), 2);
  const ValueId x = image.id;
  if (n.Rank(x) != 4 || factor < 1)
    return c.Unsupported(fmt::format("a rank of {} and a factor of {}", n.Rank(x), factor));
  if (!down)
    return FinishBatched(
        n, n.Emit("DepthToSpace", {x}, {{"blocksize", factor}, {"mode", std::string("CRD")}}),
        image.added);
  const int64_t channels = n.SizeAt(x, 1), height = n.SizeAt(x, 2), width = n.SizeAt(x, 3);
  if (channels < 0 || height < 0 || width < 0 || height % factor != 0 || width % factor != 0)
    return c.Unsupported("sizes that are known only at run time");
  const ValueId cut = n.Reshape(x, {-1, channels, height / factor, factor, width / factor, factor});
  const ValueId y = n.Reshape(n.Transpose(cut, {0, 1, 3, 5, 2, 4}),
                              {-1, channels * factor * factor, height / factor, width / factor});
  return FinishBatched(n, y, image.added);
}

absl::Status ChannelShuffle(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  const int64_t channels = n.SizeAt(x, 1), groups = n.Int("groups", 1);
  if (channels < 1 || groups < 1 || channels % groups != 0)
    return c.Unsupported(fmt::format("{} channels in {} groups", channels, groups));
  const ValueId cut = n.Reshape(x, {0, groups, channels / groups, -1});
  return n.Finish(n.Emit("Reshape", {n.Transpose(cut, {0, 2, 1, 3}), n.ShapeOf(x)}));
}

absl::Status AffineGridOf(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Emit("AffineGrid", {n.In("theta"), n.Sizes("size")},
                         {{"align_corners", int64_t{n.Flag("align_corners")}}}));
}

absl::Status GridSampler(Converter& c) {
  AtenNode n(c);
  const int64_t mode = n.Int("interpolation_mode"), border = n.Int("padding_mode");
  if (mode < 0 || mode > 2 || border < 0 || border > 2) return c.Error("has an unknown mode");
  const char* modes[] = {"linear", "nearest", "cubic"};
  const char* borders[] = {"zeros", "border", "reflection"};
  return n.Finish(n.Emit("GridSample", {n.In("input"), n.In("grid")},
                         {{"mode", std::string(modes[mode])},
                          {"padding_mode", std::string(borders[border])},
                          {"align_corners", int64_t{n.Flag("align_corners")}}}));
}

// ---- Padding ----

// Pairs from the last axis backwards.
absl::Status Pad(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  const char* name = n.Has("pad") ? "pad" : "padding";
  const std::optional<std::vector<int64_t>> pad = n.Ints(name);
  if (!pad) return c.Unsupported(fmt::format("{} is known only at run time", name));
  const auto rank = static_cast<size_t>(n.Rank(x));
  if (pad->size() % 2 != 0 || pad->size() > 2 * rank)
    return c.Error(fmt::format("{} has {} numbers, its input rank {}", name, pad->size(), rank));
  std::vector<int64_t> pads(2 * rank, 0);
  for (size_t i = 0; 2 * i < pad->size(); ++i) {
    pads[rank - 1 - i] = (*pad)[2 * i];
    pads[2 * rank - 1 - i] = (*pad)[2 * i + 1];
  }
  const std::string& op = c.node().op;
  std::string mode = n.Text("mode", "constant");
  if (op.starts_with("reflection")) mode = "reflect";
  if (op.starts_with("replication")) mode = "replicate";
  const std::string onnx = mode == "replicate" ? "edge" : mode == "circular" ? "wrap" : mode;
  if (onnx != "constant" && onnx != "reflect" && onnx != "edge" && onnx != "wrap")
    return c.Unsupported(fmt::format("mode `{}`", mode));
  const ValueId fill =
      onnx == "constant" && n.Has("value") ? n.Operand("value", n.TypeOf(x)) : kNone;
  return n.Finish(n.Emit("Pad", {x, c.Ints(pads), fill}, {{"mode", onnx}}));
}

}  // namespace quench::importer::torch_ops
