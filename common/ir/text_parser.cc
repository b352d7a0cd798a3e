// The module, its symbols, values and nodes.
#include "common/ir/text_parser.h"

#include <algorithm>

#include "common/base/status.h"

namespace quench::text {
namespace {

// A statement of a few characters makes a value of a few hundred bytes.
constexpr size_t kMaxValues = size_t{1} << 22;

}  // namespace

absl::StatusOr<Graph> Parser::Parse() {
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  if (!reader_.now().IsName("quench.ir"))
    return reader_.Error("the text starts with `quench.ir 1`");
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  const Token at = reader_.now();
  QUENCH_ASSIGN_OR_RETURN(const int64_t version, reader_.Integer());
  if (version != 1)
    return reader_.ErrorAt(at, fmt::format("text version {}, this is version 1", version));
  QUENCH_RETURN_IF_ERROR(reader_.Keyword("module"));
  Scope scope;
  QUENCH_ASSIGN_OR_RETURN(scope.graph.name, reader_.String());
  bool known = false;
  for (const Stage stage : {Stage::kImported, Stage::kCanonical, Stage::kQuantized}) {
    if (!reader_.now().IsName(StageName(stage))) continue;
    QUENCH_RETURN_IF_ERROR(reader_.Advance());
    stage_ = stage;
    known = true;
    break;
  }
  if (!known) return reader_.Error("a stage was expected: imported, canonical or quantized");
  scope.graph.stage = stage_;
  reader_.set_symbols(scope.graph.symbols);
  QUENCH_RETURN_IF_ERROR(ParseBlock(scope, 0));
  if (reader_.now().kind != TokenKind::kEnd)
    return reader_.Error("nothing was expected after the module");
  return std::move(scope.graph);
}

absl::Status Parser::ParseBlock(Scope& scope, int depth) {
  QUENCH_RETURN_IF_ERROR(reader_.Punct("{"));
  while (!reader_.now().Is("}")) {
    const Token& token = reader_.now();
    absl::Status status;
    if (token.kind == TokenKind::kEnd) return reader_.Error("`}` was expected");
    if (token.IsName("meta")) {
      status = ParseMeta(scope.graph);
    } else if (token.IsName("symbol") && depth == 0) {
      status = ParseSymbol();
    } else if (token.IsName("let") && depth == 0) {
      status = ParseLet();
    } else if (token.IsName("input") || token.IsName("capture")) {
      status = ParseDeclaration(scope, token.IsName("input"));
    } else if (token.IsName("const")) {
      status = ParseConstant(scope);
    } else if (token.IsName("output")) {
      status = ParseOutputs(scope);
    } else if (token.kind == TokenKind::kValue || token.Is("(") || token.IsName("_")) {
      status = ParseNode(scope, depth);
    } else {
      return reader_.Error(
          depth == 0 ? "meta, symbol, let, input, const, capture, output or a node was expected"
                     : "meta, input, const, capture, output or a node was expected");
    }
    QUENCH_RETURN_IF_ERROR(status);
  }
  return reader_.Punct("}");
}

absl::Status Parser::ParseMeta(Graph& graph) {
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  QUENCH_ASSIGN_OR_RETURN(const std::string key, reader_.String());
  QUENCH_RETURN_IF_ERROR(reader_.Punct("="));
  QUENCH_ASSIGN_OR_RETURN(graph.metadata[key], reader_.String());
  return absl::OkStatus();
}

absl::Status Parser::ParseSymbol() {
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  const Token at = reader_.now();
  QUENCH_ASSIGN_OR_RETURN(const std::string name, reader_.NameOrString());
  if (reader_.symbols().Find(name))
    return reader_.ErrorAt(at, fmt::format("symbol `{}` is already defined", name));
  QUENCH_RETURN_IF_ERROR(reader_.Punct("="));
  if (reader_.now().IsName("input")) return ParseInputAxis(name).status();
  if (reader_.now().IsName("runtime")) return ParseRuntime(name).status();
  return reader_.Error("input(index, axis) or runtime(\"node\", bound) was expected");
}

absl::StatusOr<SymbolId> Parser::ParseInputAxis(const std::string& name) {
  const Token at = reader_.now();
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  QUENCH_RETURN_IF_ERROR(reader_.Punct("("));
  QUENCH_ASSIGN_OR_RETURN(const int64_t input, reader_.Integer());
  QUENCH_RETURN_IF_ERROR(reader_.Punct(","));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, reader_.Integer());
  QUENCH_RETURN_IF_ERROR(reader_.Punct(")"));
  Bounds bounds{1, kUnbounded};
  int64_t multiple = 1;
  if (reader_.now().IsName("in")) {
    QUENCH_RETURN_IF_ERROR(reader_.Advance());
    QUENCH_ASSIGN_OR_RETURN(bounds.min, reader_.Integer());
    QUENCH_RETURN_IF_ERROR(reader_.Punct(".."));
    if (reader_.now().kind == TokenKind::kInteger) {
      QUENCH_ASSIGN_OR_RETURN(bounds.max, reader_.Integer());
    }
  }
  if (reader_.now().IsName("multiple")) {
    QUENCH_RETURN_IF_ERROR(reader_.Advance());
    QUENCH_ASSIGN_OR_RETURN(multiple, reader_.Integer());
  }
  constexpr int64_t kMaxIndex = 1 << 30;
  if (input < 0 || axis < 0 || input > kMaxIndex || axis > kMaxIndex || bounds.min < 0 ||
      bounds.max < bounds.min || multiple < 1) {
    return reader_.ErrorAt(
        at, "indices and ranges are not negative or empty, and multiples are positive");
  }
  return reader_.symbols().AddInput(name, {static_cast<int>(input), static_cast<int>(axis)}, bounds,
                                    multiple);
}

absl::StatusOr<SymbolId> Parser::ParseRuntime(const std::string& name) {
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  QUENCH_RETURN_IF_ERROR(reader_.Punct("("));
  QUENCH_ASSIGN_OR_RETURN(const std::string node, reader_.String());
  std::optional<Dim> upper;
  if (reader_.now().Is(",")) {
    QUENCH_RETURN_IF_ERROR(reader_.Advance());
    QUENCH_ASSIGN_OR_RETURN(upper, reader_.Size());
  }
  QUENCH_RETURN_IF_ERROR(reader_.Punct(")"));
  return reader_.symbols().AddRuntime(name, node, upper);
}

absl::Status Parser::ParseLet() {
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  const Token alias = reader_.now();
  if (alias.kind != TokenKind::kAlias) return reader_.Error("`$` and a number was expected");
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  QUENCH_RETURN_IF_ERROR(reader_.Punct("="));
  QUENCH_RETURN_IF_ERROR(reader_.Punct("("));
  QUENCH_ASSIGN_OR_RETURN(const Dim dim, reader_.Size());
  QUENCH_RETURN_IF_ERROR(reader_.Punct(")"));
  if (!reader_.AddAlias(alias.text, dim)) {
    return reader_.ErrorAt(alias, fmt::format("`{}` is already defined", alias.text));
  }
  return absl::OkStatus();
}

absl::StatusOr<ValueId> Parser::Define(Scope& scope) {
  const Token at = reader_.now();
  QUENCH_ASSIGN_OR_RETURN(const std::string name, reader_.ValueName());
  const ValueId id = static_cast<ValueId>(scope.graph.values.size());
  if (++value_count_ > kMaxValues)
    return reader_.ErrorAt(at, fmt::format("more than {} values", kMaxValues));
  if (!scope.values.emplace(name, id).second) {
    return reader_.ErrorAt(at, fmt::format("value `{}` is already defined", name));
  }
  Value value;
  value.name = name;
  QUENCH_RETURN_IF_ERROR(ParseSuffix(value));
  scope.graph.values.push_back(std::move(value));
  return id;
}

absl::Status Parser::ParseSuffix(Value& value) {
  if (reader_.now().Is(":")) {
    QUENCH_RETURN_IF_ERROR(reader_.Advance());
    QUENCH_ASSIGN_OR_RETURN(value.type, reader_.ParseType(0));
  }
  if (!reader_.now().IsName("holds")) return absl::OkStatus();
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  QUENCH_RETURN_IF_ERROR(reader_.Punct("["));
  QUENCH_ASSIGN_OR_RETURN(value.elements, reader_.Sizes("]"));
  return reader_.Punct("]");
}

absl::Status Parser::ParseDeclaration(Scope& scope, bool input) {
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  QUENCH_ASSIGN_OR_RETURN(const ValueId id, Define(scope));
  if (input) scope.graph.inputs.push_back(id);
  return absl::OkStatus();
}

absl::Status Parser::ParseConstant(Scope& scope) {
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  const Token at = reader_.now();
  QUENCH_ASSIGN_OR_RETURN(const ValueId id, Define(scope));
  const Type type = scope.graph.value(id).type;
  if (!type.is_static() || type.dtype == DataType::kUndefined) {
    return reader_.ErrorAt(at, "a constant has a type with plain numbers as sizes, like f32[2, 3]");
  }
  QUENCH_RETURN_IF_ERROR(reader_.Punct("="));
  QUENCH_ASSIGN_OR_RETURN(Constant constant, ParseContents(type));
  scope.graph.value(id).constant = std::make_shared<const Constant>(std::move(constant));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ValueId>> Parser::ParseReferences(Scope& scope, std::string_view close) {
  std::vector<ValueId> ids;
  if (!close.empty() && reader_.now().Is(close)) return ids;
  while (true) {
    const Token at = reader_.now();
    if (at.IsName("_") && !close.empty()) {
      QUENCH_RETURN_IF_ERROR(reader_.Advance());
      ids.push_back(kNone);
    } else {
      QUENCH_ASSIGN_OR_RETURN(const std::string name, reader_.ValueName());
      const auto found = scope.values.find(name);
      if (found == scope.values.end()) {
        return reader_.ErrorAt(at, fmt::format("value `{}` is not defined before its use", name));
      }
      ids.push_back(found->second);
    }
    if (!reader_.now().Is(",")) return ids;
    QUENCH_RETURN_IF_ERROR(reader_.Advance());
  }
}

absl::Status Parser::ParseOutputs(Scope& scope) {
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  QUENCH_ASSIGN_OR_RETURN(const std::vector<ValueId> ids, ParseReferences(scope, ""));
  scope.graph.outputs.insert(scope.graph.outputs.end(), ids.begin(), ids.end());
  return absl::OkStatus();
}

absl::Status Parser::ParseNodeOutputs(Scope& scope, std::vector<ValueId>& outputs) {
  if (reader_.now().Is("(")) {
    QUENCH_RETURN_IF_ERROR(reader_.Advance());
    return reader_.Punct(")");
  }
  while (true) {
    if (reader_.now().IsName("_")) {
      QUENCH_RETURN_IF_ERROR(reader_.Advance());
      outputs.push_back(kNone);
    } else {
      QUENCH_ASSIGN_OR_RETURN(const ValueId id, Define(scope));
      outputs.push_back(id);
    }
    if (!reader_.now().Is(",")) return absl::OkStatus();
    QUENCH_RETURN_IF_ERROR(reader_.Advance());
  }
}

absl::Status Parser::ParseOperator(Node& node) {
  QUENCH_ASSIGN_OR_RETURN(node.op, reader_.NameOrString());
  if (reader_.now().Is("::")) {
    QUENCH_RETURN_IF_ERROR(reader_.Advance());
    node.domain = std::move(node.op);
    QUENCH_ASSIGN_OR_RETURN(node.op, reader_.NameOrString());
  }
  if (!reader_.now().Is("@")) return absl::OkStatus();
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  const Token at = reader_.now();
  QUENCH_ASSIGN_OR_RETURN(const int64_t version, reader_.Integer());
  if (version < 0 || version > INT32_MAX) return reader_.ErrorAt(at, "a version has 31 bits");
  node.version = static_cast<int>(version);
  return absl::OkStatus();
}

// The name defaults to that of the first output.
absl::Status Parser::ParseNodeName(Scope& scope, Node& node) {
  const Token at = reader_.now();
  if (at.IsName("as")) {
    QUENCH_RETURN_IF_ERROR(reader_.Advance());
    QUENCH_ASSIGN_OR_RETURN(node.name, reader_.String());
    if (node.name.empty()) return reader_.ErrorAt(at, "a node has a name");
  } else {
    const auto first = std::find_if(node.outputs.begin(), node.outputs.end(),
                                    [](ValueId id) { return id != kNone; });
    if (first == node.outputs.end())
      return reader_.Error("`as \"name\"` was expected: the node has no output to be named by");
    node.name = scope.graph.value(*first).name;
  }
  if (!scope.nodes.insert(node.name).second) {
    return reader_.ErrorAt(at, fmt::format("node `{}` is already defined", node.name));
  }
  if (!reader_.now().IsName("from")) return absl::OkStatus();
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  QUENCH_ASSIGN_OR_RETURN(node.origin, reader_.String());
  return absl::OkStatus();
}

absl::Status Parser::ParseNode(Scope& scope, int depth) {
  Node node;
  QUENCH_RETURN_IF_ERROR(ParseNodeOutputs(scope, node.outputs));
  QUENCH_RETURN_IF_ERROR(reader_.Punct("="));
  QUENCH_RETURN_IF_ERROR(ParseOperator(node));
  QUENCH_RETURN_IF_ERROR(reader_.Punct("("));
  const Token at = reader_.now();
  QUENCH_ASSIGN_OR_RETURN(node.inputs, ParseReferences(scope, ")"));
  for (ValueId input : node.inputs) {
    if (input == kNone ||
        std::find(node.outputs.begin(), node.outputs.end(), input) == node.outputs.end())
      continue;
    return reader_.ErrorAt(at, "the node takes its own output");
  }
  QUENCH_RETURN_IF_ERROR(reader_.Punct(")"));
  QUENCH_RETURN_IF_ERROR(ParseAttributes(node, depth));
  QUENCH_RETURN_IF_ERROR(ParseNodeName(scope, node));
  const NodeId id = static_cast<NodeId>(scope.graph.nodes.size());
  for (ValueId output : node.outputs) {
    if (output != kNone) scope.graph.value(output).producer = id;
  }
  scope.graph.nodes.push_back(std::move(node));
  return absl::OkStatus();
}

}  // namespace quench::text

namespace quench {

absl::StatusOr<Graph> ParseGraph(const std::string& text, const ConstantLoader& loader) {
  if (text.size() > kMaxGraphText) {
    return absl::ResourceExhaustedError(
        fmt::format("the text has {} bytes, at most {} are read", text.size(), kMaxGraphText));
  }
  return text::Parser(text, loader).Parse();
}

}  // namespace quench
