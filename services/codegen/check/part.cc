#include "services/codegen/check/part.h"

#include <algorithm>

#include "common/ops/op.h"
#include "services/codegen/kernels/typical_sizes.h"

namespace quench::codegen {
namespace {

class Partitioner {
 public:
  Partitioner(const Graph& whole, const std::set<ValueId>& given)
      : whole_(whole), given_(given), taken_(whole.nodes.size()) {
    part_.graph.name = whole.name;
    part_.graph.stage = whole.stage;
    part_.graph.symbols = whole.symbols;
  }

  GraphPart Run(const std::vector<ValueId>& targets) {
    for (const ValueId target : targets) Take(whole_.value(target).producer);
    std::sort(part_.nodes.begin(), part_.nodes.end());  // the whole's order is topological
    for (const NodeId id : part_.nodes) Copy(whole_.node(id));
    for (const ValueId target : targets) part_.graph.outputs.push_back(made_.at(target));
    return std::move(part_);
  }

 private:
  // The node, and what it needs.
  void Take(NodeId first) {
    std::vector<NodeId> pending = {first};
    while (!pending.empty()) {
      const NodeId id = pending.back();
      pending.pop_back();
      if (taken_[static_cast<size_t>(id)]) continue;
      taken_[static_cast<size_t>(id)] = true;
      part_.nodes.push_back(id);
      for (const ValueId input : whole_.node(id).inputs) {
        if (input == quench::kNone || given_.contains(input)) continue;
        if (whole_.value(input).producer != quench::kNone)
          pending.push_back(whole_.value(input).producer);
      }
    }
  }

  void Copy(const Node& node) {
    Node copy = node;
    for (ValueId& input : copy.inputs) {
      if (input != quench::kNone) input = Operand(input);
    }
    for (ValueId& output : copy.outputs) {
      if (output == quench::kNone) continue;
      const Value& value = whole_.value(output);
      const ValueId made = part_.graph.AddValue(value.name, value.type);
      part_.graph.value(made).producer = static_cast<NodeId>(part_.graph.nodes.size());
      part_.graph.value(made).elements = value.elements;
      made_[output] = made;
      output = made;
    }
    part_.graph.nodes.push_back(std::move(copy));
  }

  ValueId Operand(ValueId id) {
    const Value& value = whole_.value(id);
    const bool is_given = value.producer == quench::kNone || given_.contains(id);
    if (!is_given) return made_.at(id);
    const auto [found, fresh] = operands_.emplace(id, quench::kNone);
    if (!fresh) return found->second;
    if (value.constant != nullptr) {
      found->second = part_.graph.AddValue(value.name, value.type);
      part_.graph.value(found->second).constant = value.constant;
      part_.graph.value(found->second).elements = value.elements;
    } else {
      found->second = part_.graph.AddInput(value.name, value.type);
      part_.inputs.push_back(value.name);
    }
    return found->second;
  }

  const Graph& whole_;
  const std::set<ValueId>& given_;
  std::vector<bool> taken_;  // nodes
  GraphPart part_;
  std::map<ValueId, ValueId> made_, operands_;  // of the whole's values
};

double Elements(const Graph& graph, ValueId id, TypicalSizes& sizes) {
  if (id == quench::kNone || !graph.value(id).type.ranked) return 0;
  double count = 1;
  for (const Dim dim : graph.value(id).type.dims)
    count *= static_cast<double>(std::max<int64_t>(sizes.Of(dim), 0));
  return count;
}

}  // namespace

ValueIds ValueIdsOf(const Graph& graph) {
  ValueIds ids;
  for (size_t i = 0; i < graph.values.size(); ++i)
    ids.emplace(graph.values[i].name, static_cast<ValueId>(i));
  return ids;
}

std::optional<ValueId> Find(const ValueIds& ids, const std::string& name) {
  const auto found = ids.find(name);
  return found == ids.end() ? std::nullopt : std::optional(found->second);
}

GraphPart PartBetween(const Graph& whole, const std::set<ValueId>& given,
                      const std::vector<ValueId>& targets) {
  return Partitioner(whole, given).Run(targets);
}

double InterpreterSeconds(const Graph& graph, const Node& node) {
  constexpr double kMultiplication = 1e-9, kElement = 3e-9, kTrips = 16;
  double seconds = 0;
  for (const auto& [name, attribute] : node.attributes) {
    const GraphPtr* body = std::get_if<GraphPtr>(&attribute);
    if (body != nullptr && *body != nullptr)
      seconds += (node.IsGroup() || node.op == "If" ? 1 : kTrips) * InterpreterSeconds(**body);
  }
  const ops::OpDef* op = ops::FindOp(node.op);
  if (op == nullptr || op->kind == ops::OpKind::kView || op->kind == ops::OpKind::kControl)
    return seconds;
  TypicalSizes sizes(*graph.symbols);
  double window = 1;
  for (const int64_t size :
       op->macs == nullptr ? node.Ints("kernel_shape") : std::vector<int64_t>())
    window *= static_cast<double>(size);
  for (const ValueId id : node.outputs) seconds += kElement * window * Elements(graph, id, sizes);
  if (op->work == ops::WorkKind::kReduction && !node.inputs.empty())
    seconds += kElement * Elements(graph, node.inputs[0], sizes);
  if (op->macs != nullptr) {
    seconds += kMultiplication * static_cast<double>(TypicalValue(
                                     *graph.symbols, op->macs(ops::ContextOf(graph, node))));
  }
  return seconds;
}

double InterpreterSeconds(const Graph& graph) {
  double seconds = 0;
  for (const Node& node : graph.nodes) seconds += InterpreterSeconds(graph, node);
  return seconds;
}

}  // namespace quench::codegen
