#include "services/quantizer/equalize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "common/passes/passes.h"

namespace quench::quantizer {
namespace {

constexpr int kRounds = 40;
constexpr double kSettled = 1e-3;  // of log s

// A convolution whose kernel may be rescaled.
struct Layer {
  NodeId node = kNone;
  std::vector<float> kernel, bias;  // bias empty: none
  int64_t outputs = 0, inputs = 0, groups = 1;
  int64_t spatial = 1;  // elements of the kernel per pair of channels

  int64_t per_group() const { return inputs / groups; }
  size_t At(int64_t output, int64_t input_of_group) const {
    return static_cast<size_t>((output * per_group() + input_of_group) * spatial);
  }
  // Calls visit(first element) for each run of `spatial` elements that output (or input) `channel`
  // touches.
  template <typename Visit>
  void ForOutput(int64_t channel, Visit visit) const {
    for (int64_t i = 0; i < per_group(); ++i) visit(At(channel, i));
  }
  template <typename Visit>
  void ForInput(int64_t channel, Visit visit) const {
    const int64_t group = channel / per_group(), outputs_of_group = outputs / groups;
    for (int64_t o = group * outputs_of_group; o < (group + 1) * outputs_of_group; ++o) {
      visit(At(o, channel % per_group()));
    }
  }
  double Largest(size_t first) const {
    double largest = 0;
    for (size_t i = first; i < first + static_cast<size_t>(spatial); ++i)
      largest = std::max(largest, std::abs(double{kernel[i]}));
    return largest;
  }
  double OutputRange(int64_t channel) const {
    double range = 0;
    ForOutput(channel, [&](size_t first) { range = std::max(range, Largest(first)); });
    return range;
  }
  double InputRange(int64_t channel) const {
    double range = 0;
    ForInput(channel, [&](size_t first) { range = std::max(range, Largest(first)); });
    return range;
  }
  void Scale(size_t first, double factor) {
    for (size_t i = first; i < first + static_cast<size_t>(spatial); ++i)
      kernel[i] = static_cast<float>(kernel[i] * factor);
  }
};

struct Pair {
  size_t before = 0, after = 0;  // layers
  std::vector<NodeId> between;   // activations and pooling, in order
  std::vector<double> scale;     // by which the channels are divided, in all
};

class Equalizer {
 public:
  Equalizer(Graph graph, const StepContext& context)
      : graph_(std::move(graph)), context_(context) {}

  absl::StatusOr<Equalized> Run() {
    Equalized result;
    FindLayers();
    FindPairs();
    result.pairs = static_cast<int>(pairs_.size());
    result.spread = Spread();
    for (int round = 0; round < kRounds; ++round) {
      QUENCH_RETURN_IF_ERROR(context_.Check());
      context_.Report({"equalize", "", round, kRounds});
      double moved = 0;
      for (Pair& pair : pairs_) moved = std::max(moved, Balance(pair));
      if (moved < kSettled) break;
    }
    result.remains = Spread();
    for (const Pair& pair : pairs_) RewriteBetween(pair);
    std::vector<bool> touched(layers_.size(), false);
    for (const Pair& pair : pairs_) touched[pair.before] = touched[pair.after] = true;
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (touched[i]) Replace(layers_[i]);
    }
    graph_.Compact();
    QUENCH_RETURN_IF_ERROR(ops::InferGraph(graph_));
    QUENCH_ASSIGN_OR_RETURN(result.graph,
                            passes::RemoveIdentities(std::move(graph_), {}, context_));
    return result;
  }

 private:
  const Tensor* F32(const Node& node, size_t input) const {
    if (input >= node.inputs.size()) return nullptr;
    const Tensor* tensor = passes::ConstantOf(graph_, node.inputs[input]);
    return tensor != nullptr && tensor->dtype() == DataType::kF32 ? tensor : nullptr;
  }

  void FindLayers() {
    uses_ = graph_.UseCounts();
    readers_.resize(graph_.values.size());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const ValueId id : graph_.nodes[i].inputs) {
        if (id != kNone) readers_[static_cast<size_t>(id)].push_back(static_cast<NodeId>(i));
      }
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      const Tensor* kernel = node.op == "Conv" ? F32(node, 1) : nullptr;
      if (kernel == nullptr || kernel->rank() < 3 || kernel->size() == 0) continue;
      const bool biased = node.inputs.size() > 2 && node.inputs[2] != kNone;
      const Tensor* bias = biased ? F32(node, 2) : nullptr;
      if (biased && (bias == nullptr || bias->size() != kernel->dims()[0])) continue;
      Layer layer;
      layer.node = static_cast<NodeId>(i);
      layer.kernel.assign(kernel->as<float>().begin(), kernel->as<float>().end());
      if (bias != nullptr) layer.bias.assign(bias->as<float>().begin(), bias->as<float>().end());
      layer.groups = node.Int("group", 1);
      layer.outputs = kernel->dims()[0];
      layer.inputs = kernel->dims()[1] * layer.groups;
      layer.spatial = kernel->size() / kernel->dims()[0] / kernel->dims()[1];
      layer_of_[layer.node] = layers_.size();
      layers_.push_back(std::move(layer));
    }
  }

  // Scaling the input scales the output: f(x * s) = f(x) * s for s > 0, channel by channel.
  bool ScalesThrough(const Node& node) const {
    static constexpr std::string_view kOps[] = {"Relu",        "LeakyRelu",         "MaxPool",
                                                "AveragePool", "GlobalAveragePool", "GlobalMaxPool",
                                                "Identity"};
    if (std::find(std::begin(kOps), std::end(kOps), node.op) != std::end(kOps))
      return node.outputs.size() == 1;
    return node.op == "PRelu" && F32(node, 1) != nullptr;
  }
  // Bounds of a Clip that become those of each channel.
  bool IsBounded(const Node& node) const {
    if (node.op != "Clip" || !IsImage(node)) return false;
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != kNone && F32(node, i) == nullptr) return false;
    }
    return true;
  }
  bool IsGated(const Node& node) const {
    return (node.op == "HardSwish" || node.op == "Swish") && IsImage(node);
  }
  // With an axis of channels.
  bool IsImage(const Node& node) const {
    const Type& type = graph_.value(node.inputs[0]).type;
    return type.ranked && type.rank() >= 2;
  }

  NodeId OnlyReader(ValueId id) const {
    const auto place = static_cast<size_t>(id);
    return uses_[place] == 1 && readers_[place].size() == 1 ? readers_[place][0] : kNone;
  }

  // x with x -> Sigmoid -> s and x, s -> Mul: the Sigmoid, then the Mul.
  std::optional<std::pair<NodeId, NodeId>> SigmoidGate(ValueId x) const {
    const auto place = static_cast<size_t>(x);
    if (uses_[place] != 2 || readers_[place].size() != 2) return std::nullopt;
    for (const size_t first : {0, 1}) {
      const NodeId gate = readers_[place][first], product = readers_[place][1 - first];
      if (graph_.node(gate).op != "Sigmoid" || graph_.node(product).op != "Mul" ||
          !IsImage(graph_.node(gate)))
        continue;
      const ValueId s = graph_.node(gate).outputs[0];
      const std::vector<ValueId>& inputs = graph_.node(product).inputs;
      if (OnlyReader(s) == product &&
          (inputs == std::vector<ValueId>{x, s} || inputs == std::vector<ValueId>{s, x}))
        return std::pair(gate, product);
    }
    return std::nullopt;
  }

  void FindPairs() {
    for (size_t before = 0; before < layers_.size(); ++before) {
      Pair pair;
      pair.before = before;
      ValueId value = graph_.node(layers_[before].node).outputs[0];
      for (;;) {
        if (const auto gate = SigmoidGate(value)) {
          pair.between.push_back(gate->first);
          value = graph_.node(gate->second).outputs[0];
          continue;
        }
        const NodeId reader = OnlyReader(value);
        if (reader == kNone || graph_.IsOutput(value)) break;
        const Node& node = graph_.node(reader);
        if (node.inputs[0] != value) break;
        if (const auto after = layer_of_.find(reader); after != layer_of_.end()) {
          pair.after = after->second;
          if (layers_[before].outputs != layers_[pair.after].inputs) break;
          pair.scale.assign(static_cast<size_t>(layers_[before].outputs), 1);
          pairs_.push_back(std::move(pair));
          break;
        }
        if (!ScalesThrough(node) && !IsBounded(node) && !IsGated(node)) break;
        pair.between.push_back(reader);
        value = node.outputs[0];
      }
    }
  }

  // One step of a pair; the largest |log s|.
  double Balance(Pair& pair) {
    Layer& before = layers_[pair.before];
    Layer& after = layers_[pair.after];
    double moved = 0;
    for (int64_t channel = 0; channel < before.outputs; ++channel) {
      const double a = before.OutputRange(channel), b = after.InputRange(channel);
      const double s = std::sqrt(a / b);
      if (a == 0 || b == 0 || !std::isfinite(s) || s < 1e-18 || s > 1e18) continue;
      moved = std::max(moved, std::abs(std::log(s)));
      before.ForOutput(channel, [&](size_t first) { before.Scale(first, 1 / s); });
      after.ForInput(channel, [&](size_t first) { after.Scale(first, s); });
      const auto place = static_cast<size_t>(channel);
      if (!before.bias.empty()) before.bias[place] = static_cast<float>(before.bias[place] / s);
      pair.scale[place] *= s;
    }
    return moved;
  }

  double Spread() const {
    double spread = 1;
    for (const Pair& pair : pairs_) {
      double least = std::numeric_limits<double>::infinity(), greatest = 0;
      for (int64_t channel = 0; channel < layers_[pair.before].outputs; ++channel) {
        const double range = layers_[pair.before].OutputRange(channel);
        if (range == 0) continue;
        least = std::min(least, range);
        greatest = std::max(greatest, range);
      }
      if (greatest > 0) spread = std::max(spread, greatest / least);
    }
    return spread;
  }

  // [1, C, 1, ...]: factors[c] * number for every channel.
  ValueId PerChannel(const std::string& name, const std::vector<double>& factors, double number,
                     int rank) {
    std::vector<float> values;
    for (const double factor : factors) values.push_back(static_cast<float>(factor * number));
    std::vector<int64_t> dims(static_cast<size_t>(rank), 1);
    dims[1] = static_cast<int64_t>(values.size());
    return graph_.AddConstant(name, Tensor::Of(DataType::kF32, dims, values));
  }

  void RewriteBetween(const Pair& pair) {
    std::vector<double> inverse;
    for (const double s : pair.scale) inverse.push_back(1 / s);
    for (const NodeId id : pair.between) {
      const Node node = graph_.node(id);
      if (ScalesThrough(node)) continue;
      const int rank = graph_.value(node.inputs[0]).type.rank();
      if (node.op == "Clip") {
        Bound(id, inverse, rank);
      } else {
        Gate(id, pair.scale, rank);
      }
    }
  }

  ValueId AddNode(const std::string& op, const std::string& name, std::vector<ValueId> inputs,
                  std::map<std::string, Attribute> attributes = {}) {
    return graph_.node(graph_.AddNode(op, name, std::move(inputs), 1, std::move(attributes)))
        .outputs[0];
  }

  // Clip(x, low, high) of all channels -> Min(Max(x, low / s), high / s); a bound of 0 is Relu's.
  void Bound(NodeId id, const std::vector<double>& inverse, int rank) {
    const Node node = graph_.node(id);
    ValueId x = node.inputs[0];
    const Tensor* low = F32(node, 1);
    const Tensor* high = F32(node, 2);
    if (low != nullptr && low->FloatAt(0) == 0) {
      x = AddNode("Relu", node.name + ".low", {x});
    } else if (low != nullptr) {
      x = AddNode("Max", node.name + ".low",
                  {x, PerChannel(node.name + ".lows", inverse, low->FloatAt(0), rank)});
    }
    if (high != nullptr) {
      x = AddNode("Min", node.name + ".high",
                  {x, PerChannel(node.name + ".highs", inverse, high->FloatAt(0), rank)});
    }
    Become(id, "Identity", {x});
  }

  // The gate of x / s is that of x: Sigmoid(x') -> Sigmoid(x' * s), and so for the gates within
  // HardSwish and Swish.
  void Gate(NodeId id, const std::vector<double>& scale, int rank) {
    const Node node = graph_.node(id);
    const ValueId x = node.inputs[0];
    const double alpha = node.op == "Swish" ? node.Float("alpha", 1) : 1;
    const ValueId full = AddNode("Mul", node.name + ".scaled",
                                 {x, PerChannel(node.name + ".scale", scale, alpha, rank)});
    if (node.op == "Sigmoid") {
      graph_.node(id).inputs[0] = full;
      return;
    }
    const ValueId gate = node.op == "Swish" ? AddNode("Sigmoid", node.name + ".gate", {full})
                                            : AddNode("HardSigmoid", node.name + ".gate", {full},
                                                      {{"alpha", 1.0 / 6}, {"beta", 0.5}});
    Become(id, "Mul", {x, gate});
  }

  void Become(NodeId id, const std::string& op, std::vector<ValueId> inputs) {
    Node& node = graph_.node(id);
    node.op = op;
    node.inputs = std::move(inputs);
    node.attributes.clear();
  }

  void Replace(const Layer& layer) {
    const Node node = graph_.node(layer.node);
    const Tensor& old = graph_.value(node.inputs[1]).constant->tensor;
    graph_.node(layer.node).inputs[1] = graph_.AddConstant(
        node.name + ".equalized", Tensor::Of(DataType::kF32, old.dims(), layer.kernel));
    if (layer.bias.empty()) return;
    const auto count = static_cast<int64_t>(layer.bias.size());
    graph_.node(layer.node).inputs[2] = graph_.AddConstant(
        node.name + ".equalized_bias", Tensor::Of(DataType::kF32, {count}, layer.bias));
  }

  Graph graph_;
  const StepContext& context_;
  std::vector<int> uses_;
  std::vector<std::vector<NodeId>> readers_;  // per value
  std::vector<Layer> layers_;
  std::map<NodeId, size_t> layer_of_;
  std::vector<Pair> pairs_;
};

}  // namespace

absl::StatusOr<Equalized> Equalize(Graph graph, const StepContext& context) {
  if (graph.stage != Stage::kCanonical) {
    return InvalidArgument("the module is at stage `{}`, equalization takes `canonical`",
                           StageName(graph.stage));
  }
  QUENCH_RETURN_IF_ERROR(ops::InferGraph(graph));  // a module may come from anywhere
  return Equalizer(std::move(graph), context).Run();
}

}  // namespace quench::quantizer
