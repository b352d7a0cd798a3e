#include "common/ir/text_lex.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/ir/quoting.h"

namespace quench::text {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsHexDigit(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool IsPlain(char c) { return IsLetter(c) || IsDigit(c) || c == '.' || c == '/' || c == '-'; }

// For error texts: printable ASCII as it is.
std::string Shown(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
}

}  // namespace

absl::Status ErrorAt(std::string_view source, size_t offset, const std::string& problem) {
  const std::string_view before = source.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const size_t column = newline == std::string_view::npos ? offset + 1 : offset - newline;
  return InvalidArgument("{}:{}: {}", line, column, problem);
}

bool IsPlainValueName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), IsPlain);
}

absl::StatusOr<Token> Lexer::Quoted(size_t begin, TokenKind kind) {
  const size_t open = at_++;
  while (at_ < source_.size() && source_[at_] != '"') at_ += source_[at_] == '\\' ? 2 : 1;
  if (at_ >= source_.size()) return ErrorAt(source_, open, "the string does not end");
  ++at_;
  absl::StatusOr<std::string> text = Unquote(source_.substr(open, at_ - open));
  if (!text.ok()) return ErrorAt(source_, open, MessageOf(text.status()));
  return Token{kind, *std::move(text), begin, at_};
}

Token Lexer::Number(size_t begin) {
  if (Peek() == '0' && (Peek(1) == 'x' || Peek(1) == 'X')) {
    at_ += 2;
    while (IsHexDigit(Peek())) ++at_;
    return {TokenKind::kHex, std::string(source_.substr(begin + 2, at_ - begin - 2)), begin, at_};
  }
  TokenKind kind = TokenKind::kInteger;
  while (IsDigit(Peek())) ++at_;
  if (Peek() == '.' && Peek(1) != '.') {
    kind = TokenKind::kFloat;
    ++at_;
    while (IsDigit(Peek())) ++at_;
  }
  if (Peek() == 'e' || Peek() == 'E') {
    const size_t sign = Peek(1) == '+' || Peek(1) == '-' ? 2 : 1;
    if (IsDigit(Peek(sign))) {
      kind = TokenKind::kFloat;
      at_ += sign;
      while (IsDigit(Peek())) ++at_;
    }
  }
  return {kind, std::string(source_.substr(begin, at_ - begin)), begin, at_};
}

absl::StatusOr<Token> Lexer::Next() {
  while (at_ < source_.size()) {
    if (Peek() == '#') {
      while (at_ < source_.size() && Peek() != '\n') ++at_;
    } else if (Peek() == ' ' || Peek() == '\t' || Peek() == '\n' || Peek() == '\r') {
      ++at_;
    } else {
      break;
    }
  }
  const size_t begin = at_;
  if (at_ >= source_.size()) return Token{TokenKind::kEnd, "", begin, begin};
  const char c = Peek();
  if (IsDigit(c)) return Number(begin);
  if (c == '"') return Quoted(begin, TokenKind::kString);
  if (IsLetter(c)) {
    while (IsLetter(Peek()) || IsDigit(Peek()) || (Peek() == '.' && Peek(1) != '.')) ++at_;
    return Token{TokenKind::kName, std::string(source_.substr(begin, at_ - begin)), begin, at_};
  }
  if (c == '%' || c == '$') {
    ++at_;
    if (c == '%' && Peek() == '"') return Quoted(begin, TokenKind::kValue);
    while (c == '%' ? IsPlain(Peek()) : IsDigit(Peek())) ++at_;
    if (at_ == begin + 1)
      return ErrorAt(source_, begin, fmt::format("a name was expected after `{}`", c));
    const size_t start = c == '%' ? begin + 1 : begin;
    const TokenKind kind = c == '%' ? TokenKind::kValue : TokenKind::kAlias;
    return Token{kind, std::string(source_.substr(start, at_ - start)), begin, at_};
  }
  const size_t size = (c == ':' && Peek(1) == ':') || (c == '.' && Peek(1) == '.') ? 2 : 1;
  if (size == 1 && std::string_view("()[]{},=:?*+-@").find(c) == std::string_view::npos) {
    return ErrorAt(source_, begin, fmt::format("`{}` starts nothing", Shown(c)));
  }
  at_ += size;
  return Token{TokenKind::kPunct, std::string(source_.substr(begin, size)), begin, at_};
}

}  // namespace quench::text
