#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "services/importer/torch/script_ast.h"

namespace quench::importer {
namespace {

using Kind = ScriptExpression::Kind;

constexpr size_t kMaxText = size_t{64} << 20;
constexpr int kMaxNesting = 200;

struct Token {
  enum class Kind : uint8_t { kName, kNumber, kText, kSign, kNewline, kIndent, kDedent, kEnd };
  Kind kind = Kind::kEnd;
  std::string_view text;  // of kText the literal, quotes included
  int line = 0;
};

bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<signed char>(c) < 0;
}
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Lines become tokens; indentation opens and closes blocks, but not within brackets.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < text_.size()) {
      if (fresh_line_ && !Indent()) continue;
      const char c = text_[at_];
      if (c == '\n') {
        Newline();
      } else if (c == ' ' || c == '\t' || c == '\r') {
        ++at_;
      } else if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') {
        at_ += 2;
        ++line_;
      } else if (!Literal(c)) {
        return InvalidArgument("line {}: `{}` belongs to nothing that TorchScript writes", line_,
                               Printable(std::string(1, c)));
      }
      if (!problem_.ok()) return problem_;
    }
    Push(Token::Kind::kNewline, {});
    for (; indents_.size() > 1; indents_.pop_back()) Push(Token::Kind::kDedent, {});
    Push(Token::Kind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  void Push(Token::Kind kind, std::string_view text) { tokens_.push_back({kind, text, line_}); }

  void Newline() {
    ++at_;
    if (brackets_ == 0) {
      if (!tokens_.empty() && tokens_.back().kind != Token::Kind::kNewline)
        Push(Token::Kind::kNewline, {});
      fresh_line_ = true;
    }
    ++line_;
  }

  // False for a line without tokens.
  bool Indent() {
    size_t end = at_;
    while (end < text_.size() && (text_[end] == ' ' || text_[end] == '\t')) ++end;
    const size_t depth = end - at_;
    at_ = end;
    if (end >= text_.size()) return false;
    if (text_[end] == '\n' || text_[end] == '\r' || text_[end] == '#') {
      at_ = std::min(text_.find('\n', end), text_.size());
      if (at_ < text_.size()) {
        ++at_;
        ++line_;
      }
      return false;
    }
    fresh_line_ = false;
    if (depth > indents_.back()) {
      if (indents_.size() > kMaxNesting) {
        problem_ = InvalidArgument("line {}: blocks nest more than {} deep", line_, kMaxNesting);
        return true;
      }
      indents_.push_back(depth);
      Push(Token::Kind::kIndent, {});
    }
    while (depth < indents_.back()) {
      indents_.pop_back();
      Push(Token::Kind::kDedent, {});
    }
    return true;
  }

  bool Literal(char c) {
    const size_t begin = at_;
    if (IsNameStart(c)) {
      while (at_ < text_.size() && (IsNameStart(text_[at_]) || IsDigit(text_[at_]))) ++at_;
      Push(Token::Kind::kName, text_.substr(begin, at_ - begin));
      return true;
    }
    if (IsDigit(c) || (c == '.' && at_ + 1 < text_.size() && IsDigit(text_[at_ + 1]))) {
      while (at_ < text_.size() && (IsDigit(text_[at_]) || text_[at_] == '.' || text_[at_] == 'e' ||
                                    text_[at_] == 'E' || text_[at_] == 'j' ||
                                    ((text_[at_] == '-' || text_[at_] == '+') &&
                                     (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E'))))
        ++at_;
      Push(Token::Kind::kNumber, text_.substr(begin, at_ - begin));
      return true;
    }
    if (c == '"' || c == '\'') {
      for (++at_; at_ < text_.size() && text_[at_] != c && text_[at_] != '\n'; ++at_) {
        if (text_[at_] == '\\') ++at_;
      }
      if (at_ >= text_.size() || text_[at_] != c) {
        problem_ = InvalidArgument("line {}: a text has no end", line_);
        return true;
      }
      Push(Token::Kind::kText, text_.substr(begin, ++at_ - begin));
      return true;
    }
    if (c == '-' && text_.substr(at_).starts_with("->")) {
      at_ += 2;
      Push(Token::Kind::kSign, "->");
      return true;
    }
    if (std::string_view("()[]{}.,:=-").find(c) == std::string_view::npos) return false;
    if (c == '(' || c == '[' || c == '{') ++brackets_;
    if (c == ')' || c == ']' || c == '}') brackets_ -= brackets_ > 0 ? 1 : 0;
    Push(Token::Kind::kSign, text_.substr(at_++, 1));
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1, brackets_ = 0;
  bool fresh_line_ = true;
  std::vector<size_t> indents_ = {0};
  std::vector<Token> tokens_;
  absl::Status problem_;
};

// A literal's contents.
std::string Unquoted(std::string_view literal) {
  std::string text;
  literal = literal.substr(1, literal.size() - 2);
  for (size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\' || i + 1 == literal.size()) {
      text += literal[i];
      continue;
    }
    const char c = literal[++i];
    const std::string_view plain = "n\nt\tr\ra\ab\bf\fv\v";
    const size_t known = plain.find(c);
    if (IsDigit(c)) {  // octal, of up to three digits
      int code = 0;
      size_t digits = 0;
      for (; digits < 3 && i < literal.size() && IsDigit(literal[i]); ++digits, ++i)
        code = code * 8 + (literal[i] - '0');
      --i;
      text += static_cast<char>(code);
    } else {
      text += known != std::string_view::npos && known % 2 == 0 ? plain[known + 1] : c;
    }
  }
  return text;
}

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  absl::StatusOr<ScriptFile> File() {
    ScriptFile file;
    while (Now().kind != Token::Kind::kEnd) {
      if (Now().kind == Token::Kind::kNewline) {
        ++at_;
      } else if (IsName("class")) {
        QUENCH_ASSIGN_OR_RETURN(ScriptClass parsed, Class());
        file.classes[parsed.name] = std::move(parsed);
      } else if (IsName("def")) {
        QUENCH_ASSIGN_OR_RETURN(ScriptFunction parsed, Function());
        file.functions[parsed.name] = std::move(parsed);
      } else {  // `op_version_set = 1`
        QUENCH_RETURN_IF_ERROR(Statement().status());
      }
    }
    return file;
  }

 private:
  const Token& Now() const { return tokens_[at_]; }
  bool IsSign(std::string_view sign) const {
    return Now().kind == Token::Kind::kSign && Now().text == sign;
  }
  bool IsName(std::string_view name) const {
    return Now().kind == Token::Kind::kName && Now().text == name;
  }
  bool Take(std::string_view sign) {
    if (!IsSign(sign)) return false;
    ++at_;
    return true;
  }
  bool TakeName(std::string_view name) {
    if (!IsName(name)) return false;
    ++at_;
    return true;
  }
  absl::Status Problem(const std::string& what) const {
    return InvalidArgument("line {}: {}, not {}", Now().line, what, Describe(Now()));
  }
  static std::string Describe(const Token& token) {
    switch (token.kind) {
      case Token::Kind::kNewline:
        return "the end of the line";
      case Token::Kind::kIndent:
      case Token::Kind::kDedent:
        return "another indentation";
      case Token::Kind::kEnd:
        return "the end";
      default:
        return fmt::format("`{}`", Printable(std::string(token.text.substr(0, 40))));
    }
  }
  absl::Status Want(std::string_view sign) {
    return Take(sign) ? absl::OkStatus() : Problem(fmt::format("expected `{}`", sign));
  }
  absl::StatusOr<std::string> WantName() {
    if (Now().kind != Token::Kind::kName) return Problem("expected a name");
    return std::string(tokens_[at_++].text);
  }
  absl::Status WantLineEnd() {
    if (Now().kind == Token::Kind::kEnd) return absl::OkStatus();
    if (Now().kind != Token::Kind::kNewline) return Problem("expected the end of the line");
    ++at_;
    return absl::OkStatus();
  }

  std::shared_ptr<ScriptExpression> New(Kind kind) const {
    auto made = std::make_shared<ScriptExpression>();
    made->kind = kind;
    made->line = Now().line;
    return made;
  }

  // ---- Expressions ----
  absl::StatusOr<ExpressionPtr> Expression() {
    if (++depth_ > kMaxNesting)
      return InvalidArgument("line {}: expressions nest more than {} deep", Now().line,
                             kMaxNesting);
    absl::StatusOr<ExpressionPtr> result = Postfix();
    --depth_;
    return result;
  }

  absl::StatusOr<ExpressionPtr> Postfix() {
    if (IsSign("-")) {
      auto minus = New(Kind::kMinus);
      ++at_;
      QUENCH_ASSIGN_OR_RETURN(ExpressionPtr operand, Expression());
      minus->items = {std::move(operand)};
      return ExpressionPtr(minus);
    }
    QUENCH_ASSIGN_OR_RETURN(ExpressionPtr value, Atom());
    for (int links = 0;; ++links) {
      if (links > kMaxNesting)
        return InvalidArgument("line {}: an expression has more than {} parts", Now().line,
                               kMaxNesting);
      if (IsSign(".")) {
        auto attribute = New(Kind::kAttribute);
        ++at_;
        QUENCH_ASSIGN_OR_RETURN(attribute->text, WantName());
        attribute->items = {std::move(value)};
        value = attribute;
      } else if (IsSign("(")) {
        auto call = New(Kind::kCall);
        ++at_;
        call->items = {std::move(value)};
        QUENCH_RETURN_IF_ERROR(Arguments(*call));
        value = call;
      } else if (IsSign("[")) {
        auto item = New(Kind::kItem);
        ++at_;
        item->items = {std::move(value)};
        std::vector<ExpressionPtr> index;
        QUENCH_RETURN_IF_ERROR(Sequence("]", index));
        if (index.size() == 1) {
          item->items.push_back(index[0]);
        } else {  // Tuple[int, int]
          auto tuple = New(Kind::kTuple);
          tuple->items = std::move(index);
          item->items.push_back(tuple);
        }
        value = item;
      } else {
        return value;
      }
    }
  }

  absl::Status Sequence(std::string_view close, std::vector<ExpressionPtr>& items,
                        bool* has_comma = nullptr) {
    while (!Take(close)) {
      QUENCH_ASSIGN_OR_RETURN(ExpressionPtr item, Expression());
      items.push_back(std::move(item));
      if (IsSign(close)) continue;
      QUENCH_RETURN_IF_ERROR(Want(","));
      if (has_comma != nullptr) *has_comma = true;
    }
    return absl::OkStatus();
  }

  absl::Status Arguments(ScriptExpression& call) {
    while (!Take(")")) {
      const bool named = Now().kind == Token::Kind::kName &&
                         tokens_[at_ + 1].kind == Token::Kind::kSign &&
                         tokens_[at_ + 1].text == "=";
      if (named) {
        call.names.emplace_back(Now().text);
        at_ += 2;
      } else if (!call.names.empty()) {
        return Problem("expected an argument with a name");
      }
      QUENCH_ASSIGN_OR_RETURN(ExpressionPtr value, Expression());
      call.items.push_back(std::move(value));
      if (!IsSign(")")) QUENCH_RETURN_IF_ERROR(Want(","));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ExpressionPtr> Number() {
    const std::string_view text = Now().text;
    const bool real = text.find_first_of(".eE") != std::string_view::npos;
    auto made = New(real ? Kind::kFloat : Kind::kInt);
    const char* end = text.data() + text.size();
    const auto parsed = real ? std::from_chars(text.data(), end, made->real)
                             : std::from_chars(text.data(), end, made->integer);
    if (parsed.ec != std::errc() || parsed.ptr != end) {
      // The least integer is written as the negative of one that does not fit.
      if (text != "9223372036854775808") return Problem("expected a number");
      made->integer = INT64_MIN;
    }
    ++at_;
    return ExpressionPtr(made);
  }

  absl::StatusOr<ExpressionPtr> Atom() {
    const Token& token = Now();
    if (token.kind == Token::Kind::kNumber) return Number();
    if (token.kind == Token::Kind::kText) {
      auto text = New(Kind::kText);
      for (; Now().kind == Token::Kind::kText; ++at_) text->text += Unquoted(Now().text);
      return ExpressionPtr(text);
    }
    if (token.kind == Token::Kind::kName) {
      auto name = New(Kind::kName);
      name->text = std::string(token.text);
      if (token.text == "None") name->kind = Kind::kNone;
      if (token.text == "True" || token.text == "False") {
        name->kind = Kind::kBool;
        name->integer = token.text == "True" ? 1 : 0;
      }
      if (token.text == "inf" || token.text == "nan") {
        name->kind = Kind::kFloat;
        name->real = token.text == "inf" ? INFINITY : NAN;
      }
      ++at_;
      return ExpressionPtr(name);
    }
    if (Take("(")) {
      auto tuple = New(Kind::kTuple);
      bool has_comma = false;
      QUENCH_RETURN_IF_ERROR(Sequence(")", tuple->items, &has_comma));
      if (tuple->items.size() == 1 && !has_comma) return tuple->items[0];
      return ExpressionPtr(tuple);
    }
    if (Take("[")) {
      auto list = New(Kind::kList);
      QUENCH_RETURN_IF_ERROR(Sequence("]", list->items));
      return ExpressionPtr(list);
    }
    if (Take("{")) {
      auto dict = New(Kind::kDict);
      while (!Take("}")) {
        QUENCH_ASSIGN_OR_RETURN(ExpressionPtr key, Expression());
        QUENCH_RETURN_IF_ERROR(Want(":"));
        QUENCH_ASSIGN_OR_RETURN(ExpressionPtr value, Expression());
        dict->items.push_back(std::move(key));
        dict->items.push_back(std::move(value));
        if (!IsSign("}")) QUENCH_RETURN_IF_ERROR(Want(","));
      }
      return ExpressionPtr(dict);
    }
    return Problem("expected a value");
  }

  // ---- Statements ----
  absl::Status Block(std::vector<ScriptStatement>& body) {
    QUENCH_RETURN_IF_ERROR(Want(":"));
    if (Now().kind != Token::Kind::kNewline) return Problem("expected the end of the line");
    ++at_;
    if (Now().kind != Token::Kind::kIndent) return Problem("expected an indented block");
    ++at_;
    while (Now().kind != Token::Kind::kDedent) {
      if (Now().kind == Token::Kind::kEnd) return Problem("expected an indented block");
      if (Now().kind == Token::Kind::kNewline) {
        ++at_;
        continue;
      }
      QUENCH_ASSIGN_OR_RETURN(ScriptStatement statement, Statement());
      body.push_back(std::move(statement));
    }
    ++at_;
    return absl::OkStatus();
  }

  absl::StatusOr<ScriptStatement> Statement() {
    ScriptStatement statement;
    statement.line = Now().line;
    if (TakeName("pass")) {
      QUENCH_RETURN_IF_ERROR(WantLineEnd());
      return statement;
    }
    if (TakeName("return")) {
      statement.kind = ScriptStatement::Kind::kReturn;
      if (Now().kind != Token::Kind::kNewline) {
        QUENCH_ASSIGN_OR_RETURN(statement.value, Values(nullptr));
      }
      QUENCH_RETURN_IF_ERROR(WantLineEnd());
      return statement;
    }
    if (TakeName("if")) {
      statement.kind = ScriptStatement::Kind::kIf;
      QUENCH_ASSIGN_OR_RETURN(statement.value, Expression());
      QUENCH_RETURN_IF_ERROR(Block(statement.body));
      if (TakeName("else")) QUENCH_RETURN_IF_ERROR(Block(statement.other));
      return statement;
    }
    if (TakeName("while")) {
      statement.kind = ScriptStatement::Kind::kWhile;
      QUENCH_ASSIGN_OR_RETURN(statement.value, Expression());
      QUENCH_RETURN_IF_ERROR(Block(statement.body));
      return statement;
    }
    if (TakeName("for")) return For(std::move(statement));
    return Assignment(std::move(statement));
  }

  absl::StatusOr<ScriptStatement> For(ScriptStatement statement) {
    statement.kind = ScriptStatement::Kind::kFor;
    QUENCH_ASSIGN_OR_RETURN(ExpressionPtr target, Atom());
    statement.targets = {std::move(target)};
    if (!TakeName("in")) return Problem("expected `in`");
    QUENCH_ASSIGN_OR_RETURN(const ExpressionPtr range, Expression());
    const bool known = range->kind == Kind::kCall && range->items.size() == 2 &&
                       range->items[0]->kind == Kind::kName && range->items[0]->text == "range";
    if (!known) return Problem("expected a loop over `range(...)`");
    statement.value = range->items[1];
    QUENCH_RETURN_IF_ERROR(Block(statement.body));
    return statement;
  }

  // `a`, or `a, b,`: a tuple, and `*unpacks` is set.
  absl::StatusOr<ExpressionPtr> Values(bool* unpacks) {
    QUENCH_ASSIGN_OR_RETURN(ExpressionPtr first, Expression());
    if (!IsSign(",")) return first;
    auto tuple = New(Kind::kTuple);
    tuple->items = {std::move(first)};
    if (unpacks != nullptr) *unpacks = true;
    while (Take(",")) {
      if (IsSign("=") || Now().kind == Token::Kind::kNewline) break;
      QUENCH_ASSIGN_OR_RETURN(ExpressionPtr next, Expression());
      tuple->items.push_back(std::move(next));
    }
    return ExpressionPtr(tuple);
  }

  absl::StatusOr<ScriptStatement> Assignment(ScriptStatement statement) {
    bool unpacks = false;
    QUENCH_ASSIGN_OR_RETURN(ExpressionPtr first, Values(&unpacks));
    if (Take(":")) {  // a type, which says nothing here
      QUENCH_RETURN_IF_ERROR(Expression().status());
    }
    if (!Take("=")) {
      statement.kind = ScriptStatement::Kind::kCall;
      statement.value = std::move(first);
      QUENCH_RETURN_IF_ERROR(WantLineEnd());
      return statement;
    }
    statement.kind = ScriptStatement::Kind::kAssign;
    statement.unpacks = unpacks;
    statement.targets = unpacks ? first->items : std::vector<ExpressionPtr>{first};
    QUENCH_ASSIGN_OR_RETURN(statement.value, Values(nullptr));
    QUENCH_RETURN_IF_ERROR(WantLineEnd());
    return statement;
  }

  // ---- Definitions ----
  absl::StatusOr<ScriptFunction> Function() {
    ++at_;  // def
    ScriptFunction function;
    QUENCH_ASSIGN_OR_RETURN(function.name, WantName());
    QUENCH_RETURN_IF_ERROR(Want("("));
    while (!Take(")")) {
      ScriptParameter parameter;
      QUENCH_ASSIGN_OR_RETURN(parameter.name, WantName());
      if (Take(":")) {
        QUENCH_ASSIGN_OR_RETURN(parameter.type, Expression());
      }
      if (Take("=")) {
        QUENCH_ASSIGN_OR_RETURN(parameter.fallback, Expression());
      }
      function.parameters.push_back(std::move(parameter));
      if (!IsSign(")")) QUENCH_RETURN_IF_ERROR(Want(","));
    }
    if (Take("->")) QUENCH_RETURN_IF_ERROR(Expression().status());
    QUENCH_RETURN_IF_ERROR(Block(function.body));
    return function;
  }

  absl::StatusOr<ScriptClass> Class() {
    ++at_;  // class
    ScriptClass made;
    QUENCH_ASSIGN_OR_RETURN(made.name, WantName());
    if (Take("(")) {
      std::vector<ExpressionPtr> bases;
      QUENCH_RETURN_IF_ERROR(Sequence(")", bases));
      made.is_named_tuple = !bases.empty() && bases[0]->text == "NamedTuple";
    }
    QUENCH_RETURN_IF_ERROR(Want(":"));
    QUENCH_RETURN_IF_ERROR(WantLineEnd());
    if (Now().kind != Token::Kind::kIndent) return made;  // a class without anything
    ++at_;
    while (Now().kind != Token::Kind::kDedent && Now().kind != Token::Kind::kEnd) {
      if (Now().kind == Token::Kind::kNewline) {
        ++at_;
      } else if (IsName("def")) {
        QUENCH_ASSIGN_OR_RETURN(ScriptFunction method, Function());
        made.methods[method.name] = std::move(method);
      } else {
        QUENCH_RETURN_IF_ERROR(Field(made));
      }
    }
    if (Now().kind == Token::Kind::kDedent) ++at_;
    return made;
  }

  // `weight : Tensor`, `dim : Final[int] = 1`, `__parameters__ = [...]`, `__annotations__["0"] = T`.
  absl::Status Field(ScriptClass& made) {
    if (TakeName("pass")) return WantLineEnd();
    QUENCH_ASSIGN_OR_RETURN(const ExpressionPtr name, Expression());
    const bool typed = Take(":");
    if (typed) QUENCH_RETURN_IF_ERROR(Expression().status());
    ExpressionPtr value;
    if (Take("=")) {
      QUENCH_ASSIGN_OR_RETURN(value, Values(nullptr));
    }
    if (typed && name->kind == Kind::kName) {
      made.fields.push_back(name->text);
      if (value != nullptr) made.constants[name->text] = value;
    }
    return WantLineEnd();
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

absl::StatusOr<ScriptFile> ParseScript(std::string_view text, const std::string& name) {
  if (text.size() > kMaxText)
    return absl::ResourceExhaustedError(
        fmt::format("`{}` has {} bytes of code, at most {} are read", name, text.size(), kMaxText));
  absl::StatusOr<std::vector<Token>> tokens = Lexer(text).Run();
  if (!tokens.ok()) return Annotate(tokens.status(), fmt::format("`{}`", Printable(name)));
  absl::StatusOr<ScriptFile> file = Parser(*std::move(tokens)).File();
  if (!file.ok()) return Annotate(file.status(), fmt::format("`{}`", Printable(name)));
  return file;
}

}  // namespace quench::importer
