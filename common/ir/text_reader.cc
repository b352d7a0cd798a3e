#include "common/ir/text_reader.h"

#include <algorithm>
#include <charconv>

#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/ir/text_elements.h"
#include "common/ir/verify.h"

namespace quench {

using text::Token;
using text::TokenKind;

namespace {

// Names are repeated wherever a value is used: long ones would let text grow with the square of the
// input.
constexpr size_t kMaxName = 4096;
constexpr size_t kMaxRank = 1024;
constexpr int kMaxSymbols = 1 << 20;

std::string Shown(const Token& token) {
  if (token.kind == TokenKind::kEnd) return "the end of the text";
  return "`" + (token.text.size() > 40 ? token.text.substr(0, 40) + "..." : token.text) + "`";
}

}  // namespace

absl::Status TextReader::Advance() {
  QUENCH_ASSIGN_OR_RETURN(now_, lexer_.Next());
  const bool name = now_.kind == TokenKind::kValue || now_.kind == TokenKind::kName;
  if (name && now_.text.size() > kMaxName)
    return Error(fmt::format("a name has at most {} characters", kMaxName));
  return absl::OkStatus();
}

absl::Status TextReader::ErrorAt(const Token& token, const std::string& problem) const {
  return text::ErrorAt(lexer_.source(), token.begin, problem);
}

absl::Status TextReader::Punct(std::string_view punct) {
  if (!now_.Is(punct)) return Error(fmt::format("`{}` was expected, not {}", punct, Shown(now_)));
  return Advance();
}

absl::Status TextReader::Keyword(std::string_view keyword) {
  if (!now_.IsName(keyword))
    return Error(fmt::format("`{}` was expected, not {}", keyword, Shown(now_)));
  return Advance();
}

absl::StatusOr<std::string> TextReader::String() {
  if (now_.kind != TokenKind::kString) return Error("a string was expected, not " + Shown(now_));
  std::string text = now_.text;
  QUENCH_RETURN_IF_ERROR(Advance());
  return text;
}

absl::StatusOr<std::string> TextReader::NameOrString() {
  if (now_.kind != TokenKind::kString && now_.kind != TokenKind::kName) {
    return Error("a name was expected, not " + Shown(now_));
  }
  if (now_.text.empty() || now_.text.size() > kMaxName) {
    return Error(fmt::format("a name has between 1 and {} characters", kMaxName));
  }
  std::string text = now_.text;
  QUENCH_RETURN_IF_ERROR(Advance());
  return text;
}

absl::StatusOr<std::string> TextReader::ValueName() {
  if (now_.kind != TokenKind::kValue)
    return Error("a value like `%x` was expected, not " + Shown(now_));
  if (now_.text.empty()) return Error("a value has a name");
  std::string text = now_.text;
  QUENCH_RETURN_IF_ERROR(Advance());
  return text;
}

absl::StatusOr<std::string> TextReader::Digest() {
  if (now_.kind != TokenKind::kString || !IsDigest(now_.text)) {
    return Error("a digest of 64 lower-case hex characters was expected in quotation marks");
  }
  return String();
}

absl::StatusOr<int64_t> TextReader::Integer() {
  const Token at = now_;
  QUENCH_ASSIGN_OR_RETURN(const Number number, ParseNumber());
  if (number.is_float) return ErrorAt(at, "a whole number was expected");
  return number.integer;
}

absl::StatusOr<uint64_t> TextReader::Natural() {
  const Token at = now_;
  QUENCH_ASSIGN_OR_RETURN(const int64_t value, Integer());
  if (value < 0) return ErrorAt(at, "a number of bytes is not negative");
  return static_cast<uint64_t>(value);
}

absl::StatusOr<TextReader::Number> TextReader::ParseNumber() {
  const Token start = now_;
  const bool negative = now_.Is("-");
  if (negative) QUENCH_RETURN_IF_ERROR(Advance());
  Number number;
  if (now_.kind == TokenKind::kInteger) {
    // The sign belongs to the digits: -2^63 has no positive counterpart.
    const std::string digits = (negative ? "-" : "") + now_.text;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), number.integer);
    if (error != std::errc()) return ErrorAt(start, fmt::format("{} exceeds 64 bits", Shown(now_)));
  } else if (now_.kind == TokenKind::kFloat || now_.IsName("inf") || now_.IsName("nan")) {
    const std::optional<double> value = text::ParseFloat(now_.text, negative);
    if (!value)
      return ErrorAt(start, fmt::format("{} exceeds the range of 64-bit floats", Shown(now_)));
    number.is_float = true;
    number.real = *value;
  } else {
    return ErrorAt(start, "a number was expected, not " + Shown(now_));
  }
  QUENCH_RETURN_IF_ERROR(Advance());
  return number;
}

absl::StatusOr<Dim> TextReader::Size() {
  const Token start = now_;
  size_t end = now_.begin;
  int nesting = 0;
  while (now_.kind != TokenKind::kEnd) {
    if (now_.Is("(")) ++nesting;
    if (nesting == 0 && (now_.Is(")") || now_.Is("]") || now_.Is(","))) break;
    if (now_.Is(")")) --nesting;
    end = now_.end;
    QUENCH_RETURN_IF_ERROR(Advance());
  }
  const std::string expression(lexer_.source().substr(start.begin, end - start.begin));
  absl::StatusOr<Dim> dim = symbols_->Parse(expression, &aliases_);
  if (!dim.ok()) return ErrorAt(start, MessageOf(dim.status()));
  if (symbols_->size() > kMaxSymbols)
    return ErrorAt(start, fmt::format("more than {} different sizes", kMaxSymbols));
  return dim;
}

absl::StatusOr<std::vector<Dim>> TextReader::Sizes(std::string_view close) {
  std::vector<Dim> sizes;
  if (now_.Is(close)) return sizes;
  while (true) {
    QUENCH_ASSIGN_OR_RETURN(const Dim size, Size());
    sizes.push_back(size);
    if (sizes.size() > kMaxRank) return Error(fmt::format("more than {} sizes", kMaxRank));
    if (!now_.Is(",")) return sizes;
    QUENCH_RETURN_IF_ERROR(Advance());
  }
}

absl::StatusOr<DataType> TextReader::ParseElementType() {
  DataType dtype = DataType::kUndefined;
  if (!now_.Is("?")) {
    const std::optional<DataType> known =
        now_.kind == TokenKind::kName ? ParseDataType(now_.text) : std::nullopt;
    if (!known) return Error("an element type like `f32` was expected, not " + Shown(now_));
    dtype = *known;
  }
  QUENCH_RETURN_IF_ERROR(Advance());
  return dtype;
}

absl::StatusOr<Type> TextReader::ParseTensorType() {
  Type type;
  QUENCH_ASSIGN_OR_RETURN(type.dtype, ParseElementType());
  QUENCH_RETURN_IF_ERROR(Punct("["));
  if (now_.Is("*")) {
    QUENCH_RETURN_IF_ERROR(Advance());
  } else {
    const Token at = now_;
    type.ranked = true;
    QUENCH_ASSIGN_OR_RETURN(type.dims, Sizes("]"));
    for (Dim dim : type.dims) {
      if (dim.is_static() && dim.value() < 0) return ErrorAt(at, "a size is not negative");
    }
  }
  QUENCH_RETURN_IF_ERROR(Punct("]"));
  return type;
}

absl::StatusOr<Type> TextReader::ParseType(int depth) {
  if (depth > kMaxBodyNesting)
    return Error(fmt::format("types nest deeper than {}", kMaxBodyNesting));
  Type type;
  if (now_.IsName("sequence")) {
    type.kind = ValueKind::kSequence;
  } else if (now_.IsName("optional")) {
    type.kind = ValueKind::kOptional;
  } else if (now_.IsName("map")) {
    type.kind = ValueKind::kMap;
  } else {
    return ParseTensorType();
  }
  QUENCH_RETURN_IF_ERROR(Advance());
  QUENCH_RETURN_IF_ERROR(Punct("("));
  if (type.kind == ValueKind::kMap) {
    QUENCH_ASSIGN_OR_RETURN(type.dtype, ParseElementType());
    QUENCH_RETURN_IF_ERROR(Punct(","));
  }
  QUENCH_ASSIGN_OR_RETURN(Type element, ParseType(depth + 1));
  type.element.push_back(std::move(element));
  QUENCH_RETURN_IF_ERROR(Punct(")"));
  return type;
}

absl::StatusOr<Tensor> TextReader::Elements(const Type& type) {
  const Token at = now_;
  std::vector<int64_t> dims;
  for (Dim dim : type.dims) dims.push_back(dim.value());
  const std::optional<int64_t> count = ElementCount(dims);
  if (!count) return ErrorAt(at, "the shape of the constant exceeds 2^63 elements");
  QUENCH_RETURN_IF_ERROR(Punct("["));
  // Memory follows the elements that are there, not the claim of the type.
  QUENCH_ASSIGN_OR_RETURN(Tensor tensor, type.dtype == DataType::kString
                                             ? StringElements(dims, *count)
                                             : NumericElements(type.dtype, dims, *count));
  QUENCH_RETURN_IF_ERROR(Punct("]"));
  return tensor;
}

absl::StatusOr<Tensor> TextReader::StringElements(const std::vector<int64_t>& dims, int64_t count) {
  const Token at = now_;
  std::vector<std::string> strings;
  while (!now_.Is("]")) {
    QUENCH_ASSIGN_OR_RETURN(std::string text, String());
    strings.push_back(std::move(text));
    if (!now_.Is(",")) break;
    QUENCH_RETURN_IF_ERROR(Advance());
  }
  if (static_cast<int64_t>(strings.size()) != count) {
    return ErrorAt(at, fmt::format("{} elements, the type has {}", strings.size(), count));
  }
  return Tensor::Strings(dims, std::move(strings));
}

absl::StatusOr<Tensor> TextReader::NumericElements(DataType dtype, const std::vector<int64_t>& dims,
                                                   int64_t count) {
  const Token at = now_;
  text::ElementWriter writer(dtype);
  const int parts = IsComplex(dtype) ? 2 : 1;
  while (!now_.Is("]")) {
    if (parts == 2) QUENCH_RETURN_IF_ERROR(Punct("("));
    for (int part = 0; part < parts; ++part) {
      if (part == 1) QUENCH_RETURN_IF_ERROR(Punct(","));
      const Token start = now_;
      const bool negative = now_.Is("-");
      if (negative) QUENCH_RETURN_IF_ERROR(Advance());
      const bool number = now_.kind == TokenKind::kInteger || now_.kind == TokenKind::kFloat ||
                          now_.kind == TokenKind::kName;
      if (!number && (negative || now_.kind != TokenKind::kHex)) {
        return ErrorAt(start, "a number was expected, not " + Shown(now_));
      }
      const absl::Status added =
          number ? writer.AddNumber(now_.text, negative) : writer.AddBits(now_.text);
      if (!added.ok()) return ErrorAt(start, MessageOf(added));
      QUENCH_RETURN_IF_ERROR(Advance());
    }
    if (parts == 2) QUENCH_RETURN_IF_ERROR(Punct(")"));
    if (!now_.Is(",")) break;
    QUENCH_RETURN_IF_ERROR(Advance());
  }
  if (writer.count() != count * parts) {
    return ErrorAt(at, fmt::format("{} elements, the type has {}", writer.count() / parts, count));
  }
  return writer.Finish(dims);
}

}  // namespace quench
