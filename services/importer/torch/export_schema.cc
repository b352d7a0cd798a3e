#include "services/importer/torch/export_schema.h"

#include <string_view>

#include "common/base/printable.h"
#include "common/base/status.h"

namespace quench::importer {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxGraphBytes = size_t{512} << 20;

// torch.export numbers types by itself.
int64_t ScalarTypeOfExported(int64_t type) {
  if (type >= 1 && type <= 12) return type - 1;
  switch (type) {
    case 13:
      return 15;  // bfloat16
    case 28:
      return 27;  // uint16
    case 29:
      return 24;  // float8_e4m3fn
    case 30:
      return 23;  // float8_e5m2
    default:
      return -1;
  }
}

// Infinity, -Infinity and NaN, which torch up to 2.5 writes as they are, as the texts that they are later.
std::string QuoteNonFinite(std::string_view text) {
  constexpr std::string_view kWords[] = {"-Infinity", "Infinity", "NaN"};
  std::string result;
  result.reserve(text.size());
  bool quoted = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\' && at + 1 < text.size()) {
      result.append(text.substr(at++, 2));
      continue;
    }
    std::string_view word;
    for (const std::string_view candidate : kWords) {
      if (!quoted && word.empty() && text.substr(at).starts_with(candidate)) word = candidate;
    }
    if (word.empty()) {
      result.push_back(c);
      continue;
    }
    result.append("\"").append(word).append("\"");
    at += word.size() - 1;
  }
  return result;
}

// `name` in an object of texts, or "".
std::string Lookup(const Json& signature, const char* table, const std::string& name) {
  const Json* names = ExportMember(signature, table);
  return names == nullptr ? "" : ExportText(ExportMember(*names, name.c_str()));
}

// {"inputs_to_parameters": {"arg0_1": "weight"}, ...} as one spec for each input and output of the graph.
Json SpecsOf(const Json& graph, const Json& signature) {
  static const Json kNothing = Json::array();
  const auto list = [&](const char* name) -> const Json& {
    const Json* items = ExportMember(graph, name);
    return items != nullptr && items->is_array() ? *items : kNothing;
  };
  Json specs = {{"input_specs", Json::array()}, {"output_specs", Json::array()}};
  for (const Json& input : list("inputs")) {
    const std::string name = ExportNameIn(input);
    const std::string parameter = Lookup(signature, "inputs_to_parameters", name);
    const std::string buffer = Lookup(signature, "inputs_to_buffers", name);
    const Json named = {{"name", name}};
    Json spec = {{"user_input", {{"arg", {{"as_tensor", named}}}}}};
    if (!parameter.empty()) spec = {{"parameter", {{"arg", named}, {"parameter_name", parameter}}}};
    if (!buffer.empty()) spec = {{"buffer", {{"arg", named}, {"buffer_name", buffer}}}};
    specs["input_specs"].push_back(std::move(spec));
  }
  for (const Json& output : list("outputs")) {
    const std::string name = ExportNameIn(output);
    const std::string buffer = Lookup(signature, "buffers_to_mutate", name);
    const Json named = {{"name", name}};
    Json spec = {{"user_output", {{"arg", {{"as_tensor", named}}}}}};
    if (!buffer.empty()) spec = {{"buffer_mutation", {{"arg", named}, {"buffer_name", buffer}}}};
    specs["output_specs"].push_back(std::move(spec));
  }
  return specs;
}

}  // namespace

const Json* ExportMember(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string ExportText(const Json* json) {
  return json != nullptr && json->is_string() ? json->get<std::string>() : "";
}

std::string ExportNameIn(const Json& argument) {
  for (const char* kind : {"as_tensor", "as_custom_obj"}) {
    if (const Json* tensor = ExportMember(argument, kind))
      return ExportText(ExportMember(*tensor, "name"));
  }
  for (const char* kind : {"as_sym_int", "as_sym_bool", "as_sym_float"}) {
    if (const Json* number = ExportMember(argument, kind))
      return ExportText(ExportMember(*number, "as_name"));
  }
  return ExportText(ExportMember(argument, "name"));
}

absl::StatusOr<DataType> ExportDataType(const Json* number) {
  return DataTypeOfScalarType(number != nullptr && number->is_number_integer()
                                  ? ScalarTypeOfExported(number->get<int64_t>())
                                  : -1);
}

absl::StatusOr<Json> ReadExportProgram(const TorchArchive& archive) {
  std::string file = "serialized_exported_program.json";
  for (const std::string& name : archive.Names()) {
    if (!name.starts_with("models/") || !name.ends_with(".json")) continue;
    if (file.starts_with("models/"))
      return Unsupported("the archive has several models, `{}` and `{}`", Printable(file),
                         Printable(name));
    file = name;
  }
  QUENCH_ASSIGN_OR_RETURN(const TorchBytes text, archive.Read(file));
  if (text.bytes.size() > kMaxGraphBytes)
    return absl::ResourceExhaustedError(fmt::format("`{}` has {} bytes, at most {} are read",
                                                    Printable(file), text.bytes.size(),
                                                    kMaxGraphBytes));
  Json json = Json::parse(text.text(), nullptr, false);
  if (json.is_discarded()) json = Json::parse(QuoteNonFinite(text.text()), nullptr, false);
  const Json* module = ExportMember(json, "graph_module");
  const Json* graph = module == nullptr ? nullptr : ExportMember(*module, "graph");
  const Json* signature = module == nullptr ? nullptr : ExportMember(*module, "signature");
  if (graph == nullptr || signature == nullptr)
    return InvalidArgument("`{}` has no graph that could be read", Printable(file));
  if (ExportMember(*signature, "input_specs") == nullptr)
    json["graph_module"]["signature"] = SpecsOf(*graph, *signature);
  return json;
}

}  // namespace quench::importer
