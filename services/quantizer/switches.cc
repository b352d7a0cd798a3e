#include "services/quantizer/switches.h"

#include <fmt/format.h>

#include <iterator>
#include <set>

#include "common/base/status.h"
#include "common/ir/hash.h"
#include "common/ops/op.h"

namespace quench::quantizer {
namespace {

// Keys of a module's metadata: what it was made from, and the layer of each switch.
constexpr char kFloatModule[] = "switches.of";
std::string KeyOf(size_t k) { return fmt::format("switch.{}", k); }

class SwitchBuilder {
 public:
  SwitchBuilder(Graph& graph, const QuantizationPoints& points)
      : graph_(graph), points_(points), nodes_(points.before.size()) {}

  void Run() {
    AddLayerSwitches();
    FindReaders();
    for (const auto& [value, real] : points_.real) {
      chosen_[value] =
          Choose(graph_.value(value).name + ".chosen", Any(readers_[value]), real, value);
    }
    for (size_t i = 0; i < nodes_; ++i) {
      if (layer_of_.contains(i)) {
        AddTwin(i);
      } else if (points_.parts[i] != Part::kExact) {
        Redirect(graph_.nodes[i].inputs, chosen_);
      }
    }
  }

 private:
  using Ids = std::vector<ValueId>;

  static void Redirect(Ids& inputs, const std::map<ValueId, ValueId>& to) {
    for (ValueId& id : inputs) {
      if (const auto found = to.find(id); found != to.end()) id = found->second;
    }
  }

  ValueId Node1(const std::string& op, const std::string& name, Ids inputs) {
    return graph_.node(graph_.AddNode(op, name, std::move(inputs))).outputs[0];
  }

  ValueId Choose(const std::string& name, ValueId on, ValueId integers, ValueId real) {
    return Node1("Where", name, {on, integers, real});
  }

  void AddLayerSwitches() {
    std::vector<size_t> places;
    std::vector<std::string> names;
    for (size_t i = 0; i < nodes_; ++i) {
      if (points_.parts[i] != Part::kCompute) continue;
      places.push_back(i);
      names.push_back(RootOf(points_.before[i]).name);
    }
    const Ids switches = AddSwitchInput(graph_, names);
    for (size_t k = 0; k < places.size(); ++k) layer_of_[places[k]] = switches[k];
  }

  // As PlanParts wants values, with what each depends on.
  void FindReaders() {
    for (size_t i = nodes_; i-- > 0;) {
      if (StaysFloat(points_.parts[i])) continue;
      const Node& node = points_.before[i];
      const auto layer = layer_of_.find(i);
      std::set<ValueId> on;
      if (layer != layer_of_.end()) {
        on.insert(layer->second);
      } else {
        for (const ValueId id : node.outputs) {
          const auto found = readers_.find(id);
          if (found != readers_.end()) on.insert(found->second.begin(), found->second.end());
        }
      }
      for (const int input : DataInputs(node)) {
        const ValueId id = node.inputs[static_cast<size_t>(input)];
        if (!points_.real.contains(id)) continue;
        if (layer != layer_of_.end() && IsPartialSum(graph_, node, input)) {
          partial_.insert({i, input});
          continue;
        }
        if (layer != layer_of_.end() || points_.fixed(id))
          readers_[id].insert(on.begin(), on.end());
      }
    }
  }
  // From the last to the first, so that values which the same later layers read share their sums.
  ValueId Any(const std::set<ValueId>& switches) {
    ValueId any = *switches.rbegin();
    for (auto next = std::next(switches.rbegin()); next != switches.rend(); ++next) {
      const auto [known, fresh] = any_.emplace(std::pair(*next, any), kNone);
      if (fresh) known->second = Node1("Or", graph_.value(*next).name + ".any", {*next, any});
      any = known->second;
    }
    return any;
  }

  // The product as it was, beside the one in integers; whoever reads it takes the one that is on.
  void AddTwin(size_t i) {
    const Node& before = points_.before[i];
    Ids& operands = graph_.nodes[i].inputs;
    for (size_t k = 0; k < operands.size(); ++k) {
      const auto& to = partial_.contains({i, static_cast<int>(k)}) ? chosen_ : points_.real;
      if (const auto found = to.find(operands[k]); found != to.end()) operands[k] = found->second;
    }
    Ids inputs = before.inputs;
    Redirect(inputs, chosen_);
    const NodeId twin = graph_.AddNode(before.op, before.name + ".float", std::move(inputs),
                                       static_cast<int>(before.outputs.size()), before.attributes);
    for (size_t k = 0; k < before.outputs.size(); ++k) {
      const ValueId out = before.outputs[k];
      if (out == kNone) continue;
      const std::string name = graph_.value(out).name;
      const ValueId integers = graph_.AddValue(name + ".integers", graph_.value(out).type);
      graph_.nodes[i].outputs[k] = integers;
      graph_.value(integers).producer = static_cast<NodeId>(i);
      const NodeId choice = graph_.AddNode("Where", name + ".choice",
                                           {layer_of_[i], integers, graph_.node(twin).outputs[k]});
      graph_.node(choice).outputs[0] = out;  // keeps its name and its readers
      graph_.value(out).producer = choice;
    }
  }

  Graph& graph_;
  const QuantizationPoints& points_;
  const size_t nodes_;                                  // that there were at first
  std::map<size_t, ValueId> layer_of_;                  // product -> its switch
  std::map<ValueId, std::set<ValueId>> readers_;        // wanted value -> switches that need it so
  std::map<std::pair<ValueId, ValueId>, ValueId> any_;  // of two
  std::set<std::pair<size_t, int>> partial_;            // inputs of products, see IsPartialSum
  std::map<ValueId, ValueId> chosen_;                   // wanted value -> as it is read
};

bool IsFloatTensor(const Graph& graph, ValueId id) {
  if (id == kNone) return false;
  const Type& type = graph.value(id).type;
  return type.kind == ValueKind::kTensor && type.dtype == DataType::kF32;
}

// The value as 16 bits hold it where the switch is on.
NodeId AddRounding(Graph& graph, ValueId id, DataType type, ValueId on) {
  const std::string name = graph.value(id).name;
  const auto cast = [&](ValueId from, DataType to) {
    const NodeId node = graph.AddNode("Cast", fmt::format("{}.as_{}", name, DataTypeName(to)),
                                      {from}, 1, {{"to", static_cast<int64_t>(to)}});
    return graph.node(node).outputs[0];
  };
  const ValueId rounded = cast(cast(id, type), DataType::kF32);
  return graph.AddNode("Where", name + ".rounded", {on, rounded, id});
}

// Operands and results of the layer are rounded where its switch is on.
void RoundLayer(Graph& graph, const RoundedLayer& layer, ValueId on) {
  std::map<ValueId, ValueId> rounded;
  for (const NodeId id : layer.nodes) {
    for (size_t i = 0; i < graph.node(id).inputs.size(); ++i) {
      const ValueId input = graph.node(id).inputs[i];
      if (!IsFloatTensor(graph, input)) continue;
      const auto [known, fresh] = rounded.emplace(input, kNone);
      if (fresh) known->second = graph.node(AddRounding(graph, input, layer.type, on)).outputs[0];
      graph.node(id).inputs[i] = known->second;
    }
    for (size_t i = 0; i < graph.node(id).outputs.size(); ++i) {
      const ValueId out = graph.node(id).outputs[i];
      if (!IsFloatTensor(graph, out)) continue;
      const ValueId exact = graph.AddValue(graph.value(out).name + ".exact", graph.value(out).type);
      graph.node(id).outputs[i] = exact;
      graph.value(exact).producer = id;
      const NodeId choice = AddRounding(graph, exact, layer.type, on);
      graph.node(choice).outputs[0] = out;  // keeps its name and its readers
      graph.value(out).producer = choice;
    }
  }
}

}  // namespace

void ReadIntegers(Graph& graph, const QuantizationPoints& points) {
  for (size_t i = 0; i < points.before.size(); ++i) {
    if (points.parts[i] == Part::kExact) continue;
    for (ValueId& id : graph.nodes[i].inputs) {
      if (const auto found = points.real.find(id); found != points.real.end()) id = found->second;
    }
  }
}

void AddSwitches(Graph& graph, const QuantizationPoints& points, const std::string& float_module) {
  SwitchBuilder(graph, points).Run();
  graph.metadata[kFloatModule] = float_module;
}

std::vector<ValueId> AddSwitchInput(Graph& graph, const std::vector<std::string>& layers) {
  const Dim count(static_cast<int64_t>(layers.size()));
  const ValueId all =
      graph.AddInput(std::string(kSwitchesInput), Type::Tensor(DataType::kBool, {count}));
  std::vector<ValueId> switches;
  for (size_t k = 0; k < layers.size(); ++k) {
    graph.metadata[KeyOf(k)] = layers[k];
    const ValueId place =
        graph.AddConstant(layers[k] + ".switch_place",
                          Tensor::Of(DataType::kI64, {}, std::vector{static_cast<int64_t>(k)}));
    const NodeId gather = graph.AddNode("Gather", layers[k] + ".switch", {all, place});
    switches.push_back(graph.node(gather).outputs[0]);
  }
  return switches;
}

absl::StatusOr<Graph> WithRoundingSwitches(Graph graph, const std::vector<RoundedLayer>& layers) {
  if (graph.FindValue(std::string(kSwitchesInput))) {
    return InvalidArgument("the module has a value `{}` already, the name of the switches",
                           kSwitchesInput);
  }
  std::vector<std::string> names;
  for (const RoundedLayer& layer : layers) names.push_back(layer.name);
  const std::string fingerprint = Fingerprint(graph);
  const std::vector<ValueId> switches = AddSwitchInput(graph, names);
  for (size_t k = 0; k < layers.size(); ++k) RoundLayer(graph, layers[k], switches[k]);
  graph.metadata[kFloatModule] = fingerprint;
  graph.Compact();
  QUENCH_RETURN_IF_ERROR(ops::InferGraph(graph));
  return graph;
}

std::string FloatModuleOf(const Graph& graph) {
  const auto found = graph.metadata.find(kFloatModule);
  return found == graph.metadata.end() ? "" : found->second;
}

std::vector<std::string> SwitchedLayers(const Graph& graph) {
  std::vector<std::string> layers;
  for (size_t k = 0;; ++k) {
    const auto found = graph.metadata.find(KeyOf(k));
    if (found == graph.metadata.end()) return layers;
    layers.push_back(found->second);
  }
}

}  // namespace quench::quantizer
