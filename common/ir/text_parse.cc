// Recursive descent over the tokens of text_lex.h; one look-ahead token. Grammar: README.md.
#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <unordered_set>

#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/ir/text.h"
#include "common/ir/text_elements.h"
#include "common/ir/text_lex.h"
#include "common/ir/text_reader.h"
#include "common/ir/verify.h"

namespace quench {
namespace {

using text::Token;
using text::TokenKind;

constexpr size_t kMaxText = size_t{64} << 20;
// A statement of a few characters makes a value of a few hundred bytes.
constexpr size_t kMaxValues = size_t{1} << 22;

struct Scope {
  Graph graph;
  std::unordered_map<std::string, ValueId> values;
  std::unordered_set<std::string> nodes;
};

class Parser {
 public:
  Parser(const std::string& source, const ConstantLoader& loader)
      : reader_(source), loader_(loader) {}

  absl::StatusOr<Graph> Parse();

 private:
  absl::Status ParseBlock(Scope& scope, int depth);
  absl::Status ParseMeta(Graph& graph);
  absl::Status ParseSymbol();
  absl::StatusOr<SymbolId> ParseInputAxis(const std::string& name);
  absl::StatusOr<SymbolId> ParseRuntime(const std::string& name);
  absl::Status ParseLet();
  absl::Status ParseDeclaration(Scope& scope, bool input);
  absl::Status ParseConstant(Scope& scope);
  absl::Status ParseOutputs(Scope& scope);
  absl::Status ParseNode(Scope& scope, int depth);
  absl::Status ParseNodeOutputs(Scope& scope, std::vector<ValueId>& outputs);
  absl::Status ParseOperator(Node& node);
  absl::Status ParseNodeName(Scope& scope, Node& node);
  absl::StatusOr<std::vector<ValueId>> ParseReferences(Scope& scope, std::string_view close);
  absl::Status ParseAttributes(Node& node, int depth);
  absl::StatusOr<Attribute> ParseAttribute(int depth);
  absl::StatusOr<Attribute> ParseList();
  absl::StatusOr<Attribute> ParseEmptyList(const std::string& kind);
  absl::StatusOr<Attribute> ParseBody(int depth);
  absl::StatusOr<Constant> ParseContents(const Type& type);
  absl::StatusOr<Constant> ParseByDigest(const Type& type);
  absl::StatusOr<ValueId> Define(Scope& scope);
  // ": type" and "holds [...]", both optional.
  absl::Status ParseSuffix(Value& value);

  TextReader reader_;
  const ConstantLoader& loader_;
  Stage stage_ = Stage::kCanonical;
  size_t value_count_ = 0;
};

absl::StatusOr<Graph> Parser::Parse() {
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  if (!reader_.now().IsName("quench.ir"))
    return reader_.Error("the text starts with `quench.ir 1`");
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  QUENCH_ASSIGN_OR_RETURN(const int64_t version, reader_.Integer());
  if (version != 1)
    return reader_.Error(fmt::format("text version {}, this is version 1", version));
  QUENCH_RETURN_IF_ERROR(reader_.Keyword("module"));
  Scope scope;
  QUENCH_ASSIGN_OR_RETURN(scope.graph.name, reader_.String());
  bool known = false;
  for (Stage stage :
       {Stage::kImported, Stage::kCanonical, Stage::kQuantized, Stage::kCodegenReady}) {
    if (!reader_.AtStage(StageName(stage))) continue;
    QUENCH_RETURN_IF_ERROR(reader_.SkipStage(StageName(stage)));
    stage_ = stage;
    known = true;
    break;
  }
  if (!known)
    return reader_.Error("a stage was expected: imported, canonical, quantized or codegen-ready");
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

absl::StatusOr<Constant> Parser::ParseContents(const Type& type) {
  if (reader_.now().IsName("sha256")) return ParseByDigest(type);
  QUENCH_ASSIGN_OR_RETURN(Tensor tensor, reader_.Elements(type));
  return Constant{std::move(tensor), "", {}};
}

absl::StatusOr<Constant> Parser::ParseByDigest(const Type& type) {
  const Token at = reader_.now();
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  Constant constant;
  QUENCH_ASSIGN_OR_RETURN(constant.digest, reader_.Digest());
  if (reader_.now().IsName("at")) {
    do {
      QUENCH_RETURN_IF_ERROR(reader_.Advance());
      BlobRange range;
      QUENCH_ASSIGN_OR_RETURN(range.blob, reader_.Digest());
      QUENCH_RETURN_IF_ERROR(reader_.Punct("["));
      QUENCH_ASSIGN_OR_RETURN(range.offset, reader_.Natural());
      QUENCH_RETURN_IF_ERROR(reader_.Punct(","));
      QUENCH_ASSIGN_OR_RETURN(range.size, reader_.Natural());
      QUENCH_RETURN_IF_ERROR(reader_.Punct("]"));
      constant.location.push_back(range);
    } while (reader_.now().Is(","));
  }
  if (constant.location.empty()) {
    return reader_.ErrorAt(
        at, "the constant is known by its digest only, the text does not say where its bytes are");
  }
  if (!loader_)
    return reader_.ErrorAt(at,
                           "the constant lies in a blob store, and there is none to read it from");
  absl::StatusOr<Tensor> tensor = loader_(type, constant.digest, constant.location);
  if (!tensor.ok()) return Annotate(tensor.status(), MessageOf(reader_.ErrorAt(at, "constant")));
  const std::vector<Dim> dims(tensor->dims().begin(), tensor->dims().end());
  if (tensor->dtype() != type.dtype || dims != type.dims) {
    return reader_.ErrorAt(at, "the constant in the blob store has another type");
  }
  constant.tensor = *std::move(tensor);
  return constant;
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

absl::Status Parser::ParseAttributes(Node& node, int depth) {
  if (!reader_.now().Is("{")) return absl::OkStatus();
  do {
    QUENCH_RETURN_IF_ERROR(reader_.Advance());
    const Token at = reader_.now();
    QUENCH_ASSIGN_OR_RETURN(const std::string name, reader_.NameOrString());
    QUENCH_RETURN_IF_ERROR(reader_.Punct("="));
    QUENCH_ASSIGN_OR_RETURN(Attribute attribute, ParseAttribute(depth));
    if (name.empty() || !node.attributes.emplace(name, std::move(attribute)).second) {
      return reader_.ErrorAt(at, name.empty() ? "an attribute has a name"
                                              : fmt::format("attribute `{}` is given twice", name));
    }
  } while (reader_.now().Is(","));
  return reader_.Punct("}");
}

absl::StatusOr<Attribute> Parser::ParseAttribute(int depth) {
  const Token& token = reader_.now();
  if (token.kind == TokenKind::kString) return reader_.String();
  if (token.Is("[")) return ParseList();
  if (token.IsName("graph")) return ParseBody(depth);
  if (token.IsName("ints") || token.IsName("floats") || token.IsName("strings"))
    return ParseEmptyList(token.text);
  if (token.IsName("type")) {
    QUENCH_RETURN_IF_ERROR(reader_.Advance());
    QUENCH_RETURN_IF_ERROR(reader_.Punct("("));
    QUENCH_ASSIGN_OR_RETURN(Type type, reader_.ParseType(0));
    QUENCH_RETURN_IF_ERROR(reader_.Punct(")"));
    return type;
  }
  if (token.IsName("tensor")) {
    QUENCH_RETURN_IF_ERROR(reader_.Advance());
    QUENCH_RETURN_IF_ERROR(reader_.Punct("("));
    const Token at = reader_.now();
    QUENCH_ASSIGN_OR_RETURN(const Type type, reader_.ParseType(0));
    if (!type.is_static() || type.dtype == DataType::kUndefined) {
      return reader_.ErrorAt(at, "a tensor has a type with plain numbers as sizes, like f32[2, 3]");
    }
    QUENCH_RETURN_IF_ERROR(reader_.Punct("="));
    QUENCH_ASSIGN_OR_RETURN(Constant constant, ParseContents(type));
    QUENCH_RETURN_IF_ERROR(reader_.Punct(")"));
    return std::move(constant.tensor);
  }
  QUENCH_ASSIGN_OR_RETURN(const TextReader::Number number, reader_.ParseNumber());
  if (number.is_float) return number.real;
  return number.integer;
}

absl::StatusOr<Attribute> Parser::ParseList() {
  QUENCH_RETURN_IF_ERROR(reader_.Punct("["));
  std::vector<int64_t> ints;
  std::vector<double> floats;
  std::vector<std::string> strings;
  bool any_float = false;
  while (true) {
    const Token at = reader_.now();
    if (at.kind == TokenKind::kString) {
      QUENCH_ASSIGN_OR_RETURN(const std::string text, reader_.String());
      strings.push_back(text);
    } else {
      QUENCH_ASSIGN_OR_RETURN(const TextReader::Number number, reader_.ParseNumber());
      any_float = any_float || number.is_float;
      ints.push_back(number.integer);
      floats.push_back(number.is_float ? number.real : static_cast<double>(number.integer));
    }
    if (!strings.empty() && !floats.empty())
      return reader_.ErrorAt(at, "a list has numbers or strings, not both");
    if (!reader_.now().Is(",")) break;
    QUENCH_RETURN_IF_ERROR(reader_.Advance());
  }
  QUENCH_RETURN_IF_ERROR(reader_.Punct("]"));
  if (!strings.empty()) return strings;
  if (any_float) return floats;
  return ints;
}

absl::StatusOr<Attribute> Parser::ParseEmptyList(const std::string& word) {
  const std::string kind = word;  // outlives the token
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  QUENCH_RETURN_IF_ERROR(reader_.Punct("["));
  QUENCH_RETURN_IF_ERROR(reader_.Punct("]"));
  if (kind == "ints") return std::vector<int64_t>();
  if (kind == "floats") return std::vector<double>();
  return std::vector<std::string>();
}

absl::StatusOr<Attribute> Parser::ParseBody(int depth) {
  if (depth == kMaxBodyNesting)
    return reader_.Error(fmt::format("bodies nest deeper than {}", kMaxBodyNesting));
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  Scope scope;
  QUENCH_ASSIGN_OR_RETURN(scope.graph.name, reader_.String());
  scope.graph.stage = stage_;
  scope.graph.symbols = reader_.shared_symbols();
  QUENCH_RETURN_IF_ERROR(ParseBlock(scope, depth + 1));
  return std::make_shared<const Graph>(std::move(scope.graph));
}

}  // namespace

absl::StatusOr<Graph> ParseGraph(const std::string& text, const ConstantLoader& loader) {
  if (text.size() > kMaxText) {
    return absl::ResourceExhaustedError(
        fmt::format("the text has {} bytes, at most {} are read", text.size(), kMaxText));
  }
  return Parser(text, loader).Parse();
}

}  // namespace quench
