// Folds batch norms, scales and shifts into the weights before them.
//   pre: types inferred; scale, bias, mean and variance are constants
//   x -> Conv(W, b) -> BatchNormalization(s, t, m, v)
//     ==>   x -> Conv(W * k, (b - m) * k + t), k = s / sqrt(v + epsilon)
//   x -> Conv(W, b) -> Mul(k) -> Add(t)
//     ==>   x -> Conv(W * k, b * k + t), k and t per channel or scalar
//   For Conv, ConvTranspose and Gemm whose output is used once. Computed in double, rounded once to
//   the weights' type: f32, or f16 or bf16 where what is folded fits them.
//   scale_batch_norms, for those that no weights absorb, of f32:
//   x -> BatchNormalization(s, t, m, v) -> y
//     ==>   x -> Mul(k) -> Add(t - m * k) -> y, instead of a root and a division for each element;
//   not where values may be stored in 16 bits and means are far from 0
//   source: Jacob et al. 2018, arXiv 1712.05877, section 3.2 (the inference-time fold)
//   cases: FoldBatchNormsTest, tests/cases/passes/scale_batch_norms.ir.txt
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "common/passes/passes.h"
#include "common/passes/rewrite.h"

namespace quench::passes {
namespace {

// y = x * scale + shift, per output channel.
struct Affine {
  std::vector<double> scale;
  std::vector<double> shift;
};

bool IsFloats(const Tensor* tensor) {
  return tensor != nullptr && (tensor->dtype() == DataType::kF32 || IsHalf(tensor->dtype()));
}

// Values per channel of a constant that broadcasts along the channel axis (1) of a rank-`rank`
// tensor, or nullopt.
std::optional<std::vector<double>> PerChannel(const Tensor* constant, int rank, int64_t channels) {
  if (!IsFloats(constant)) return std::nullopt;
  std::vector<double> values(static_cast<size_t>(channels));
  if (constant->size() == 1) {
    if (constant->rank() > rank) return std::nullopt;
    values.assign(values.size(), constant->FloatAt(0));
    return values;
  }
  const int channel_from_end = rank - 1;  // axis 1, counted from the back
  if (constant->size() != channels || constant->rank() < channel_from_end ||
      constant->rank() > rank)
    return std::nullopt;
  if (constant->dims()[static_cast<size_t>(constant->rank() - channel_from_end)] != channels)
    return std::nullopt;
  for (size_t c = 0; c < values.size(); ++c) values[c] = constant->FloatAt(static_cast<int64_t>(c));
  return values;
}

std::optional<Affine> AffineOfBatchNorm(const Graph& graph, const Node& node, int64_t channels) {
  std::vector<double> parts[4];
  for (size_t i = 0; i < 4; ++i) {
    const Tensor* constant = ConstantOf(graph, node.inputs[i + 1]);
    if (!IsFloats(constant) || constant->size() != channels) return std::nullopt;
    for (int64_t c = 0; c < channels; ++c) parts[i].push_back(constant->FloatAt(c));
  }
  const double epsilon = node.Float("epsilon", 1e-5);
  Affine affine;
  for (size_t c = 0; c < static_cast<size_t>(channels); ++c) {
    const double scale = parts[0][c] / std::sqrt(parts[3][c] + epsilon);
    if (!std::isfinite(scale)) return std::nullopt;
    affine.scale.push_back(scale);
    affine.shift.push_back(parts[1][c] - parts[2][c] * scale);
  }
  return affine;
}

std::optional<Affine> AffineOfArithmetic(const Graph& graph, const Node& node, ValueId x,
                                         int64_t channels) {
  const bool left = node.inputs[0] == x;
  const ValueId other = node.inputs[left ? 1 : 0];
  if (other == x) return std::nullopt;
  const auto values = PerChannel(ConstantOf(graph, other), graph.value(x).type.rank(), channels);
  if (!values) return std::nullopt;
  const size_t n = static_cast<size_t>(channels);
  Affine affine{std::vector<double>(n, 1.0), std::vector<double>(n, 0.0)};
  for (size_t c = 0; c < n; ++c) {
    const double v = (*values)[c];
    if (node.op == "Mul") affine.scale[c] = v;
    if (node.op == "Add") affine.shift[c] = v;
    if (node.op == "Sub" && left) affine.shift[c] = -v;
    if (node.op == "Div" && left) affine.scale[c] = 1.0 / v;
    if (!std::isfinite(affine.scale[c]) || !std::isfinite(affine.shift[c])) return std::nullopt;
  }
  const bool taken =
      node.op == "Mul" || node.op == "Add" || (left && (node.op == "Sub" || node.op == "Div"));
  return taken ? std::optional(affine) : std::nullopt;
}

std::optional<Affine> AffineOf(const Graph& graph, const Node& node, ValueId x, int64_t channels) {
  if (node.op == "BatchNormalization") {
    return node.inputs[0] == x ? AffineOfBatchNorm(graph, node, channels) : std::nullopt;
  }
  return node.inputs.size() == 2 ? AffineOfArithmetic(graph, node, x, channels) : std::nullopt;
}

// Where the output channels of a weight lie: `run` elements of one after another, `count` of them in
// turn, others from every `group` elements on.
struct Channels {
  int64_t run = 1, count = 1, group = 1;
  int64_t Of(int64_t element) const { return element / group * count + element / run % count; }
};

Channels ChannelsOf(const Node& node, const std::vector<int64_t>& dims) {
  const int64_t count = ElementCount(dims).value();
  const int64_t per_first = count / dims[0];
  if (node.op == "Conv") return {per_first, dims[0], count};
  if (node.op == "Gemm") {
    return node.Int("transB", 0) != 0 ? Channels{dims[1], dims[0], count}
                                      : Channels{1, dims[1], count};
  }
  // ConvTranspose: [C, M / group, k...]; channel m of group g is g * (M / group) + m.
  return {per_first / dims[1], dims[1], count / node.Int("group", 1)};
}

int64_t OutputChannels(const Node& node, const std::vector<int64_t>& dims) {
  if (node.op == "Conv") return dims[0];
  if (node.op == "Gemm") return dims[node.Int("transB", 0) != 0 ? 0 : 1];
  return dims[1] * node.Int("group", 1);
}

struct Foldable {
  const Tensor* weight = nullptr;
  std::vector<double> bias;
};

// Weight and bias of a node that can absorb an affine map, or nullopt.
std::optional<Foldable> FoldableOf(const Graph& graph, const Node& node) {
  if (node.op != "Conv" && node.op != "ConvTranspose" && node.op != "Gemm") return std::nullopt;
  Foldable result;
  result.weight = ConstantOf(graph, node.inputs[1]);
  if (!IsFloats(result.weight) || result.weight->rank() < 2 || result.weight->size() == 0)
    return std::nullopt;
  if (node.op == "Gemm" && (node.Float("alpha", 1) != 1 || node.Float("beta", 1) != 1))
    return std::nullopt;
  const int64_t channels = OutputChannels(node, result.weight->dims());
  result.bias.assign(static_cast<size_t>(channels), 0.0);
  if (node.inputs.size() < 3 || node.inputs[2] == kNone) return result;
  const Tensor* bias = ConstantOf(graph, node.inputs[2]);
  if (!IsFloats(bias) || bias->rank() != 1 || bias->size() != channels) return std::nullopt;
  for (int64_t c = 0; c < channels; ++c) result.bias[static_cast<size_t>(c)] = bias->FloatAt(c);
  return result;
}

// Weight and bias times and plus the map; nothing where a finite number becomes infinite.
std::optional<std::pair<Tensor, Tensor>> Folded(const Node& node, const Foldable& foldable,
                                                const Affine& affine) {
  const Tensor& source = *foldable.weight;
  const Channels layout = ChannelsOf(node, source.dims());
  const bool halves = IsHalf(source.dtype());
  const std::span<const float> floats = source.as<float>();
  std::vector<float> weight(static_cast<size_t>(source.size()));
  const auto run = static_cast<size_t>(layout.run);
  for (size_t begin = 0; begin < weight.size(); begin += run) {
    const double scale = affine.scale[static_cast<size_t>(layout.Of(static_cast<int64_t>(begin)))];
    for (size_t i = begin; i < begin + run; ++i) {
      const double in = halves ? source.FloatAt(static_cast<int64_t>(i)) : floats[i];
      weight[i] = static_cast<float>(in * scale);
    }
  }
  std::vector<float> bias;
  for (size_t c = 0; c < affine.scale.size(); ++c) {
    bias.push_back(static_cast<float>(foldable.bias[c] * affine.scale[c] + affine.shift[c]));
  }
  const auto fits = [](float value) { return std::abs(value) <= 65504; };
  if (source.dtype() == DataType::kF16 && !(std::all_of(weight.begin(), weight.end(), fits) &&
                                            std::all_of(bias.begin(), bias.end(), fits))) {
    return std::nullopt;
  }
  const auto channels = static_cast<int64_t>(bias.size());
  return std::pair(Tensor::Floats(source.dtype(), source.dims(), weight),
                   Tensor::Floats(source.dtype(), {channels}, bias));
}

// Absorbs the single user of node `id`, if it is an affine map per channel. True if it did.
bool AbsorbUser(Graph& graph, NodeId id, std::vector<NodeId>& user, const std::vector<int>& uses) {
  const ValueId y = graph.node(id).outputs[0];
  if (uses[static_cast<size_t>(y)] != 1 || graph.IsOutput(y) ||
      user[static_cast<size_t>(y)] == kNone)
    return false;
  const NodeId next = user[static_cast<size_t>(y)];
  const auto foldable = FoldableOf(graph, graph.node(id));
  if (!foldable || !(graph.value(y).type == graph.value(graph.node(next).outputs[0]).type))
    return false;
  const auto affine =
      AffineOf(graph, graph.node(next), y, static_cast<int64_t>(foldable->bias.size()));
  if (!affine) return false;
  auto folded = Folded(graph.node(id), *foldable, *affine);
  if (!folded) return false;
  const std::string base = graph.node(id).name;
  const ValueId weight = graph.AddConstant(base + ".weight", std::move(folded->first));
  const ValueId bias = graph.AddConstant(base + ".bias", std::move(folded->second));
  graph.node(id).inputs.resize(3, kNone);
  graph.node(id).inputs[1] = weight;
  graph.node(id).inputs[2] = bias;
  // The node takes over the output of the one it absorbed, name and all.
  const ValueId result = graph.node(next).outputs[0];
  graph.node(next).outputs[0] = y;
  graph.node(next).inputs.assign(1, result);
  graph.node(next).op = "Identity";
  graph.node(next).attributes.clear();
  graph.node(id).outputs[0] = result;
  std::swap(graph.value(y).producer, graph.value(result).producer);
  user[static_cast<size_t>(y)] = kNone;
  return true;
}

// Whether x * scale + shift loses nothing in 16 bits that x had: x is rounded before its mean is subtracted, so that
// means far from 0 cancel. An input of the model has not been rounded yet.
bool BearsRounding(const Graph& graph, const Node& node) {
  constexpr double kFar = 4;  // deviations
  if (graph.value(node.inputs[0]).producer == kNone) return false;
  const Tensor &mean = *ConstantOf(graph, node.inputs[3]),
               &variance = *ConstantOf(graph, node.inputs[4]);
  const double epsilon = node.Float("epsilon", 1e-5);
  for (int64_t c = 0; c < mean.size(); ++c) {
    if (!(std::abs(mean.FloatAt(c)) <= kFar * std::sqrt(variance.FloatAt(c) + epsilon)))
      return false;
  }
  return true;
}

bool AreFloats(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) {
    return std::abs(value) <= std::numeric_limits<float>::max();
  });
}

// Makes a scale and a shift of a batch norm whose result alone is used.
void MakeArithmetic(Graph& graph, NodeId id, bool narrows) {
  const Node node = graph.node(id);  // adding nodes moves them
  const Type type = graph.value(node.inputs[0]).type;
  const bool only = std::count_if(node.outputs.begin(), node.outputs.end(),
                                  [](ValueId output) { return output != kNone; }) == 1;
  if (!only || node.outputs[0] == kNone || type.dtype != DataType::kF32 || !type.ranked ||
      type.rank() < 2 || !type.dims[1].is_static())
    return;
  const int64_t channels = type.dims[1].value();
  const std::optional<Affine> affine = AffineOfBatchNorm(graph, node, channels);
  if (!affine || !AreFloats(affine->scale) || !AreFloats(affine->shift)) return;
  if (narrows && !BearsRounding(graph, node)) return;
  std::vector<int64_t> dims(static_cast<size_t>(type.rank()) - 1, 1);
  dims[0] = channels;
  const auto constant = [&](const char* name, const std::vector<double>& values) {
    return graph.AddConstant(
        node.name + name,
        Tensor::Floats(DataType::kF32, dims, std::vector<float>(values.begin(), values.end())));
  };
  const ValueId scaled = AddTyped(graph, "Mul", node.name + ".scaled",
                                  {node.inputs[0], constant(".scale", affine->scale)}, type);
  Node& changed = graph.node(id);
  changed.op = "Add";
  changed.attributes.clear();
  changed.inputs = {scaled, constant(".shift", affine->shift)};
  changed.outputs.resize(1);
}

}  // namespace

absl::StatusOr<Graph> FoldBatchNorms(Graph graph, const PassOptions& options,
                                     const StepContext& context) {
  std::vector<int> uses = graph.UseCounts();
  std::vector<NodeId> user(graph.values.size(), kNone);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId id : graph.nodes[i].inputs) {
      if (id != kNone) user[static_cast<size_t>(id)] = static_cast<NodeId>(i);
    }
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    if (graph.nodes[i].outputs.empty() || graph.nodes[i].outputs[0] == kNone) continue;
    while (AbsorbUser(graph, static_cast<NodeId>(i), user, uses)) {
    }
  }
  graph.Compact();
  QUENCH_RETURN_IF_ERROR(ForEachBody(
      graph, [&](Graph body) { return FoldBatchNorms(std::move(body), options, context); }));
  return graph;
}

absl::StatusOr<Graph> ScaleBatchNorms(Graph graph, const PassOptions& options,
                                      const StepContext& context) {
  const bool narrows =
      options.narrows_later || IsHalf(options.store_as) || !options.node_types.empty();
  const size_t nodes = graph.nodes.size();
  for (size_t i = 0; i < nodes; ++i) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    if (graph.nodes[i].op == "BatchNormalization")
      MakeArithmetic(graph, static_cast<NodeId>(i), narrows);
  }
  QUENCH_RETURN_IF_ERROR(ForEachBody(
      graph, [&](Graph body) { return ScaleBatchNorms(std::move(body), options, context); }));
  if (graph.nodes.size() == nodes) return graph;
  return Settled(std::move(graph));
}

}  // namespace quench::passes
