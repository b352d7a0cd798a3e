#include "common/passes/rounded.h"

#include <memory>
#include <random>
#include <vector>

namespace quench::passes {
namespace {

Tensor Number(DataType type, double number) {
  if (type == DataType::kF64) return Tensor::Of(type, {}, std::vector<double>{number});
  return Tensor::Floats(type, {}, std::vector<float>{static_cast<float>(number)});
}

// A product of `exact` and a number near 1 takes its place in all uses.
void Round(Graph& graph, ValueId exact, double by, std::mt19937_64& random) {
  if (exact == kNone || !IsFloat(graph.value(exact).type.dtype)) return;
  const Type type = graph.value(exact).type;
  // By hand: what distributions of the standard library give is not the same everywhere.
  const double part = static_cast<double>(random() >> 11) * 0x1p-52 - 1;
  const ValueId factor = graph.AddConstant("factor", Number(type.dtype, 1 + by * part));
  const NodeId rounded = graph.AddNode("Mul", "rounded", {factor, factor});
  const ValueId off = graph.node(rounded).outputs[0];
  graph.value(off).type = type;
  graph.ReplaceUses(exact, off);
  graph.node(rounded).inputs[0] = exact;
}

Graph Rounded(Graph graph, double by, std::mt19937_64& random) {
  const size_t nodes = graph.nodes.size();
  for (const ValueId input : graph.inputs) Round(graph, input, by, random);
  for (size_t n = 0; n < nodes; ++n) {
    for (auto& [name, attribute] : graph.nodes[n].attributes) {
      if (const GraphPtr* body = std::get_if<GraphPtr>(&attribute); body != nullptr && *body)
        attribute = std::make_shared<const Graph>(Rounded(**body, by, random));
    }
    const std::vector<ValueId> outputs = graph.nodes[n].outputs;
    for (const ValueId made : outputs) Round(graph, made, by, random);
  }
  graph.Compact();
  return graph;
}

}  // namespace

Graph WithRounding(const Graph& graph, double by, uint64_t seed) {
  std::mt19937_64 random(seed);
  return Rounded(graph, by, random);
}

}  // namespace quench::passes
