#include "services/codegen/description.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/base/status.h"
#include "common/ir/states.h"
#include "common/ir/symbols_spelling.h"
#include "common/runtime/abi.h"
#include "services/codegen/object/sections.h"
#include "services/codegen/plan/boundary.h"
#include "services/codegen/targets/host_cpu.h"

namespace quench::codegen {
namespace {

using nlohmann::json;

json ToJson(const BoundaryQuantization& quantization) {
  json result = {{"scales", quantization.scales}, {"zero_points", quantization.zero_points}};
  if (quantization.axis >= 0) result["axis"] = quantization.axis;
  return result;
}

json ToJson(const Graph& graph, ValueId id,
            const std::optional<BoundaryQuantization>& quantization) {
  const Value& value = graph.value(id);
  json dims = json::array();
  for (const Dim dim : value.type.dims) {
    if (dim.is_static()) {
      dims.push_back(dim.value());
    } else {
      dims.push_back(SpelledOut(*graph.symbols, dim));
    }
  }
  json result = {{"name", value.name},
                 {"dtype", std::string(DataTypeName(value.type.dtype))},
                 {"dims", std::move(dims)}};
  if (quantization) result["quantization"] = ToJson(*quantization);
  return result;
}

json ToJson(const Symbol& symbol) {
  json result = {{"name", symbol.name}, {"min", symbol.min}, {"multiple_of", symbol.multiple_of}};
  if (symbol.max != std::numeric_limits<int64_t>::max()) result["max"] = symbol.max;
  return result;
}

json ToJson(const Target& target) {
  return {{"name", target.name},
          {"triple", target.triple},
          {"cpu_features", NamesOf(target.required_features)}};
}

}  // namespace

std::string DescriptionOf(const ModelTables& model, const std::vector<Target>& variants) {
  const Graph& graph = *model.graph;
  json inputs = json::array(), outputs = json::array(), symbols = json::array(),
       states = json::array(), code = json::array();
  for (const ValueId id : graph.inputs)
    inputs.push_back(ToJson(graph, id, InputQuantization(graph, id)));
  for (const ValueId id : graph.outputs) {
    outputs.push_back(ToJson(graph, id, OutputQuantization(graph, id)));
    if (const std::optional<size_t> place = InputInPlaceOf(graph, id))
      outputs.back()["in_place_of"] = graph.value(graph.inputs[*place]).name;
  }
  for (SymbolId id = 0; id < model.num_symbols; ++id) {
    const Symbol& symbol = graph.symbols->at(id);
    if (std::holds_alternative<InputAxis>(symbol.definition)) symbols.push_back(ToJson(symbol));
  }
  for (const StatePair& state : StatesOf(graph)) {
    states.push_back({{"input", graph.value(graph.inputs[state.input]).name},
                      {"output", graph.value(graph.outputs[state.output]).name},
                      {"initial", state.initial.bytes().empty() ? 0.0 : state.initial.FloatAt(0)}});
  }
  for (const Target& target : variants) code.push_back(ToJson(target));
  json result = {{"abi_version", QUENCH_ABI_VERSION},
                 {"name", graph.name},
                 {"fingerprint", model.fingerprint},
                 {"producer", model.producer},
                 {"producer_revision", model.producer_revision},
                 {"source_digest", model.source_digest},
                 {"target_string", model.target},
                 {"variants", std::move(code)},
                 {"inputs", std::move(inputs)},
                 {"outputs", std::move(outputs)},
                 {"symbols", std::move(symbols)},
                 {"states", std::move(states)},
                 {"class_names", model.labels},
                 {"preprocessing",
                  model.preprocessing.empty() ? json::object() : json::parse(model.preprocessing)}};
  if (model.num_cores > 0) result["num_cores"] = model.num_cores;
  // A name that is not UTF-8 must not stop a compilation.
  return result.dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<json> DescribeLibrary(std::span<const std::byte> bytes, const std::string& name) {
  QUENCH_ASSIGN_OR_RETURN(const LibrarySections sections, ReadSections(bytes, name));
  json result = json::parse(sections.description, nullptr, /*allow_exceptions=*/false);
  if (!result.is_object()) return InvalidArgument("`{}`: its description is damaged", name);
  result["uuid"] = sections.uuid;
  result["kind"] = sections.kind;
  result["machine"] = sections.machine;
  return result;
}

}  // namespace quench::codegen
