// Attention, and what prepares images and numbers for a network.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "common/base/status.h"
#include "services/importer/keras/call.h"
#include "services/importer/keras/converters.h"

namespace quench::importer::keras_layers {
namespace {

constexpr int64_t kMaxMask = int64_t{1} << 24;  // elements of a causal mask

// Query, value and key: as arguments in that order, by name, or (of Attention) in one list.
struct Attended {
  ValueId query = kNone, value = kNone, key = kNone, mask = kNone;
  bool causal = false;
};

absl::StatusOr<Attended> AttendedOf(KerasNode& n) {
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(2, 4));
  const KerasArguments call(n, "query value key query_mask value_mask key_mask attention_mask");
  Attended a;
  a.causal = call.Flag("use_causal_mask", n.Flag("causal"));
  a.mask = call.Tensor("attention_mask");
  for (const char* mask : {"query_mask", "value_mask", "key_mask"}) {
    if (call.Tensor(mask) != kNone) return n.c.Unsupported(fmt::format("{} is given", mask));
  }
  a.query = n.in(0);
  a.value = n.in(1);
  a.key = n.count() > 2 && a.mask != n.in(2) ? n.in(2) : a.value;
  if (const ValueId key = call.Tensor("key"); key != kNone) a.key = key;
  if (const ValueId value = call.Tensor("value"); value != kNone) a.value = value;
  for (const ValueId id : {a.query, a.value, a.key}) {
    if (n.c.Rank(id) != 3)
      return n.c.Unsupported(fmt::format("an input has rank {}, expected 3", n.c.Rank(id)));
  }
  return a;
}

// Scores [..., queries, keys] -> their softmax, where what a mask leaves out is 0.
absl::StatusOr<ValueId> Weigh(KerasNode& n, const Attended& a, ValueId scores) {
  const int rank = n.c.Rank(scores);
  const auto hide = [&](ValueId mask) {
    scores = n.Emit("Where", {mask, scores, n.Scalar(scores, -1e9)});
  };
  if (a.mask != kNone) {
    ValueId mask = n.Cast(a.mask, DataType::kBool);
    if (n.c.Rank(mask) == 3 && rank == 4) mask = n.Unsqueeze(mask, {1});
    hide(mask);
  }
  if (a.causal) {
    const int64_t queries = n.Size(scores, rank - 2), keys = n.Size(scores, rank - 1);
    if (queries < 1 || keys < 1 || queries > kMaxMask / keys)
      return n.c.Unsupported(
          "a causal mask of a size that is known only at run time, or too large");
    Tensor mask = Tensor::Zeros(DataType::kBool, {queries, keys});
    for (int64_t q = 0; q < queries; ++q) {
      for (int64_t k = 0; k < keys && k <= q; ++k)
        mask.mutable_bytes()[q * keys + k] = std::byte{1};
    }
    hide(n.c.AddConstant(std::move(mask)));
  }
  return n.Emit("Softmax", {scores}, {{"axis", int64_t{-1}}});
}

// x [batch, steps, width] through a kernel [width, heads, size]: [batch, heads, steps, size].
absl::StatusOr<ValueId> ToHeads(KerasNode& n, ValueId x, const std::string& part) {
  const std::vector<int64_t> dims = n.WeightDims(part + ".kernel");
  if (dims.size() != 3 || (n.Size(x, 2) >= 0 && dims[0] != n.Size(x, 2)))
    return n.c.Error(fmt::format("its {} kernel has the shape [{}], its input {} channels", part,
                                 fmt::join(dims, ", "), n.Size(x, 2)));
  const int64_t width = dims[1] * dims[2];
  ValueId y = n.Emit("MatMul", {x, n.Reshape(n.Weight(part + ".kernel"), {dims[0], width})});
  if (n.Weight(part + ".bias") != kNone)
    y = n.Emit("Add", {y, n.Reshape(n.Weight(part + ".bias"), {width})});
  return n.Transpose(n.Reshape(y, {0, 0, dims[1], dims[2]}), {0, 2, 1, 3});
}

absl::Status FinishHeads(KerasNode& n, const Attended& a, ValueId query, ValueId key, ValueId value,
                         double size) {
  const ValueId scaled = n.Binary("Mul", query, 1 / std::sqrt(size));
  QUENCH_ASSIGN_OR_RETURN(const ValueId weights,
                          Weigh(n, a, n.Emit("MatMul", {scaled, n.Transpose(key, {0, 1, 3, 2})})));
  const std::vector<int64_t> dims = n.WeightDims("output.kernel");
  if (dims.size() != 3)
    return n.c.Unsupported(fmt::format("its output kernel has rank {}", dims.size()));
  const int64_t width = dims[0] * dims[1];
  const ValueId joined =
      n.Reshape(n.Transpose(n.Emit("MatMul", {weights, value}), {0, 2, 1, 3}), {0, 0, width});
  ValueId y = n.Emit("MatMul", {joined, n.Reshape(n.Weight("output.kernel"), {width, dims[2]})});
  if (n.Weight("output.bias") != kNone) y = n.Emit("Add", {y, n.Weight("output.bias")});
  return n.c.FinalValues({y, n.c.num_outputs() > 1 ? weights : kNone});
}

}  // namespace

absl::Status MultiHead(Converter& c) {
  KerasNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const Attended a, AttendedOf(n));
  if (n.Has("attention_axes") && n.Ints("attention_axes", 1) != std::vector<int64_t>{1})
    return c.Unsupported("attention_axes are not [1]");
  QUENCH_ASSIGN_OR_RETURN(const ValueId query, ToHeads(n, a.query, "query"));
  QUENCH_ASSIGN_OR_RETURN(const ValueId key, ToHeads(n, a.key, "key"));
  QUENCH_ASSIGN_OR_RETURN(const ValueId value, ToHeads(n, a.value, "value"));
  return FinishHeads(n, a, query, key, value, static_cast<double>(n.Int("key_dim", 1)));
}

// Each head of keys and values serves several of queries.
absl::Status GroupedQuery(Converter& c) {
  KerasNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const Attended a, AttendedOf(n));
  const int64_t heads = n.Int("num_query_heads", 1), shared = n.Int("num_key_value_heads", 1);
  if (heads < 1 || shared < 1 || heads % shared != 0)
    return c.Error(fmt::format("has {} heads of queries and {} of keys", heads, shared));
  const auto repeat = [&](ValueId x) {
    if (heads == shared) return x;
    const std::vector<int64_t> times = {1, 1, heads / shared, 1, 1};
    const int64_t size = n.Size(x, 3), steps = n.Size(x, 2);
    const ValueId tiled = n.Emit("Tile", {n.Unsqueeze(x, {2}), c.Ints(times)});
    return n.Reshape(tiled, {0, heads, steps < 0 ? -1 : steps, size});
  };
  QUENCH_ASSIGN_OR_RETURN(const ValueId query, ToHeads(n, a.query, "query"));
  QUENCH_ASSIGN_OR_RETURN(const ValueId key, ToHeads(n, a.key, "key"));
  QUENCH_ASSIGN_OR_RETURN(const ValueId value, ToHeads(n, a.value, "value"));
  return FinishHeads(n, a, query, repeat(key), repeat(value),
                     static_cast<double>(n.Int("head_dim", 1)));
}

absl::Status Attention(Converter& c) {
  KerasNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const Attended a, AttendedOf(n));
  const bool additive = c.node().op == "AdditiveAttention";
  const std::string mode = n.Text("score_mode", "dot");
  ValueId scores = kNone;
  const auto scaled = [&](ValueId x) {
    return n.Weight("scale") == kNone ? x : n.Emit("Mul", {x, n.Weight("scale")});
  };
  if (!additive && mode == "dot") {
    scores = scaled(n.Emit("MatMul", {a.query, n.Transpose(a.key, {0, 2, 1})}));
  } else {
    const ValueId sum = n.Emit("Add", {n.Unsqueeze(a.query, {2}), n.Unsqueeze(a.key, {1})});
    const ValueId squashed =
        additive ? scaled(n.Emit("Tanh", {sum})) : n.Emit("Tanh", {scaled(sum)});
    scores = n.Reduce("ReduceSum", squashed, {3}, false);
    if (!additive) scores = n.Emit("Mul", {scores, n.Weight("concat_score_weight")});
  }
  QUENCH_ASSIGN_OR_RETURN(const ValueId weights, Weigh(n, a, scores));
  const ValueId y = n.Emit("MatMul", {weights, a.value});
  return c.FinalValues({y, c.num_outputs() > 1 ? weights : kNone});
}

// ---- Preparation ----

absl::Status PassFloat(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  return n.Finish(n.Float(n.in(0)));
}

absl::Status Rescaling(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  ValueId y = n.Float(n.in(0));
  const auto apply = [&](const char* op, const char* key, double neutral) {
    const std::vector<double> values = n.Numbers(key);
    if (values.empty() || (values.size() == 1 && values[0] == neutral)) return;
    if (values.size() == 1) {
      y = n.Binary(op, y, values[0]);
      return;
    }
    const std::vector<float> floats(values.begin(), values.end());
    y = n.Emit(op, {y, c.AddConstant(Tensor::Of(DataType::kF32,
                                                {static_cast<int64_t>(floats.size())}, floats))});
  };
  apply("Mul", "scale", 1);
  apply("Add", "offset", 0);
  return n.Finish(y);
}

// (x - mean) / max(sqrt(variance), 1e-7), over the axes that are not those of the statistics.
absl::Status Normalization(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  const ValueId x = n.Float(n.in(0));
  const int rank = c.Rank(x);
  std::vector<int64_t> shape(static_cast<size_t>(rank), 1);
  if (n.Has("axis")) {
    QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.Axes("axis", rank, -1));
    for (const int64_t axis : axes) {
      shape[static_cast<size_t>(axis)] = n.Size(x, static_cast<int>(axis));
      if (shape[static_cast<size_t>(axis)] < 1)
        return c.Unsupported(fmt::format("the size of axis {} is known only at run time", axis));
    }
  }
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  const auto statistic = [&](const char* name) -> absl::StatusOr<ValueId> {
    if (n.Weight(name) != kNone) return n.Reshape(n.Weight(name), shape);
    std::vector<double> values = n.Numbers(name);
    if (values.size() == 1) values.resize(static_cast<size_t>(count), values[0]);
    if (static_cast<int64_t>(values.size()) != count)
      return c.Error(fmt::format("its {} has {} numbers, expected {}", name, values.size(), count));
    return c.AddConstant(
        Tensor::Of(DataType::kF32, shape, std::vector<float>(values.begin(), values.end())));
  };
  QUENCH_ASSIGN_OR_RETURN(const ValueId mean, statistic("mean"));
  QUENCH_ASSIGN_OR_RETURN(const ValueId variance, statistic("variance"));
  const ValueId root = n.Emit("Sqrt", {variance});
  const ValueId deviation = n.Emit("Max", {root, n.Scalar(root, 1e-7)});
  if (n.Flag("invert")) return n.Finish(n.Emit("Add", {mean, n.Emit("Mul", {x, deviation})}));
  return n.Finish(n.Emit("Div", {n.Emit("Sub", {x, mean}), deviation}));
}

absl::StatusOr<ValueId> ResizeImages(KerasNode& n, ValueId x, const std::string& mode,
                                     int64_t height, int64_t width) {
  Attributes attributes = {{"axes", std::vector<int64_t>{2, 3}},
                           {"coordinate_transformation_mode", std::string("half_pixel")}};
  if (mode == "nearest") {
    attributes["mode"] = std::string("nearest");
    attributes["nearest_mode"] = std::string("round_prefer_ceil");
  } else if (mode == "bilinear") {
    attributes["mode"] = std::string("linear");
  } else if (mode == "bicubic") {
    attributes["mode"] = std::string("cubic");
    attributes["cubic_coeff_a"] = -0.5;
    attributes["exclude_outside"] = int64_t{1};
  } else {
    return n.c.Unsupported(fmt::format("its interpolation is `{}`", mode));
  }
  if (height < 1 || width < 1) return n.c.Error(fmt::format("its size is [{}, {}]", height, width));
  return n.Emit("Resize", {x, kNone, kNone, n.c.Ints({height, width})}, std::move(attributes));
}

absl::Status Resizing(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(4));
  for (const char* flag : {"crop_to_aspect_ratio", "pad_to_aspect_ratio", "antialias"}) {
    if (n.Flag(flag)) return c.Unsupported(fmt::format("`{}` is set", flag));
  }
  const ValueId x = n.ToFirst(n.Float(n.in(0)), 2);
  QUENCH_ASSIGN_OR_RETURN(const ValueId y, ResizeImages(n, x, n.Text("interpolation", "bilinear"),
                                                        n.Int("height"), n.Int("width")));
  return n.Finish(n.FromFirst(y, 2));
}

absl::Status CenterCrop(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(4));
  ValueId y = n.Float(n.in(0));
  const int first = n.ChannelsFirst() ? 2 : 1;
  const int64_t wanted[] = {n.Int("height"), n.Int("width")};
  for (int i = 0; i < 2; ++i) {
    const int64_t size = n.Size(y, first + i);
    if (size < wanted[i] || wanted[i] < 1)
      return c.Unsupported(fmt::format("crops {} of {}", wanted[i], size));
    const int64_t begin = (size - wanted[i]) / 2;
    y = n.Slice(y, first + i, begin, begin + wanted[i]);
  }
  return n.Finish(y);
}

// The number of boundaries that a number reaches.
absl::Status Discretization(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  const std::vector<double> bins = n.Numbers("bin_boundaries");
  if (bins.empty()) return c.Unsupported("its boundaries are not in the configuration");
  if (n.Text("output_mode", "int") != "int")
    return c.Unsupported(fmt::format("its output_mode is `{}`", n.Text("output_mode")));
  const ValueId x = n.Float(n.in(0));
  const ValueId edges =
      c.AddConstant(Tensor::Of(DataType::kF32, {static_cast<int64_t>(bins.size())},
                               std::vector<float>(bins.begin(), bins.end())));
  const ValueId reached = n.Emit("GreaterOrEqual", {n.Unsqueeze(x, {c.Rank(x)}), edges});
  const ValueId ones = n.Cast(reached, DataType::kI64);
  return n.Finish(n.Reduce("ReduceSum", ones, {c.Rank(x)}, false));
}

}  // namespace quench::importer::keras_layers
