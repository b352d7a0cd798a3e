#include "services/importer/onnx/shared_constants.h"

#include <algorithm>
#include <string_view>
#include <tuple>

namespace quench::importer {
namespace {

constexpr size_t kWorthwhile = 1024;  // bytes

using ConstantKey = std::tuple<DataType, std::vector<int64_t>, size_t>;

ConstantKey KeyOf(const Tensor& tensor) {
  const std::string_view bytes(reinterpret_cast<const char*>(tensor.bytes().data()),
                               tensor.bytes().size());
  return {tensor.dtype(), tensor.dims(), std::hash<std::string_view>()(bytes)};
}

bool SameBytes(const Tensor& a, const Tensor& b) {
  return a.bytes().data() == b.bytes().data() || std::ranges::equal(a.bytes(), b.bytes());
}

struct ConstantPlace {
  const Graph* graph;
  ValueId id;
  const Value& value() const { return graph->value(id); }
  const Tensor& tensor() const { return value().constant->tensor; }
};

}  // namespace

SharedConstants FindSharedConstants(const Graph& graph) {
  SharedConstants shared;
  int graphs = 0;
  ForEachGraph(graph, [&](const Graph&) { ++graphs; });
  if (graphs == 1) return shared;
  std::map<ConstantKey, std::vector<ConstantPlace>> places;
  ForEachGraph(graph, [&](const Graph& each) {
    const std::vector<int> uses = each.UseCounts();
    for (size_t i = 0; i < each.values.size(); ++i) {
      const auto& constant = each.values[i].constant;
      if (constant == nullptr || uses[i] == 0 || constant->tensor.bytes().size() < kWorthwhile)
        continue;
      places[KeyOf(constant->tensor)].push_back({&each, static_cast<ValueId>(i)});
    }
  });
  for (const auto& [key, found] : places) {
    const auto of_body = [&](const ConstantPlace& place) { return place.graph != &graph; };
    const bool one = std::ranges::all_of(found, [&](const ConstantPlace& place) {
      return SameBytes(place.tensor(), found[0].tensor()) && !place.graph->IsOutput(place.id);
    });
    if (found.size() < 2 || !one || std::ranges::none_of(found, of_body)) continue;
    SharedConstant constant{&found[0].tensor(), found[0].value().name, kNone};
    for (const ConstantPlace& place : found) {
      shared.index.emplace(place.value().constant.get(), shared.all.size());
      if (!of_body(place)) constant.main = place.id;
    }
    shared.all.push_back(std::move(constant));
  }
  return shared;
}

}  // namespace quench::importer
