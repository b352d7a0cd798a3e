// Terminals of the text form: names, numbers, sizes, types, elements. Each call consumes what it
// returns.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/ir/graph.h"
#include "common/ir/text_lex.h"

namespace quench {

class TextReader {
 public:
  // `source` outlives the reader, which begins at `offset`.
  explicit TextReader(const std::string& source, size_t offset = 0)
      : lexer_(source, offset), symbols_(std::make_shared<SymbolTable>()) {}

  const text::Token& now() const { return now_; }
  absl::Status Advance();
  absl::Status Error(const std::string& problem) const { return ErrorAt(now_, problem); }
  absl::Status ErrorAt(const text::Token& token, const std::string& problem) const;

  void set_symbols(std::shared_ptr<SymbolTable> symbols) { symbols_ = std::move(symbols); }
  SymbolTable& symbols() { return *symbols_; }
  const std::shared_ptr<SymbolTable>& shared_symbols() const { return symbols_; }
  std::optional<Dim> Alias(const std::string& alias) const {
    const auto found = aliases_.find(alias);
    return found == aliases_.end() ? std::nullopt : std::optional(found->second);
  }
  // False when the alias is taken.
  bool AddAlias(const std::string& alias, Dim dim) { return aliases_.emplace(alias, dim).second; }

  absl::Status Punct(std::string_view punct);
  absl::Status Keyword(std::string_view keyword);
  absl::StatusOr<std::string> String();
  absl::StatusOr<std::string> NameOrString();
  absl::StatusOr<std::string> ValueName();  // without `%`, never empty
  absl::StatusOr<std::string> Digest();     // in quotation marks
  absl::StatusOr<int64_t> Integer();        // with sign
  absl::StatusOr<uint64_t> Natural();

  struct Number {
    bool is_float = false;
    int64_t integer = 0;
    double real = 0;
  };
  absl::StatusOr<Number> ParseNumber();

  // An expression up to a comma or closing bracket of its own level.
  absl::StatusOr<Dim> Size();
  absl::StatusOr<std::vector<Dim>> Sizes(std::string_view close);  // `close` is not consumed
  absl::StatusOr<Type> ParseType(int depth);
  // "[...]" with as many elements as the static `type` has.
  absl::StatusOr<Tensor> Elements(const Type& type);

 private:
  absl::StatusOr<Type> ParseTensorType();
  absl::StatusOr<DataType> ParseElementType();
  absl::StatusOr<Tensor> StringElements(const std::vector<int64_t>& dims, int64_t count);
  absl::StatusOr<Tensor> NumericElements(DataType dtype, const std::vector<int64_t>& dims,
                                         int64_t count);

  text::Lexer lexer_;
  text::Token now_;
  std::shared_ptr<SymbolTable> symbols_;
  std::map<std::string, Dim> aliases_;
};

}  // namespace quench
