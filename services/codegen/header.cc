#include "services/codegen/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "common/ir/symbols_spelling.h"

namespace quench::codegen {
namespace {

bool IsWordCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

// Upper-case C identifier; "" becomes X, a leading digit gets one in front.
std::string Identifier(const std::string& name) {
  std::string text;
  for (const char c : name) {
    text +=
        IsWordCharacter(c) ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : '_';
  }
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0]))) text = "X" + text;
  return text;
}

// Text that cannot end a comment or a string.
std::string Plain(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool ends = c == '*' && (i + 1 == text.size() || text[i + 1] == '/');
    plain += c >= ' ' && c != '"' && c != '\\' && c != '?' && !ends ? c : '_';
  }
  return plain;
}

std::string TypeText(const Graph& graph, const Type& type) {
  std::string text = std::string(DataTypeName(type.dtype)) + "[";
  for (size_t i = 0; i < type.dims.size(); ++i)
    text += (i ? ", " : "") + Plain(SpelledOut(*graph.symbols, type.dims[i]));
  return text + "]";
}

void AddTensors(const Graph& graph, const std::string& prefix, const std::string& kind,
                const std::vector<ValueId>& ids, std::string& text) {
  std::set<std::string> used;
  text += fmt::format("#define {}_NUM_{}S {}\n", prefix, kind, ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const Value& value = graph.value(ids[i]);
    std::string name = Identifier(value.name);
    while (!used.insert(name).second) name += "_";
    text += fmt::format("/* `{}`: {} */\n#define {}_{}_{} {}\n", Plain(value.name),
                        TypeText(graph, value.type), prefix, kind, name, i);
  }
  text += "\n";
}

}  // namespace

std::string HeaderPrefix(const std::string& name) {
  const size_t first = std::find_if(name.begin(), name.end(), IsWordCharacter) - name.begin();
  return first == name.size() ? "MODEL" : Identifier(name.substr(first));
}

std::string ModelHeader(const Graph& graph, const HeaderFacts& facts) {
  const std::string prefix = HeaderPrefix(facts.prefix);
  const std::string open =
      facts.registers
          ? fmt::format(
                " *   quench_rt_open_registered({}_NAME, &model, &error);\n"
                " *     linked whole into the program: -Wl,--whole-archive {} "
                "-Wl,--no-whole-archive\n",
                prefix, Plain(facts.library))
          : fmt::format(
                " *   quench_rt_open_file(\"{}\", &model, &error);          a shared library, or\n"
                " *   quench_rt_open_linked(quench_model_query, &model, &error);  an object linked "
                "into the program\n",
                Plain(facts.library));
  std::string text = fmt::format(
      "/* {}: a model compiled by {}. Run it with libquench_rt:\n"
      " *\n"
      "{}"
      " *   quench_rt_session_create(model, NULL, &session, &error);\n"
      " *   quench_rt_set_input(session, {}_INPUT_..., &tensor, &error);\n"
      " *   quench_rt_run(session, &error);\n"
      " *   quench_rt_get_output(session, {}_OUTPUT_..., &tensor, &error);\n"
      " *\n"
      " * Tensors are dense and row-major. Names in brackets are sizes that the inputs decide. */\n"
      "#ifndef {}_MODEL_H_\n#define {}_MODEL_H_\n\n#include <stdint.h>\n\n"
      "#define {}_NAME \"{}\"\n#define {}_UUID \"{}\"\n\n",
      Plain(facts.library), facts.producer, open, prefix, prefix, prefix, prefix, prefix,
      Plain(graph.name), prefix, facts.uuid);
  AddTensors(graph, prefix, "INPUT", graph.inputs, text);
  AddTensors(graph, prefix, "OUTPUT", graph.outputs, text);
  if (!facts.registers) {
    text +=
        "#ifdef __cplusplus\nextern \"C\" {\n#endif\nstruct quench_model;\n"
        "const struct quench_model* quench_model_query(uint32_t max_abi_version);\n"
        "#ifdef __cplusplus\n}\n#endif\n";
  }
  text += fmt::format("#endif /* {}_MODEL_H_ */\n", prefix);
  return text;
}

}  // namespace quench::codegen
