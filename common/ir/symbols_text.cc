// Dim expressions as text.
//
//   sum     = ["-"] product { ("+" | "-") product }
//   product = factor { "*" factor }
//   factor  = integer | name | "$" integer | function "(" sum "," sum ")" | "(" sum ")"
//   name    = identifier | quoted string;  function = floordiv | ceildiv | mod | min | max
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "common/base/status.h"
#include "common/ir/quoting.h"
#include "common/ir/saturating.h"
#include "common/ir/symbols.h"

namespace quench {
namespace {

constexpr int kMaxNesting = 64;
constexpr size_t kMaxExpressionText = size_t{1} << 16;

struct FunctionName {
  std::string_view name;
  DimOp op;
};
constexpr std::array<FunctionName, 5> kFunctions = {{{"floordiv", DimOp::kFloorDiv},
                                                     {"ceildiv", DimOp::kCeilDiv},
                                                     {"mod", DimOp::kMod},
                                                     {"min", DimOp::kMin},
                                                     {"max", DimOp::kMax}}};

const FunctionName* FindFunction(std::string_view name) {
  const auto it = std::find_if(kFunctions.begin(), kFunctions.end(),
                               [&](const FunctionName& f) { return f.name == name; });
  return it == kFunctions.end() ? nullptr : it;
}

bool IsNameChar(char c) { return IsIdentifier(std::string{'a', c}); }

}  // namespace

std::string SymbolTable::Quoted(SymbolId id) const {
  const std::string& name = at(id).name;
  return IsIdentifier(name) && FindFunction(name) == nullptr ? name : Quote(name);
}

bool SymbolTable::IsAbbreviated(SymbolId id) const {
  return at(id).is_expression() && text_size_[static_cast<size_t>(id)] > kMaxInlineText;
}

std::string SymbolTable::ToString(Dim dim) const {
  if (dim.is_static()) return std::to_string(dim.value());
  const SymbolId id = dim.symbol();
  if (id >= size()) return "$" + std::to_string(id);  // only in graphs that the verifier refuses
  if (!at(id).is_expression()) return Quoted(id);
  return IsAbbreviated(id) ? "$" + std::to_string(id) : Definition(id);
}

std::string SymbolTable::Definition(SymbolId id) const {
  const Symbol& symbol = at(id);
  if (const auto* binary = std::get_if<DimBinary>(&symbol.definition)) {
    const auto function = std::find_if(kFunctions.begin(), kFunctions.end(),
                                       [&](const FunctionName& f) { return f.op == binary->op; });
    return fmt::format("{}({}, {})", function->name, ToString(binary->lhs), ToString(binary->rhs));
  }
  const auto* polynomial = std::get_if<Polynomial>(&symbol.definition);
  if (polynomial == nullptr) return Quoted(id);
  std::string text;
  const auto join = [&](bool negative) {
    if (!text.empty()) {
      text += negative ? " - " : " + ";
    } else if (negative) {
      text += "-";
    }
  };
  // The magnitude of INT64_MIN is only representable unsigned.
  const auto magnitude = [](int64_t value) {
    return value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  };
  for (const Monomial& term : polynomial->terms) {
    join(term.coefficient < 0);
    std::string product;
    if (magnitude(term.coefficient) != 1) product = std::to_string(magnitude(term.coefficient));
    for (SymbolId factor : term.factors) {
      if (!product.empty()) product += "*";
      const std::string name = ToString(Dim::OfSymbol(factor));
      const bool sum =
          std::holds_alternative<Polynomial>(at(factor).definition) && !IsAbbreviated(factor);
      product += sum ? "(" + name + ")" : name;
    }
    text += product;
  }
  if (polynomial->constant != 0) {
    join(polynomial->constant < 0);
    text += std::to_string(magnitude(polynomial->constant));
  }
  return text;
}

// Length of the definition without spelling it out: a polynomial may have a thousand long factors.
int SymbolTable::TextSize(SymbolId id) const {
  constexpr int64_t kLimit = 1 << 20;
  const auto size_of = [&](Dim dim) -> int64_t {
    if (dim.is_static()) return 20;
    const bool abbreviated = IsAbbreviated(dim.symbol());
    return abbreviated ? 12 : text_size_[static_cast<size_t>(dim.symbol())];
  };
  const Symbol& symbol = at(id);
  int64_t total = 0;
  if (const auto* binary = std::get_if<DimBinary>(&symbol.definition)) {
    total = size_of(binary->lhs) + size_of(binary->rhs) + 12;
  } else if (const auto* polynomial = std::get_if<Polynomial>(&symbol.definition)) {
    if (polynomial->constant != 0) total += 4;
    for (const Monomial& term : polynomial->terms) {
      total += term.coefficient == 1 ? 3 : 6;
      for (SymbolId factor : term.factors) total += size_of(Dim::OfSymbol(factor)) + 1;
    }
  } else {
    total = static_cast<int64_t>(Quoted(id).size());
  }
  return static_cast<int>(std::min(total, kLimit));
}

// Recursive descent; intermediate sums stay polynomials, so only the result enters the table.
class DimParser {
 public:
  DimParser(SymbolTable& table, const std::string& text, const std::map<std::string, Dim>* aliases)
      : table_(table), text_(text), aliases_(aliases) {}

  absl::StatusOr<Dim> Parse() {
    if (text_.size() > kMaxExpressionText) {
      return Error(fmt::format("an expression has at most {} characters", kMaxExpressionText));
    }
    QUENCH_ASSIGN_OR_RETURN(const Polynomial sum, ParseSum(0));
    SkipSpace();
    if (at_ != text_.size())
      return Error("`+`, `-`, `*` or the end of the expression was expected");
    return table_.FromPolynomial(sum);
  }

 private:
  absl::Status Error(const std::string& problem) const {
    const std::string shown = text_.size() > 80 ? text_.substr(0, 80) + "..." : text_;
    return InvalidArgument("size `{}`, character {}: {}", shown, at_ + 1, problem);
  }
  void SkipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool Take(char c) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  absl::StatusOr<Polynomial> ParseSum(int depth) {
    if (depth > kMaxNesting) return Error(fmt::format("nesting is deeper than {}", kMaxNesting));
    Polynomial sum;
    int64_t sign = Take('-') ? -1 : 1;
    while (true) {
      QUENCH_ASSIGN_OR_RETURN(const Polynomial product, ParseProduct(depth, sign));
      sum = table_.Sum(sum, product, 1);
      if (Take('+')) {
        sign = 1;
      } else if (Take('-')) {
        sign = -1;
      } else {
        return sum;
      }
    }
  }

  absl::StatusOr<Polynomial> ParseProduct(int depth, int64_t sign) {
    Polynomial product;
    product.constant = 1;
    bool first = true;
    do {
      QUENCH_ASSIGN_OR_RETURN(const Polynomial factor, ParseFactor(depth, first ? sign : 1));
      product = first ? factor : table_.Times(product, factor);
      first = false;
    } while (Take('*'));
    return product;
  }

  absl::StatusOr<Polynomial> ParseFactor(int depth, int64_t sign) {
    SkipSpace();
    if (at_ >= text_.size()) return Error("a number, a name or `(` was expected");
    const char c = text_[at_];
    if (c >= '0' && c <= '9') return ParseInteger(sign);
    Polynomial value;
    if (Take('(')) {
      QUENCH_ASSIGN_OR_RETURN(value, ParseSum(depth + 1));
      if (!Take(')')) return Error("`)` was expected");
    } else {
      QUENCH_ASSIGN_OR_RETURN(const Dim dim, ParseName(depth));
      value = table_.ToPolynomial(dim);
    }
    return sign == 1 ? value : table_.Sum({}, value, sign);
  }

  absl::StatusOr<Polynomial> ParseInteger(int64_t sign) {
    uint64_t magnitude = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), magnitude);
    const uint64_t limit = static_cast<uint64_t>(kInt64Max) + (sign < 0 ? 1 : 0);
    if (error != std::errc() || magnitude > limit) return Error("the number exceeds 64 bits");
    at_ = static_cast<size_t>(end - text_.data());
    Polynomial value;
    value.constant = static_cast<int64_t>(sign < 0 ? uint64_t{0} - magnitude : magnitude);
    return value;
  }

  absl::StatusOr<Dim> ParseName(int depth) {
    if (text_[at_] == '"') {
      const size_t start = at_;
      do {
        at_ += text_[at_] == '\\' ? 2 : 1;
      } while (at_ < text_.size() && text_[at_] != '"');
      if (at_ >= text_.size()) return Error("the quoted name does not end");
      ++at_;
      QUENCH_ASSIGN_OR_RETURN(const std::string name, Unquote(text_.substr(start, at_ - start)));
      return Lookup(name, start);
    }
    if (text_[at_] == '$') return ParseAlias();
    const size_t start = at_;
    while (at_ < text_.size() && IsNameChar(text_[at_])) ++at_;
    const std::string name = text_.substr(start, at_ - start);
    if (!IsIdentifier(name)) return Error("a number, a name or `(` was expected");
    const FunctionName* function = FindFunction(name);
    return function == nullptr ? Lookup(name, start) : ParseCall(function->op, depth);
  }

  absl::StatusOr<Dim> Lookup(const std::string& name, size_t start) {
    if (const auto id = table_.Find(name)) return Dim::OfSymbol(*id);
    at_ = start;
    return Error(fmt::format("there is no symbol `{}`", name));
  }

  absl::StatusOr<Dim> ParseAlias() {
    const size_t start = at_++;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    const std::string alias = text_.substr(start, at_ - start);
    if (aliases_ != nullptr) {
      if (const auto it = aliases_->find(alias); it != aliases_->end()) return it->second;
    } else {
      SymbolId id = -1;
      std::from_chars(alias.data() + 1, alias.data() + alias.size(), id);
      if (id >= 0 && id < table_.size()) return Dim::OfSymbol(id);
    }
    return Error(fmt::format("there is no expression `{}`", alias));
  }

  absl::StatusOr<Dim> ParseCall(DimOp op, int depth) {
    if (!Take('(')) return Error("`(` was expected");
    QUENCH_ASSIGN_OR_RETURN(const Polynomial left, ParseSum(depth + 1));
    if (!Take(',')) return Error("`,` was expected");
    QUENCH_ASSIGN_OR_RETURN(const Polynomial right, ParseSum(depth + 1));
    if (!Take(')')) return Error("`)` was expected");
    const Dim lhs = table_.FromPolynomial(left);
    const Dim rhs = table_.FromPolynomial(right);
    const bool divides = op != DimOp::kMin && op != DimOp::kMax;
    if (divides && rhs.is_static() && rhs.value() <= 0) {
      return Error(fmt::format("divides by {}, a divisor is positive", rhs.value()));
    }
    switch (op) {
      case DimOp::kFloorDiv:
        return table_.FloorDiv(lhs, rhs);
      case DimOp::kCeilDiv:
        return table_.CeilDiv(lhs, rhs);
      case DimOp::kMod:
        return table_.Mod(lhs, rhs);
      case DimOp::kMin:
        return table_.Min(lhs, rhs);
      default:
        return table_.Max(lhs, rhs);
    }
  }

  SymbolTable& table_;
  const std::string& text_;
  const std::map<std::string, Dim>* aliases_;
  size_t at_ = 0;
};

absl::StatusOr<Dim> SymbolTable::Parse(const std::string& text,
                                       const std::map<std::string, Dim>* aliases) {
  return DimParser(*this, text, aliases).Parse();
}

}  // namespace quench
