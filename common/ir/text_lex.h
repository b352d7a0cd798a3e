// Tokens of the text form. Grammar: docs/graph_text.md.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace quench::text {

enum class TokenKind : uint8_t {
  kEnd,
  kName,     // identifier: Conv, com.microsoft, true, inf, _
  kValue,    // %name or %"any name"; `text` is the name
  kString,   // "..."; `text` is what it stands for
  kInteger,  // digits
  kFloat,    // digits with a fraction or an exponent
  kHex,      // 0x...; `text` holds the digits
  kAlias,    // $12
  kPunct,    // ( ) [ ] { } , = : ? * + - @ :: ..
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  size_t begin = 0;  // offsets into the source
  size_t end = 0;

  bool Is(std::string_view punct) const { return kind == TokenKind::kPunct && text == punct; }
  bool IsName(std::string_view name) const { return kind == TokenKind::kName && text == name; }
};

class Lexer {
 public:
  explicit Lexer(std::string_view source, size_t at = 0) : source_(source), at_(at) {}

  // Skips blanks and comments (`#` to the end of the line). Fails on characters and strings of no
  // token.
  absl::StatusOr<Token> Next();
  std::string_view source() const { return source_; }

 private:
  absl::StatusOr<Token> Quoted(size_t begin, TokenKind kind);
  Token Number(size_t begin);
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }

  std::string_view source_;
  size_t at_;
};

// "line:column: problem" for an offset into the source.
absl::Status ErrorAt(std::string_view source, size_t offset, const std::string& problem);

// Characters of names that need no quotation marks after `%`.
bool IsPlainValueName(std::string_view name);

}  // namespace quench::text
