// The parser of the text form: recursive descent over the tokens of text_lex.h, one look-ahead
// token. Grammar: docs/graph_text.md.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/ir/graph.h"
#include "common/ir/text.h"
#include "common/ir/text_reader.h"

namespace quench::text {

// A block that is being read.
struct Scope {
  Graph graph;
  std::unordered_map<std::string, ValueId> values;
  std::unordered_set<std::string> nodes;
};

class Parser {
 public:
  Parser(const std::string& source, const ConstantLoader& loader, size_t offset = 0)
      : reader_(source, offset), loader_(loader) {}

  absl::StatusOr<Graph> Parse();

  // Parts of a text, whose sizes are in the symbols of `graph`: text_parts.h.
  absl::Status ParseStatements(Scope& scope);
  absl::StatusOr<std::map<std::string, Attribute>> ParseAttributesFor(const Graph& graph);
  absl::StatusOr<Type> ParseTypeFor(const Graph& graph);
  absl::StatusOr<Tensor> ParseTensorFor(const Graph& graph);
  absl::StatusOr<size_t> ParseTable(const std::shared_ptr<SymbolTable>& symbols);

 private:
  absl::Status Begin(const Graph& graph);
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

}  // namespace quench::text
