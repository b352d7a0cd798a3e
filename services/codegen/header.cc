#include "services/codegen/header.h"

#include <fmt/format.h>

#include <cctype>
#include <set>

#include "common/ir/symbols_spelling.h"

namespace quench::codegen {
namespace {

// Upper-case C identifier; "" becomes X, a leading digit gets one in front.
std::string Identifier(const std::string& name) {
  std::string text;
  for (const char c : name) {
    text += std::isalnum(static_cast<unsigned char>(c))
                ? static_cast<char>(std::toupper(static_cast<unsigned char>(c)))
                : '_';
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

void AddTensors(const Graph& graph, const std::string& kind, const std::vector<ValueId>& ids,
                std::string& text) {
  std::set<std::string> used;
  text += fmt::format("#define MODEL_NUM_{}S {}\n", kind, ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const Value& value = graph.value(ids[i]);
    std::string name = Identifier(value.name);
    while (!used.insert(name).second) name += "_";
    text += fmt::format("/* `{}`: {} */\n#define MODEL_{}_{} {}\n", Plain(value.name),
                        TypeText(graph, value.type), kind, name, i);
  }
  text += "\n";
}

}  // namespace

std::string ModelHeader(const Graph& graph, const HeaderFacts& facts) {
  const std::string open =
      facts.registers
          ? " *   quench_rt_open_registered(MODEL_NAME, &model, &error);   linked whole into the "
            "program:\n"
            " *                                                    -Wl,--whole-archive " +
                Plain(facts.library) + " -Wl,--no-whole-archive\n"
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
      " *   quench_rt_set_input(session, MODEL_INPUT_..., &tensor, &error);\n"
      " *   quench_rt_run(session, &error);\n"
      " *   quench_rt_get_output(session, MODEL_OUTPUT_..., &tensor, &error);\n"
      " *\n"
      " * Tensors are dense and row-major. Names in brackets are sizes that the inputs decide. */\n"
      "#ifndef QUENCH_MODEL_H_\n#define QUENCH_MODEL_H_\n\n#include <stdint.h>\n\n"
      "#define MODEL_NAME \"{}\"\n#define MODEL_UUID \"{}\"\n\n",
      Plain(facts.library), facts.producer, open, Plain(graph.name), facts.uuid);
  AddTensors(graph, "INPUT", graph.inputs, text);
  AddTensors(graph, "OUTPUT", graph.outputs, text);
  if (!facts.registers) {
    text +=
        "#ifdef __cplusplus\nextern \"C\" {\n#endif\nstruct quench_model;\n"
        "const struct quench_model* quench_model_query(uint32_t max_abi_version);\n"
        "#ifdef __cplusplus\n}\n#endif\n";
  }
  text += "#endif /* QUENCH_MODEL_H_ */\n";
  return text;
}

}  // namespace quench::codegen
