#include "services/codegen/kernels/slow_integers.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/ops/op.h"
#include "services/codegen/kernels/typical_sizes.h"

namespace quench::codegen {
namespace {

// Multiplications per number from which on it pays to make the number an integer (measured on
// AVX-512 with VNNI: products of two sides break even at 16, with constants earlier).
constexpr double kWorthwhile = 16;
constexpr int kMostMoves = 8;  // between a product and what makes its integers

const Node* ProducerIn(const Graph& graph, ValueId id) {
  const NodeId producer = graph.value(id).producer;
  return producer == quench::kNone ? nullptr : &graph.node(producer);
}

double ElementsOf(const Graph& graph, ValueId id) {
  double count = 1;
  for (const Dim dim : graph.value(id).type.dims)
    count *= static_cast<double>(TypicalValue(*graph.symbols, dim));
  return count;
}

// Numbers of `id` that a node of its own makes integers; 0 where they come from elsewhere.
double MadeIntegers(const Graph& graph, ValueId id) {
  for (int i = 0; i < kMostMoves; ++i) {
    const Node* producer = ProducerIn(graph, id);
    if (producer == nullptr) return 0;
    if (producer->op == "QuantizeLinear") return ElementsOf(graph, id);
    const ops::OpDef* op = ops::FindOp(producer->op);
    const bool moves = op != nullptr && op->quant == ops::QuantRole::kPassThrough;
    if (!moves || producer->inputs.empty()) return 0;
    id = producer->inputs[0];
  }
  return 0;
}

// The values outside that both sides of the root are; kNone where a side is inside.
std::vector<ValueId> SidesOf(const Node& node, const Graph& inside, const Node& root) {
  std::vector<ValueId> sides;
  for (size_t i = 0; i < 2 && i < root.inputs.size(); ++i) {
    if (&root == &node) {
      sides.push_back(root.inputs[i]);
      continue;
    }
    const auto at = std::find(inside.inputs.begin(), inside.inputs.end(), root.inputs[i]);
    sides.push_back(at == inside.inputs.end()
                        ? quench::kNone
                        : node.inputs[static_cast<size_t>(at - inside.inputs.begin())]);
  }
  std::erase(sides, quench::kNone);
  return sides;
}

// The node itself, or what computes in a group, with the graph that holds it. Null for an empty one.
struct Root {
  const Graph* graph = nullptr;
  const Node* node = nullptr;
};
Root RootOf(const Graph& graph, const Node& node) {
  if (node.op != "q.fused") return {&graph, &node};
  const GraphPtr body = node.Body("body");  // the node keeps it alive
  if (body == nullptr || body->nodes.empty()) return {};
  return {body.get(), &body->nodes[0]};
}

}  // namespace

double MultiplicationsOf(const Graph& graph, const Node& node) {
  const Root root = RootOf(graph, node);
  const ops::OpDef* op = root.node == nullptr ? nullptr : ops::FindOp(root.node->op);
  if (op == nullptr || op->macs == nullptr) return 0;
  const Dim macs = op->macs(ops::ContextOf(*root.graph, *root.node));
  return static_cast<double>(TypicalValue(*graph.symbols, macs));
}

std::string WhyIntegersSaveLittle(const Graph& graph, const Node& node) {
  const Root found = RootOf(graph, node);
  if (found.node == nullptr) return "";
  const Graph& inside = *found.graph;
  const Node& root = *found.node;
  const std::vector<ValueId> sides = SidesOf(node, inside, root);
  if (root.op == "ConvInteger" || root.op == "MatMulInteger") {
    double made = 0;
    for (const ValueId id : sides) made += MadeIntegers(graph, id);
    const double count = MultiplicationsOf(graph, node);
    if (made == 0 || count >= kWorthwhile * made) return "";
    return fmt::format(
        "only {:.1f} multiplications for each number that is made an integer for them",
        count / made);
  }
  if (root.op != "Conv" && root.op != "ConvTranspose" && root.op != "Gemm" && root.op != "MatMul")
    return "";
  const bool integers = std::any_of(sides.begin(), sides.end(), [&](ValueId id) {
    const Node* producer = ProducerIn(graph, id);
    return producer != nullptr && producer->op == "DequantizeLinear" &&
           graph.value(producer->inputs[0]).constant == nullptr;
  });
  return integers ? "computed in float, though what it reads is integers" : "";
}

}  // namespace quench::codegen
