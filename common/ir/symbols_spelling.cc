#include "common/ir/symbols_spelling.h"

#include <algorithm>
#include <charconv>

namespace quench {
namespace {

constexpr size_t kMost = 4096;

class Speller {
 public:
  explicit Speller(const SymbolTable& symbols) : symbols_(symbols) {}

  // Appends `text`, a definition of `symbols`, in which `$id` stands outside of quotation marks.
  void Add(const std::string& text) {
    bool quoted = false;
    for (size_t i = 0; i < text.size() && text_.size() <= kMost; ++i) {
      if (text[i] == '\\' && quoted) {
        text_ += text[i++];
      } else if (text[i] == '"') {
        quoted = !quoted;
      } else if (text[i] == '$' && !quoted) {
        SymbolId id = 0;
        const char* const end = std::from_chars(&text[i] + 1, text.data() + text.size(), id).ptr;
        AddSymbol(id, i == 0 && end == text.data() + text.size());
        i = static_cast<size_t>(end - text.data()) - 1;
        continue;
      }
      if (i < text.size()) text_ += text[i];
    }
  }
  std::string Take() {
    if (text_.size() <= kMost) return std::move(text_);
    return text_.substr(0, kMost) + "...";
  }

 private:
  void AddSymbol(SymbolId id, bool alone) {
    if (id >= symbols_.size()) {
      text_ += "$" + std::to_string(id);
      return;
    }
    // Functions keep together by themselves.
    const bool sum = !alone && std::holds_alternative<Polynomial>(symbols_.at(id).definition);
    if (sum) text_ += "(";
    Add(symbols_.Definition(id));
    if (sum) text_ += ")";
  }

  const SymbolTable& symbols_;
  std::string text_;
};

}  // namespace

std::string SpelledOut(const SymbolTable& symbols, Dim dim) {
  Speller speller(symbols);
  speller.Add(symbols.ToString(dim));
  return speller.Take();
}

}  // namespace quench
