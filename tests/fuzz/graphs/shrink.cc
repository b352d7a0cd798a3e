#include <algorithm>

#include "common/ops/evaluate.h"
#include "common/ops/fresh_symbols.h"
#include "tests/fuzz/graphs/check.h"

namespace quench::fuzz {
namespace {

// Without inputs and constants that nobody reads, with types inferred anew; nothing if that fails.
std::optional<Specimen> Tidied(Specimen specimen) {
  Graph& graph = specimen.graph;
  graph.Compact();
  const std::vector<int> uses = graph.UseCounts();
  std::vector<ValueId> inputs;
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (uses[static_cast<size_t>(graph.inputs[i])] == 0) continue;
    inputs.push_back(graph.inputs[i]);
    tensors.push_back(specimen.inputs[i]);
  }
  // Unread inputs leave by becoming values that nothing makes; Compact drops them.
  graph.inputs = inputs;
  graph.Compact();
  specimen.inputs = tensors;
  absl::StatusOr<Graph> fresh = ops::WithFreshSymbols(std::move(graph));
  if (!fresh.ok() || fresh->outputs.empty()) return std::nullopt;
  specimen.graph = *std::move(fresh);
  specimen.sizes.clear();
  for (int id = 0; id < specimen.graph.symbols->size(); ++id) {
    const Symbol& symbol = specimen.graph.symbols->at(id);
    const auto* axis = std::get_if<InputAxis>(&symbol.definition);
    if (axis != nullptr)
      specimen.sizes[symbol.name] =
          specimen.inputs[static_cast<size_t>(axis->input)].dims()[static_cast<size_t>(axis->axis)];
  }
  return specimen;
}

// The outputs of the node become inputs.
std::optional<Specimen> WithoutNode(Specimen specimen, size_t index,
                                    const std::map<std::string, Tensor>& values) {
  Graph& graph = specimen.graph;
  const std::vector<ValueId> outputs = graph.nodes[index].outputs;
  for (const ValueId id : outputs) {
    if (id == kNone) continue;
    const auto found = values.find(graph.value(id).name);
    if (found == values.end()) return std::nullopt;
    const Tensor& tensor = found->second;
    Graph& to = specimen.graph;
    std::erase(to.outputs, id);
    to.value(id).producer = kNone;
    to.value(id).elements.reset();
    to.value(id).type =
        Type::Tensor(tensor.dtype(), std::vector<Dim>(tensor.dims().begin(), tensor.dims().end()));
    to.inputs.push_back(id);
    specimen.inputs.push_back(tensor);
  }
  graph.nodes.erase(graph.nodes.begin() + static_cast<int64_t>(index));
  for (quench::Value& value : graph.values) {
    if (value.producer > static_cast<NodeId>(index)) --value.producer;
  }
  return Tidied(std::move(specimen));
}

}  // namespace

Specimen Shrink(Specimen specimen, const std::function<bool(const Specimen&)>& fails, int tries) {
  const auto accept = [&](std::optional<Specimen> smaller) {
    if (!smaller || tries-- <= 0 || !fails(*smaller)) return false;
    specimen = *std::move(smaller);
    return true;
  };
  // One output alone is the largest step.
  for (size_t i = 0; specimen.graph.outputs.size() > 1 && i < specimen.graph.outputs.size(); ++i) {
    Specimen one = specimen;
    one.graph.outputs = {specimen.graph.outputs[i]};
    if (accept(Tidied(std::move(one)))) break;
  }
  for (bool smaller = true; smaller && tries > 0;) {
    smaller = false;
    for (size_t i = specimen.graph.outputs.size(); i-- > 0 && specimen.graph.outputs.size() > 1;) {
      Specimen fewer = specimen;
      fewer.graph.outputs.erase(fewer.graph.outputs.begin() + static_cast<int64_t>(i));
      smaller = accept(Tidied(std::move(fewer))) || smaller;
    }
    std::map<std::string, Tensor> values;
    const auto keep = [&](const std::string& name, const Tensor& tensor) { values[name] = tensor; };
    if (!ops::Evaluate(specimen.graph, specimen.inputs, {}, {keep}).ok()) return specimen;
    for (size_t i = 0; i < specimen.graph.nodes.size() && tries > 0;) {
      if (accept(WithoutNode(specimen, i, values))) {
        smaller = true;
      } else {
        ++i;
      }
    }
  }
  return specimen;
}

}  // namespace quench::fuzz
