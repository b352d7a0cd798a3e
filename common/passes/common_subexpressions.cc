// Computes equal things once.
//   pre: topological order
//   x -> Exp -> a, x -> Exp -> b   ==>   x -> Exp -> a = b;   equal small constants become one
//   case: CommonSubexpressionsTest
#include <cstring>
#include <map>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

constexpr size_t kSmallConstantBytes =
    4096;  // larger ones are compared by digest when the digest is known

void Append(std::string& key, const void* data, size_t size) {
  key.append(reinterpret_cast<const char*>(&size), sizeof(size));
  key.append(static_cast<const char*>(data), size);
}
void Append(std::string& key, const std::string& text) { Append(key, text.data(), text.size()); }
void Append(std::string& key, int64_t value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
void Append(std::string& key, double value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
template <typename T>
void Append(std::string& key, const std::vector<T>& values) {
  Append(key, static_cast<int64_t>(values.size()));
  for (const T& value : values) Append(key, value);
}

bool AppendTensor(std::string& key, const Tensor& tensor) {
  if (tensor.dtype() == DataType::kString || tensor.bytes().size() > kSmallConstantBytes)
    return false;
  Append(key, static_cast<int64_t>(tensor.dtype()));
  Append(key, tensor.dims());
  Append(key, tensor.bytes().data(), tensor.bytes().size());
  return true;
}

// False when the attribute has no cheap identity (bodies, types, large tensors): the node is then
// left alone.
bool AppendAttribute(std::string& key, const Attribute& attribute) {
  Append(key, static_cast<int64_t>(attribute.index()));
  return std::visit(
      [&](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, Tensor>) {
          return AppendTensor(key, value);
        } else if constexpr (std::is_same_v<T, GraphPtr> || std::is_same_v<T, Type>) {
          return false;
        } else {
          Append(key, value);
          return true;
        }
      },
      attribute);
}

std::optional<std::string> KeyOf(const Node& node) {
  if (ops::FindOp(node.op) == nullptr || ops::FindOp(node.op)->kind == ops::OpKind::kControl)
    return std::nullopt;
  std::string key;
  Append(key, node.op);
  Append(key, static_cast<int64_t>(node.inputs.size()));
  for (const ValueId id : node.inputs) Append(key, static_cast<int64_t>(id));
  for (const ValueId id : node.outputs) Append(key, static_cast<int64_t>(id == kNone));
  for (const auto& [name, attribute] : node.attributes) {
    Append(key, name);
    if (!AppendAttribute(key, attribute)) return std::nullopt;
  }
  return key;
}

void MergeConstants(Graph& graph) {
  std::map<std::string, ValueId> seen;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const ValueId id = static_cast<ValueId>(i);
    if (graph.value(id).constant == nullptr || graph.IsOutput(id)) continue;
    const Constant& constant = *graph.value(id).constant;
    std::string key;
    if (!AppendTensor(key, constant.tensor)) {
      if (constant.digest.empty()) continue;
      Append(key, constant.digest);
      Append(key, static_cast<int64_t>(constant.tensor.dtype()));
      Append(key, constant.tensor.dims());
    }
    const auto [first, inserted] = seen.emplace(std::move(key), id);
    if (!inserted) graph.ReplaceUses(id, first->second);
  }
}

}  // namespace

absl::StatusOr<Graph> MergeCommonSubexpressions(Graph graph, const PassOptions& options,
                                                const StepContext& context) {
  MergeConstants(graph);
  std::map<std::string, NodeId> seen;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const std::optional<std::string> key = KeyOf(graph.nodes[i]);
    if (!key) continue;
    const auto [first, inserted] = seen.emplace(*key, static_cast<NodeId>(i));
    if (inserted) continue;
    for (size_t k = 0; k < graph.nodes[i].outputs.size(); ++k) {
      Replace(graph, graph.nodes[i].outputs[k], graph.node(first->second).outputs[k]);
    }
  }
  graph.Compact();
  QUENCH_RETURN_IF_ERROR(ForEachBody(graph, [&](Graph body) {
    return MergeCommonSubexpressions(std::move(body), options, context);
  }));
  return graph;
}

}  // namespace quench::passes
