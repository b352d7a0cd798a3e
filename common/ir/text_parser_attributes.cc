// Attributes of nodes and contents of constants.
#include "common/base/status.h"
#include "common/ir/text_parser.h"
#include "common/ir/verify.h"

namespace quench::text {

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
  const bool ints = word == "ints", floats = word == "floats";  // asked while the token lives
  QUENCH_RETURN_IF_ERROR(reader_.Advance());
  QUENCH_RETURN_IF_ERROR(reader_.Punct("["));
  QUENCH_RETURN_IF_ERROR(reader_.Punct("]"));
  if (ints) return std::vector<int64_t>();
  if (floats) return std::vector<double>();
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

}  // namespace quench::text
