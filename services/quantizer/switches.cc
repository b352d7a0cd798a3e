#include "services/quantizer/switches.h"

#include <fmt/format.h>

#include <iterator>
#include <set>

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
    int64_t layers = 0;
    for (const Part part : points_.parts) layers += part == Part::kCompute ? 1 : 0;
    const ValueId all =
        graph_.AddInput(std::string(kSwitchesInput), Type::Tensor(DataType::kBool, {Dim(layers)}));
    for (size_t i = 0; i < nodes_; ++i) {
      if (points_.parts[i] != Part::kCompute) continue;
      const size_t k = layer_of_.size();
      const std::string name = RootOf(points_.before[i]).name;
      graph_.metadata[KeyOf(k)] = name;
      const ValueId place =
          graph_.AddConstant(name + ".switch_place",
                             Tensor::Of(DataType::kI64, {}, std::vector{static_cast<int64_t>(k)}));
      layer_of_[i] = Node1("Gather", name + ".switch", {all, place});
    }
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
