#include "services/quantizer/parts.h"

#include <fnmatch.h>

#include <algorithm>

#include "common/base/status.h"
#include "common/ops/op.h"

namespace quench::quantizer {
namespace {

bool IsAmong(const std::string& op, std::initializer_list<std::string_view> ops) {
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

std::vector<const Node*> MembersOf(const Node& node) {
  if (node.op != "q.fused") return {&node};
  std::vector<const Node*> members;
  for (const Node& member : node.Body("body")->nodes) members.push_back(&member);
  return members;
}

bool IsF32(const Graph& graph, ValueId id) {
  if (id == kNone) return false;
  const Type& type = graph.value(id).type;
  return type.kind == ValueKind::kTensor && type.dtype == DataType::kF32 && type.ranked;
}

bool Matches(const std::string& pattern, const Node& node) {
  for (const Node* member : MembersOf(node)) {
    if (pattern.starts_with("op:")) {
      if (::fnmatch(pattern.c_str() + 3, member->op.c_str(), 0) == 0) return true;
    } else if (::fnmatch(pattern.c_str(), member->name.c_str(), 0) == 0 ||
               ::fnmatch(pattern.c_str(), member->origin.c_str(), 0) == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

const Node& RootOf(const Node& node) { return *MembersOf(node).front(); }

Part PartOf(const Graph& graph, const Node& node) {
  for (const ValueId id : node.outputs) {
    if (id != kNone && !IsF32(graph, id)) return Part::kFloat;
  }
  const std::vector<const Node*> members = MembersOf(node);
  const std::string& root = members.front()->op;
  if (IsAmong(root, {"Conv", "ConvTranspose", "Gemm", "MatMul"})) return Part::kCompute;
  const auto pointwise = [](const Node* member) {
    const ops::OpDef* op = ops::FindOp(member->op);
    return op != nullptr && op->kind == ops::OpKind::kPointwise &&
           op->quant != ops::QuantRole::kNone;
  };
  if (std::all_of(members.begin(), members.end(), pointwise)) return Part::kPointwise;
  if (members.size() > 1) return Part::kFloat;
  if (IsAmong(root, {"AveragePool", "GlobalAveragePool"})) return Part::kPool;
  const ops::OpDef* op = ops::FindOp(root);
  const bool moves = op != nullptr && op->quant == ops::QuantRole::kPassThrough;
  return moves ? Part::kMoves : Part::kFloat;
}

std::vector<int> DataInputs(const Node& node) {
  const std::string& root = RootOf(node).op;
  const ops::OpDef* op = ops::FindOp(root);
  const bool only_first = op != nullptr && op->kind != ops::OpKind::kPointwise &&
                          !IsAmong(root, {"Conv", "ConvTranspose", "Gemm", "MatMul", "Concat"});
  std::vector<int> inputs;
  for (size_t i = 0; i < node.inputs.size() && (i == 0 || !only_first); ++i) {
    inputs.push_back(static_cast<int>(i));
  }
  return inputs;
}

int OperandInput(const Node& node, int operand) {
  const Node& root = RootOf(node);
  const auto place = static_cast<size_t>(operand);
  if (place >= root.inputs.size() || root.inputs[place] == kNone) return -1;
  if (node.op != "q.fused") return operand;
  const Graph& body = *node.Body("body");
  const auto found = std::find(body.inputs.begin(), body.inputs.end(), root.inputs[place]);
  return found == body.inputs.end() ? -1 : static_cast<int>(found - body.inputs.begin());
}

absl::StatusOr<std::vector<bool>> Selected(const Graph& fused, const QuantizeOptions& options) {
  std::vector<bool> selected(fused.nodes.size(), options.include.empty());
  StatusCollector problems;
  for (const bool including : {true, false}) {
    for (const std::string& pattern : including ? options.include : options.exclude) {
      bool found = false;
      for (size_t i = 0; i < fused.nodes.size(); ++i) {
        if (!Matches(pattern, fused.nodes[i])) continue;
        selected[i] = including;
        found = true;
      }
      if (!found) {
        problems.Add(
            InvalidArgument("{}: no node fits `{}`", including ? "include" : "exclude", pattern));
      }
    }
  }
  if (!problems.ok()) return problems.Finish();
  return selected;
}

}  // namespace quench::quantizer
