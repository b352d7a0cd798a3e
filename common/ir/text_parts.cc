#include "common/ir/text_parts.h"

#include "common/base/status.h"
#include "common/ir/text_parser.h"

namespace quench {
namespace text {

absl::Status Parser::Begin(const Graph& graph) {
  stage_ = graph.stage;
  reader_.set_symbols(graph.symbols);
  return reader_.Advance();
}

absl::Status Parser::ParseStatements(Scope& scope) {
  QUENCH_RETURN_IF_ERROR(Begin(scope.graph));
  QUENCH_RETURN_IF_ERROR(reader_.Punct("{"));
  while (!reader_.now().Is("}")) {
    const Token& token = reader_.now();
    const bool node = token.kind == TokenKind::kValue || token.Is("(") || token.IsName("_");
    if (!node && !token.IsName("const")) return reader_.Error("const or a node was expected");
    QUENCH_RETURN_IF_ERROR(node ? ParseNode(scope, 0) : ParseConstant(scope));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, Attribute>> Parser::ParseAttributesFor(const Graph& graph) {
  QUENCH_RETURN_IF_ERROR(Begin(graph));
  Node node;
  QUENCH_RETURN_IF_ERROR(ParseAttributes(node, 0));
  return std::move(node.attributes);
}

absl::StatusOr<Type> Parser::ParseTypeFor(const Graph& graph) {
  QUENCH_RETURN_IF_ERROR(Begin(graph));
  return reader_.ParseType(0);
}

absl::StatusOr<Tensor> Parser::ParseTensorFor(const Graph& graph) {
  QUENCH_RETURN_IF_ERROR(Begin(graph));
  const Token at = reader_.now();
  QUENCH_ASSIGN_OR_RETURN(const Type type, reader_.ParseType(0));
  if (!type.is_static() || type.dtype == DataType::kUndefined) {
    return reader_.ErrorAt(at, "a constant has a type with plain numbers as sizes, like f32[2, 3]");
  }
  QUENCH_RETURN_IF_ERROR(reader_.Punct("="));
  return reader_.Elements(type);
}

absl::StatusOr<size_t> Parser::ParseTable(const std::shared_ptr<SymbolTable>& symbols) {
  reader_.set_symbols(symbols);
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  while (reader_.now().IsName("symbol") || reader_.now().IsName("let")) {
    const Token at = reader_.now();
    const bool expression = at.IsName("let");
    const SymbolId id = symbols->size();
    QUENCH_RETURN_IF_ERROR(expression ? ParseLet() : ParseSymbol());
    const std::optional<Dim> dim = reader_.Alias(fmt::format("${}", id));
    const bool is_new = symbols->size() == id + 1 && symbols->at(id).is_expression() == expression;
    if (!is_new || (expression && dim != Dim::OfSymbol(id))) {
      return reader_.ErrorAt(
          at, fmt::format("symbol {} was expected: the table defines every symbol once, in order, "
                          "and expressions as `let ${} = (...)`",
                          id, id));
    }
  }
  return reader_.now().begin;
}

}  // namespace text

absl::Status ParseBlockInto(const std::string& text, size_t offset,
                            const std::set<NodeId>& replaced, Graph& graph) {
  text::Scope scope;
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    if (!replaced.contains(static_cast<NodeId>(id))) scope.nodes.insert(graph.nodes[id].name);
  }
  for (size_t id = 0; id < graph.values.size(); ++id) {
    if (!replaced.contains(graph.values[id].producer))
      scope.values.emplace(graph.values[id].name, static_cast<ValueId>(id));
  }
  scope.graph = std::move(graph);
  const absl::Status status = text::Parser(text, {}, offset).ParseStatements(scope);
  graph = std::move(scope.graph);
  return status;
}

absl::StatusOr<std::map<std::string, Attribute>> ParseAttributesAt(const std::string& text,
                                                                   size_t offset,
                                                                   const Graph& graph) {
  return text::Parser(text, {}, offset).ParseAttributesFor(graph);
}

absl::StatusOr<Type> ParseTypeAt(const std::string& text, size_t offset, const Graph& graph) {
  return text::Parser(text, {}, offset).ParseTypeFor(graph);
}

absl::StatusOr<Tensor> ParseTensorAt(const std::string& text, size_t offset, const Graph& graph) {
  return text::Parser(text, {}, offset).ParseTensorFor(graph);
}

absl::StatusOr<size_t> ParseSymbolsAt(const std::string& text, size_t offset,
                                      const std::shared_ptr<SymbolTable>& symbols) {
  return text::Parser(text, {}, offset).ParseTable(symbols);
}

}  // namespace quench
