// Gathers each computation and the pointwise operations after it into one group.
//   pre: types inferred, topological order
//   x -> Conv -> y; y -> Sigmoid -> s; y, s -> Mul -> z
//     ==>   x -> q.fused{ Conv, Sigmoid, Mul } -> z
//   A group has one root (a compute node, or the first of a pointwise chain), takes pointwise nodes
//   of the root's shape, and lets only its last value escape. Its meaning is its body, so splitting
//   it (InlineGroups) is always legal.
//   case: FuseGroupsTest
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <span>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "common/ops/pointwise.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

constexpr size_t kMaxMembers = 24;  // beyond this a kernel body gains nothing and compiles slowly
constexpr size_t kMaxScan = 256;    // nodes looked at after a root

bool IsRoot(const std::string& op) {
  static constexpr std::string_view kRoots[] = {
      "Conv",   "ConvInteger",   "ConvTranspose",     "Gemm",
      "MatMul", "MatMulInteger", "q.sequence_matmul", "q.weight_only_matmul"};
  return std::find(std::begin(kRoots), std::end(kRoots), op) != std::end(kRoots);
}

bool IsPointwise(const Node& node) {
  return ops::IsPointwise(node) && node.outputs.size() == 1 && node.outputs[0] != kNone;
}

bool IsNumeric(const Type& type) {
  return type.kind == ValueKind::kTensor && type.ranked && type.dtype != DataType::kString &&
         !IsComplex(type.dtype) && DataTypeBits(type.dtype) >= 8;
}

class Grouper {
 public:
  explicit Grouper(const Graph& graph)
      : graph_(graph), uses_(graph.UseCounts()), grouped_(graph.nodes.size(), false) {}

  // Members of the group rooted at `root`, in order; fewer than two means no group.
  std::vector<NodeId> Grow(NodeId root) {
    const Node& first = graph_.node(root);
    if (grouped_[static_cast<size_t>(root)] || first.outputs.size() != 1 ||
        first.outputs[0] == kNone)
      return {};
    const Type& shape = graph_.value(first.outputs[0]).type;
    if ((!IsRoot(first.op) && !IsPointwise(first)) || !IsNumeric(shape)) return {};
    std::vector<NodeId> members{root};
    std::set<ValueId> inside{first.outputs[0]}, tainted;
    std::map<ValueId, int> open{{first.outputs[0], uses_[static_cast<size_t>(first.outputs[0])]}};
    size_t closed = 1;  // longest prefix from which only the last value escapes
    const size_t end = std::min(graph_.nodes.size(), static_cast<size_t>(root) + 1 + kMaxScan);
    for (size_t i = static_cast<size_t>(root) + 1; i < end && members.size() < kMaxMembers; ++i) {
      const Node& node = graph_.nodes[i];
      if (!Touches(node, inside) && !Touches(node, tainted)) continue;
      if (!MayJoin(static_cast<NodeId>(i), shape, tainted)) {
        for (const ValueId id : node.outputs) tainted.insert(id);
        continue;
      }
      members.push_back(static_cast<NodeId>(i));
      for (const ValueId id : node.inputs) {
        if (const auto found = open.find(id); found != open.end() && --found->second == 0)
          open.erase(found);
      }
      inside.insert(node.outputs[0]);
      open[node.outputs[0]] = uses_[static_cast<size_t>(node.outputs[0])];
      if (open.size() == 1) closed = members.size();
    }
    members.resize(closed);
    if (members.size() < 2) return {};
    for (const NodeId id : members) grouped_[static_cast<size_t>(id)] = true;
    return members;
  }

 private:
  static bool Touches(const Node& node, const std::set<ValueId>& values) {
    return std::any_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId id) { return values.contains(id); });
  }

  bool MayJoin(NodeId id, const Type& shape, const std::set<ValueId>& tainted) const {
    const Node& node = graph_.node(id);
    if (grouped_[static_cast<size_t>(id)] || !IsPointwise(node) || Touches(node, tainted))
      return false;
    // Integers are what groups hand on; who reads them dequantizes (Recomputed).
    if (node.op == "DequantizeLinear") return false;
    const Type& type = graph_.value(node.outputs[0]).type;
    if (!IsNumeric(type) || type.dims != shape.dims) return false;
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      return input == kNone || IsNumeric(graph_.value(input).type);
    });
  }

  const Graph& graph_;
  std::vector<int> uses_;
  std::vector<bool> grouped_;
};

// One number that a pointwise member takes: part of the body, so that kernels see its value.
bool IsScalarConstant(const Value& value) {
  return value.constant != nullptr && IsNumeric(value.type) && value.constant->tensor.size() == 1;
}

// A dequantized tensor of the group's shape that is not one of its members: cheaper to compute again
// than to keep in float.
const Node* Recomputed(const Graph& graph, ValueId id, const Type& shape) {
  const NodeId producer = graph.value(id).producer;
  if (producer == kNone) return nullptr;
  const Node& node = graph.node(producer);
  const bool plain =
      node.op == "DequantizeLinear" && IsPointwise(node) && graph.value(id).type.dims == shape.dims;
  for (size_t i = 1; plain && i < node.inputs.size(); ++i) {
    if (node.inputs[i] != kNone && !IsScalarConstant(graph.value(node.inputs[i]))) return nullptr;
  }
  return plain ? &node : nullptr;
}

// The q.fused node for `members`; its body has one input per value that comes from outside, except
// for single numbers, and dequantizes what comes in quantized.
Node MakeGroup(const Graph& graph, const std::vector<NodeId>& members) {
  Graph body;
  body.symbols = graph.symbols;
  body.stage = graph.stage;
  Node group;
  group.op = "q.fused";
  group.name = graph.node(members.front()).name;
  std::map<ValueId, ValueId> inner;
  const Type& shape = graph.value(graph.node(members.front()).outputs[0]).type;
  const std::function<void(const Node&)> add = [&](const Node& node) {
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) {
      if (input == kNone || inner.contains(input)) {
        inputs.push_back(input == kNone ? kNone : inner[input]);
        continue;
      }
      const Value& value = graph.value(input);
      if (IsPointwise(node) && IsScalarConstant(value)) {
        inner[input] = body.AddConstant(value.name, value.constant->tensor);
      } else if (const Node* again = Recomputed(graph, input, shape);
                 again != nullptr && IsPointwise(node)) {
        add(*again);
      } else {
        inner[input] = body.AddInput(value.name, value.type);
        body.value(inner[input]).elements = value.elements;
        group.inputs.push_back(input);
      }
      inputs.push_back(inner[input]);
    }
    const NodeId copy = body.AddNode(node.op, node.name, inputs, 1, node.attributes);
    body.node(copy).origin = node.origin;
    const ValueId output = body.node(copy).outputs[0];
    body.value(output).type = graph.value(node.outputs[0]).type;
    inner[node.outputs[0]] = output;
  };
  body.name = group.name;
  for (const NodeId id : members) {
    const Node& node = graph.node(id);
    group.origin +=
        (group.origin.empty() ? "" : "+") + (node.origin.empty() ? node.name : node.origin);
    add(node);
  }
  const ValueId last = graph.node(members.back()).outputs[0];
  body.outputs = {inner[last]};
  group.outputs = {last};
  group.attributes["body"] = std::make_shared<const Graph>(std::move(body));
  return group;
}

}  // namespace

absl::StatusOr<Graph> FuseGroups(Graph graph, const PassOptions& options,
                                 const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(ForEachBody(
      graph, [&](Graph body) { return FuseGroups(std::move(body), options, context); }));
  Grouper grouper(graph);
  std::map<NodeId, Node> groups;  // by last member, whose place the group takes
  std::set<NodeId> gone;
  // Compute roots choose first: a pointwise chain must not take the epilogue of a convolution.
  for (const bool compute : {true, false}) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (IsRoot(graph.nodes[i].op) != compute) continue;
      const std::vector<NodeId> members = grouper.Grow(static_cast<NodeId>(i));
      if (members.empty()) continue;
      groups[members.back()] = MakeGroup(graph, members);
      gone.insert(members.begin(), members.end());
    }
  }
  std::vector<Node> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const NodeId id = static_cast<NodeId>(i);
    if (const auto group = groups.find(id); group != groups.end()) {
      nodes.push_back(std::move(group->second));
    } else if (!gone.contains(id)) {
      nodes.push_back(std::move(graph.nodes[i]));
    }
  }
  graph.nodes = std::move(nodes);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId id : graph.nodes[i].outputs) {
      if (id != kNone) graph.value(id).producer = static_cast<NodeId>(i);
    }
  }
  // Values inside groups have no producer any more; nothing refers to them and Compact drops them.
  graph.Compact();
  return graph;
}

namespace {

// Appends the nodes of a group's body to `graph`.
void InlineOne(Graph& graph, std::vector<Node>& nodes, const Node& group) {
  const GraphPtr body = group.Body("body");
  // Fusion groups may share a number, so its name is that of the group too.
  const std::string prefix = group.op == "q.fused" ? group.name + "." : "";
  std::map<ValueId, ValueId> outer;
  for (size_t i = 0; i < body->inputs.size(); ++i) outer[body->inputs[i]] = group.inputs[i];
  for (size_t i = 0; i < body->outputs.size(); ++i) outer[body->outputs[i]] = group.outputs[i];
  for (size_t i = 0; i < body->values.size(); ++i) {
    const ValueId id = static_cast<ValueId>(i);
    if (outer.contains(id)) continue;
    const Value& value = body->value(id);
    if (value.constant == nullptr) {
      outer[id] = graph.AddValue(value.name, value.type);
      graph.value(outer[id]).elements = value.elements;
    } else {
      outer[id] = graph.AddValue(prefix + value.name, value.type);
      graph.value(outer[id]).constant = value.constant;
      graph.value(outer[id]).elements = value.elements;
    }
  }
  for (Node node : body->nodes) {
    for (ValueId& id : node.inputs) id = id == kNone ? kNone : outer[id];
    for (ValueId& id : node.outputs) id = id == kNone ? kNone : outer[id];
    nodes.push_back(std::move(node));
  }
}

}  // namespace

absl::StatusOr<Graph> InlineGroups(Graph graph,
                                   const std::function<bool(const Node&)>& inline_node) {
  std::vector<Node> nodes;
  const std::vector<Node> old = std::move(graph.nodes);
  graph.nodes.clear();
  for (const Node& node : old) {
    if (node.IsGroup() && inline_node(node)) {
      InlineOne(graph, nodes, node);
    } else {
      nodes.push_back(node);
    }
  }
  graph.nodes = std::move(nodes);
  std::set<std::string> names;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    const std::string base = node.name;
    for (int k = 1; !names.insert(node.name).second; ++k) node.name = fmt::format("{}.{}", base, k);
    for (const ValueId id : node.outputs) {
      if (id != kNone) graph.value(id).producer = static_cast<NodeId>(i);
    }
  }
  QUENCH_RETURN_IF_ERROR(
      ForEachBody(graph, [&](Graph body) { return InlineGroups(std::move(body), inline_node); }));
  return graph;
}

namespace {

using Taken = std::function<bool(const Graph&, const Node&)>;

// Only the last of these nodes has a result that others see.
bool EndsInOneValue(const Graph& graph, const std::vector<int>& uses,
                    std::span<const NodeId> members) {
  std::map<ValueId, int> inside;
  for (const NodeId id : members) {
    for (const ValueId input : graph.node(id).inputs) ++inside[input];
  }
  return std::all_of(members.begin(), members.end() - 1, [&](NodeId id) {
    const ValueId result = graph.node(id).outputs[0];
    return inside[result] == uses[static_cast<size_t>(result)];
  });
}

// The members as nodes: groups that are taken, as long as can be, and single ones. `all` of them are
// known not to be.
void CutMembers(const Graph& graph, const std::vector<int>& uses, std::span<const NodeId> members,
                const Taken& taken, std::vector<Node>& nodes) {
  size_t most = members.size() - 1;
  while (!members.empty()) {
    size_t length = std::min(most, members.size());
    for (; length > 1; --length) {
      const auto prefix = members.first(length);
      if (!EndsInOneValue(graph, uses, prefix)) continue;
      Node group = MakeGroup(graph, {prefix.begin(), prefix.end()});
      if (!taken(graph, group)) continue;
      nodes.push_back(std::move(group));
      break;
    }
    if (length <= 1) {
      length = 1;
      nodes.push_back(graph.node(members[0]));
    }
    members = members.subspan(length);
    most = members.size();
  }
}

}  // namespace

absl::StatusOr<Graph> CutGroups(Graph graph, const Taken& taken) {
  QUENCH_RETURN_IF_ERROR(
      ForEachBody(graph, [&](Graph body) { return CutGroups(std::move(body), taken); }));
  std::set<std::string> refused;
  std::vector<size_t> lengths;  // of what each node becomes
  for (const Node& node : graph.nodes) {
    const bool cut = node.op == "q.fused" && !taken(graph, node);
    if (cut) refused.insert(node.name);
    lengths.push_back(cut ? node.Body("body")->nodes.size() : 1);
  }
  if (refused.empty()) return graph;
  QUENCH_ASSIGN_OR_RETURN(graph, InlineGroups(std::move(graph), [&](const Node& node) {
                            return node.op == "q.fused" && refused.contains(node.name);
                          }));
  const std::vector<int> uses = graph.UseCounts();
  std::vector<Node> nodes;
  size_t first = 0;
  for (const size_t length : lengths) {
    std::vector<NodeId> members(length);
    std::iota(members.begin(), members.end(), static_cast<NodeId>(first));
    first += length;
    if (length == 1) {
      nodes.push_back(graph.node(members[0]));
    } else {
      CutMembers(graph, uses, members, taken, nodes);
    }
  }
  graph.nodes = std::move(nodes);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId id : graph.nodes[i].outputs) {
      if (id != kNone) graph.value(id).producer = static_cast<NodeId>(i);
    }
  }
  graph.Compact();  // values inside groups have no producer any more
  return graph;
}

}  // namespace quench::passes
