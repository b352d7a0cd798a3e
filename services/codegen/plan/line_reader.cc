#include "services/codegen/plan/line_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/base/status.h"
#include "common/ir/quoting.h"
#include "common/ir/text_lex.h"

namespace quench::codegen {
namespace {

bool IsWordCharacter(char c) { return c == '$' || IsIdentifier(std::string{'a', c}); }

}  // namespace

void LineReader::Open(size_t line) {
  end_ = std::min(text_.find('\n', line), text_.size());
  at_ = std::min(text_.find_first_not_of(' ', line), end_);
  const size_t spaces = at_ - line;
  depth_ = spaces % 2 == 0 ? static_cast<int>(std::min<size_t>(spaces / 2, 1 << 20)) : -1;
}

void LineReader::Skip() {
  Open(std::min(at_, text_.size()));
  while (end_ < text_.size() && (at_ == end_ || text_[at_] == '#')) Open(end_ + 1);
  if (at_ < end_ && text_[at_] == '#') at_ = end_;  // the last line
}

absl::Status LineReader::GoTo(size_t offset) {
  const size_t newline = offset == 0 ? std::string::npos : text_.rfind('\n', offset - 1);
  const size_t line = newline == std::string::npos ? 0 : newline + 1;
  const bool first = text_.find_first_not_of(' ', line) >= offset;
  if (!first && offset < text_.size()) return ErrorAt(offset, "the end of the line was expected");
  at_ = first ? line : offset;
  Skip();
  return absl::OkStatus();
}

absl::Status LineReader::EndLine() {
  if (at_ != end_) return Expected("the end of the line");
  at_ = std::min(end_ + 1, text_.size());
  Skip();
  return absl::OkStatus();
}

std::string LineReader::TakeRest() {
  const std::string rest(Rest());
  at_ = end_;
  return rest;
}

bool LineReader::Take(std::string_view words) {
  if (!Rest().starts_with(words)) return false;
  at_ += words.size();
  return true;
}

bool LineReader::TakeClause(std::string_view words) {
  if (!Rest().starts_with(words)) return false;
  const size_t after = at_ + words.size();
  if (after != end_ && text_[after] != ',') return false;
  at_ = after;
  return true;
}

absl::Status LineReader::Expect(std::string_view words) {
  return Take(words) ? absl::OkStatus() : Expected(fmt::format("`{}`", words));
}

absl::StatusOr<int64_t> LineReader::Number(int64_t most) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + end_, number);
  const bool digit = at_ < end_ && text_[at_] >= '0' && text_[at_] <= '9';
  if (error != std::errc() || !digit || number > most)
    return Expected(fmt::format("a number from 0 to {}", most));
  at_ = static_cast<size_t>(end - text_.data());
  return number;
}

absl::StatusOr<double> LineReader::Decimal() {
  double number = 0;
  const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + end_, number);
  if (error != std::errc() || !std::isfinite(number) || number < 0)
    return Expected("a number that is not negative");
  at_ = static_cast<size_t>(end - text_.data());
  return number;
}

absl::StatusOr<int> LineReader::Id(char kind, size_t declared) {
  const size_t begin = at_;
  if (!Take(std::string(1, kind))) return Expected(fmt::format("`{}` and a number", kind));
  QUENCH_ASSIGN_OR_RETURN(const int64_t id, Number(INT32_MAX));
  if (static_cast<size_t>(id) < declared) return static_cast<int>(id);
  return ErrorAt(
      begin, declared == 0
                 ? fmt::format("there is no `{}{}`: none is declared", kind, id)
                 : fmt::format("there is no `{}{}`: the last one that is declared is `{}{}`", kind,
                               id, kind, declared - 1));
}

// The offset after the string that begins at `at`; the end of the line if it does not end.
size_t LineReader::EndOfQuoted(size_t at) const {
  for (++at; at < end_ && text_[at] != '"'; ++at) at += text_[at] == '\\';
  return std::min(at + 1, end_);
}

absl::StatusOr<std::string> LineReader::Name() {
  if (!Take("`")) {
    if (at_ < end_ && text_[at_] == '"') return Word();
    return Expected("a name in backticks");
  }
  const size_t end = Rest().find('`');
  if (end == std::string_view::npos) return Error("the name does not end with a backtick");
  std::string name = text_.substr(at_, end);
  at_ += end + 1;
  return name;
}

absl::StatusOr<std::string> LineReader::Word() {
  const size_t begin = at_;
  if (at_ < end_ && text_[at_] == '"') {
    at_ = EndOfQuoted(at_);
    absl::StatusOr<std::string> word = Unquote(text_.substr(begin, at_ - begin));
    if (!word.ok()) return ErrorAt(begin, MessageOf(word.status()));
    return word;
  }
  size_t end = at_;
  while (end < end_ && IsWordCharacter(text_[end]) && text_[end] != '$') ++end;
  std::string word = text_.substr(at_, end - at_);
  if (!IsIdentifier(word)) return Expected("a word");
  at_ = end;
  return word;
}

// A number, a name, or a call or sum in parentheses; `at` if there is none.
size_t LineReader::EndOfOperand(size_t at) const {
  if (at < end_ && text_[at] == '"') return EndOfQuoted(at);
  while (at < end_ && IsWordCharacter(text_[at])) ++at;
  if (at == end_ || text_[at] != '(') return at;
  for (int open = 0; at < end_;) {
    const char c = text_[at];
    if (c == '"') {
      at = EndOfQuoted(at);
      continue;
    }
    open += (c == '(') - (c == ')');
    ++at;
    if (open == 0) break;
  }
  return at;
}

size_t LineReader::EndOfSize() const {
  const auto skip = [&](size_t at) {
    while (at < end_ && text_[at] == ' ') ++at;
    return at;
  };
  size_t at = at_ < end_ && text_[at_] == '-' ? skip(at_ + 1) : at_;
  while (true) {
    const size_t end = EndOfOperand(at), next = skip(end);
    const bool goes_on = next < end_ && (text_[next] == '+' || text_[next] == '*' ||
                                         (text_[next] == '-' && text_.compare(next, 2, "->") != 0));
    if (end == at || !goes_on) return end;
    at = skip(next + 1);
  }
}

bool LineReader::IsSize(std::string_view words) const {
  const size_t end = EndOfSize();
  return end > at_ && std::string_view(text_).substr(end, end_ - end).starts_with(words);
}

absl::StatusOr<Dim> LineReader::Size(SymbolTable& symbols) {
  const size_t begin = at_, end = EndOfSize();
  if (end == begin) return Expected("a size");
  absl::StatusOr<Dim> dim = symbols.Parse(text_.substr(begin, end - begin));
  if (!dim.ok()) return ErrorAt(begin, MessageOf(dim.status()));
  at_ = end;
  return dim;
}

absl::Status LineReader::ErrorAt(size_t offset, const std::string& problem) const {
  return text::ErrorAt(text_, offset, problem);
}

absl::Status LineReader::Expected(std::string_view what) const {
  constexpr size_t kMostShown = 40;
  if (at_ == end_) {
    const bool text = end_ == text_.size();
    return Error(fmt::format("the {} ends, {} was expected", text ? "text" : "line", what));
  }
  const std::string shown = Quote(Rest().substr(0, kMostShown));
  return Error(fmt::format("`{}{}` was found, {} was expected", shown.substr(1, shown.size() - 2),
                           Rest().size() > kMostShown ? "..." : "", what));
}

}  // namespace quench::codegen
