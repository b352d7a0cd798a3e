#include "common/ops/fresh_symbols.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/ops/op.h"

namespace quench::ops {
namespace {

// A name that no symbol of the old table has, which may still follow.
std::string NameOfSize(size_t input, int axis, const SymbolTable& before) {
  std::string name = fmt::format("size_{}_{}", input, axis);
  while (before.Find(name)) name += "_";
  return name;
}

}  // namespace

absl::StatusOr<Graph> WithFreshSymbols(Graph graph) {
  const std::shared_ptr<SymbolTable> before = std::move(graph.symbols);
  graph.symbols = std::make_shared<SymbolTable>();
  std::map<std::string, Dim> sizes;  // by what they were
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    Type& type = graph.value(graph.inputs[i]).type;
    for (int axis = 0; axis < type.rank(); ++axis) {
      Dim& dim = type.dims[static_cast<size_t>(axis)];
      if (dim.is_static()) continue;
      const Symbol& symbol = before->at(dim.symbol());
      const auto [it, fresh] = sizes.try_emplace(before->ToString(dim));
      if (fresh) {
        const std::string name = symbol.is_input() ? symbol.name : NameOfSize(i, axis, *before);
        it->second = Dim::OfSymbol(graph.symbols->AddInput(
            name, {static_cast<int>(i), axis}, {symbol.min, symbol.max}, symbol.multiple_of));
      }
      dim = it->second;
    }
    graph.value(graph.inputs[i]).elements.reset();
  }
  for (Value& value : graph.values) {
    if (value.producer == kNone) continue;
    value.type = {};
    value.elements.reset();
  }
  QUENCH_RETURN_IF_ERROR(InferGraph(graph));
  return graph;
}

}  // namespace quench::ops
