// Reads a text of indented lines, one word after the other. Each call consumes what it returns; errors
// read "line:column: problem" and say what was found.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "common/ir/symbols.h"

namespace quench::codegen {

class LineReader {
 public:
  // `text` outlives the reader, which begins at its first line. Blank lines and those that begin with `#`
  // are left out.
  explicit LineReader(const std::string& text) : text_(text) { Skip(); }

  bool AtEnd() const { return at_ >= text_.size(); }  // of the text
  // Spaces before the line, halved; -1 for an odd number.
  int depth() const { return depth_; }
  size_t offset() const { return at_; }
  // Goes on at `offset`, which must be where a line begins.
  absl::Status GoTo(size_t offset);
  // Nothing may be left of the line: goes on at the next.
  absl::Status EndLine();

  // The rest of the line.
  std::string_view Rest() const { return std::string_view(text_).substr(at_, end_ - at_); }
  std::string TakeRest();
  bool Take(std::string_view words);
  // The same if a comma or the end of the line follows.
  bool TakeClause(std::string_view words);
  absl::Status Expect(std::string_view words);

  // From 0 to `most`.
  absl::StatusOr<int64_t> Number(int64_t most);
  absl::StatusOr<double> Decimal();  // not negative
  // "b12": a letter, and a number below `declared`.
  absl::StatusOr<int> Id(char kind, size_t declared);
  // `name`, or "name" with escapes.
  absl::StatusOr<std::string> Name();
  // An identifier, or "word" with escapes.
  absl::StatusOr<std::string> Word();
  absl::StatusOr<Dim> Size(SymbolTable& symbols);
  // Whether a size comes next and is followed by `words`.
  bool IsSize(std::string_view words) const;

  absl::Status Error(const std::string& problem) const { return ErrorAt(at_, problem); }
  absl::Status ErrorAt(size_t offset, const std::string& problem) const;
  // "`...` was found, WHAT was expected".
  absl::Status Expected(std::string_view what) const;

 private:
  void Skip();
  void Open(size_t line);
  size_t EndOfQuoted(size_t at) const;
  size_t EndOfOperand(size_t at) const;
  size_t EndOfSize() const;

  const std::string& text_;
  size_t at_ = 0, end_ = 0;  // of what is left of the line
  int depth_ = 0;
};

}  // namespace quench::codegen
