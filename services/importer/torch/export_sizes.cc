#include "services/importer/torch/export_sizes.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>

#include "common/base/status.h"
#include "services/importer/torch/export_schema.h"

namespace quench::importer {
namespace {

using Json = nlohmann::json;

// Fractions that stay exact, for the sizes are integers: "s0/2", Mul(Rational(1, 2), ...).
struct Ratio {
  Dim top;
  int64_t bottom = 1;
};
using MaybeRatio = std::optional<Ratio>;

// An expression as SymPy writes it, in either of its forms: "2*s0 + 1" up to torch 2.6,
// "Add(Mul(Integer(2), Symbol('s0', positive=True)), Integer(1))" later. Nullopt for what sizes here cannot be.
class SizeParser {
 public:
  SizeParser(SymbolTable& symbols, std::string_view text) : symbols_(symbols), text_(text) {}

  std::optional<Dim> Parse() {
    if (text_.size() > kMaxText) return std::nullopt;
    const MaybeRatio sum = Sum();
    SkipSpace();
    return sum && at_ == text_.size() ? DimOf(*sum) : std::nullopt;
  }

 private:
  static constexpr size_t kMaxText = 4096;
  static constexpr int kMaxDepth = 64;
  static constexpr int64_t kMaxExponent = 8;

  void SkipSpace() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool Take(std::string_view token) {
    SkipSpace();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  std::string_view TakeName() {
    SkipSpace();
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    return text_.substr(begin, at_ - begin);
  }

  std::optional<Dim> DimOf(const Ratio& ratio) {
    return ratio.bottom == 1 ? ratio.top : symbols_.FloorDiv(ratio.top, ratio.bottom);
  }
  MaybeRatio Add(const Ratio& a, const Ratio& b) {
    Ratio sum;
    if (__builtin_mul_overflow(a.bottom, b.bottom, &sum.bottom)) return std::nullopt;
    sum.top = symbols_.Add(symbols_.Mul(a.top, b.bottom), symbols_.Mul(b.top, a.bottom));
    return sum;
  }
  MaybeRatio Times(const Ratio& a, const Ratio& b) {
    Ratio product;
    if (__builtin_mul_overflow(a.bottom, b.bottom, &product.bottom)) return std::nullopt;
    product.top = symbols_.Mul(a.top, b.top);
    return product;
  }
  MaybeRatio Power(const Ratio& base, const Ratio& exponent) {
    if (exponent.bottom != 1 || !exponent.top.is_static() || exponent.top.value() < 0 ||
        exponent.top.value() > kMaxExponent)
      return std::nullopt;
    MaybeRatio power = Ratio{1};
    for (int64_t i = 0; i < exponent.top.value() && power; ++i) power = Times(*power, base);
    return power;
  }
  MaybeRatio Divide(const Ratio& a, const Ratio& b) {
    if (!b.top.is_static() || b.top.value() <= 0) return std::nullopt;
    return Times({symbols_.Mul(a.top, b.bottom), a.bottom}, {1, b.top.value()});
  }

  MaybeRatio Sum();
  MaybeRatio Product();
  MaybeRatio Factor();
  MaybeRatio Atom();
  MaybeRatio Call(std::string_view name);
  MaybeRatio Symbol(std::string_view name) {
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0) return std::nullopt;
    return Ratio{Dim::OfSymbol(symbols_.AddInput(std::string(name), {}))};
  }
  MaybeRatio QuotedSymbol();
  MaybeRatio Apply(std::string_view name, const std::vector<Ratio>& arguments);

  SymbolTable& symbols_;
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

MaybeRatio SizeParser::Sum() {
  if (++depth_ > kMaxDepth) return std::nullopt;
  MaybeRatio sum = Product();
  while (sum) {
    const bool minus = Take("-");
    if (!minus && !Take("+")) break;
    const MaybeRatio next = Product();
    sum = next ? Add(*sum, minus ? *Times({-1}, *next) : *next) : std::nullopt;
  }
  --depth_;
  return sum;
}

MaybeRatio SizeParser::Product() {
  bool negative = false;
  while (Take("-")) negative = !negative;
  MaybeRatio product = Factor();
  while (product) {
    const bool floors = Take("//");
    const bool divides = !floors && Take("/");
    if (!floors && !divides && !Take("*")) break;
    const MaybeRatio next = Factor();
    if (!next) return std::nullopt;
    product = floors    ? Apply("FloorDiv", {*product, *next})
              : divides ? Divide(*product, *next)
                        : Times(*product, *next);
  }
  return product && negative ? Times({-1}, *product) : product;
}

MaybeRatio SizeParser::Factor() {
  const MaybeRatio base = Atom();
  if (!base || !Take("**")) return base;
  const MaybeRatio exponent = Atom();
  return exponent ? Power(*base, *exponent) : std::nullopt;
}

MaybeRatio SizeParser::Atom() {
  if (Take("(")) {
    const MaybeRatio inner = Sum();
    return inner && Take(")") ? inner : std::nullopt;
  }
  SkipSpace();
  int64_t number = 0;
  const char* begin = text_.data() + at_;
  const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), number);
  if (error == std::errc() && number >= 0) {
    at_ += static_cast<size_t>(end - begin);
    return Ratio{number};
  }
  const std::string_view name = TakeName();
  return Take("(") ? Call(name) : Symbol(name);
}

// Behind `Symbol(`.
MaybeRatio SizeParser::QuotedSymbol() {
  if (!Take("'")) return std::nullopt;
  const std::string_view name = TakeName();
  if (!Take("'")) return std::nullopt;
  while (Take(",")) {  // positive=True
    TakeName();
    if (!Take("=")) return std::nullopt;
    TakeName();
  }
  return Take(")") ? Symbol(name) : std::nullopt;
}

MaybeRatio SizeParser::Call(std::string_view name) {
  if (name == "Symbol") return QuotedSymbol();
  std::vector<Ratio> arguments;
  do {
    const MaybeRatio argument = Sum();
    if (!argument) return std::nullopt;
    arguments.push_back(*argument);
  } while (Take(","));
  return Take(")") ? Apply(name, arguments) : std::nullopt;
}

MaybeRatio SizeParser::Apply(std::string_view name, const std::vector<Ratio>& arguments) {
  MaybeRatio result = arguments[0];
  const auto fold = [&](const auto& step) {
    for (size_t i = 1; i < arguments.size() && result; ++i) result = step(*result, arguments[i]);
    return result;
  };
  if (name == "Add") return fold([&](const Ratio& a, const Ratio& b) { return Add(a, b); });
  if (name == "Mul") return fold([&](const Ratio& a, const Ratio& b) { return Times(a, b); });
  if (name == "Integer" && arguments.size() == 1) return result;
  const auto whole = [](const Ratio& ratio) { return ratio.bottom == 1; };
  if (!std::all_of(arguments.begin(), arguments.end(), whole)) return std::nullopt;
  const auto on_dims = [&](Dim (SymbolTable::*op)(Dim, Dim)) {
    return fold([&](const Ratio& a, const Ratio& b) -> MaybeRatio {
      return Ratio{(symbols_.*op)(a.top, b.top)};
    });
  };
  if (name == "Max") return on_dims(&SymbolTable::Max);
  if (name == "Min") return on_dims(&SymbolTable::Min);
  if (arguments.size() != 2) return std::nullopt;
  if (name == "Rational") return Divide(arguments[0], arguments[1]);
  if (name == "Pow") return Power(arguments[0], arguments[1]);
  // Divisors that could be zero are none here.
  if (symbols_.BoundsOf(arguments[1].top).min <= 0) return std::nullopt;
  if (name == "FloorDiv" || name == "CleanDiv") return on_dims(&SymbolTable::FloorDiv);
  if (name == "CeilDiv") return on_dims(&SymbolTable::CeilDiv);
  if (name == "Mod" || name == "PythonMod") return on_dims(&SymbolTable::Mod);
  return std::nullopt;
}

}  // namespace

// {"s0": {"min_val": 2, "max_val": 64}}; without an end max_val is null, or the largest integer minus one.
ExportSizes::ExportSizes(const Json& program) {
  const Json* ranges = ExportMember(program, "range_constraints");
  if (ranges == nullptr || !ranges->is_object()) return;
  constexpr int64_t kEndless = kUnbounded - 1;
  for (const auto& [symbol, range] : ranges->items()) {
    const Json* low = ExportMember(range, "min_val");
    const Json* high = ExportMember(range, "max_val");
    Bounds bounds{1, kUnbounded};
    if (low != nullptr && low->is_number_integer())
      bounds.min = std::max<int64_t>(1, low->get<int64_t>());
    if (high != nullptr && high->is_number_integer() && high->get<int64_t>() < kEndless)
      bounds.max = high->get<int64_t>();
    if (bounds.min <= bounds.max) symbols_->AddInput(symbol, {}, bounds);
  }
}

DeclaredDim ExportSizes::DimOf(const std::string& expression) const {
  const std::optional<Dim> read = SizeParser(*symbols_, expression).Parse();
  if (read && read->is_static()) return {read->value(), ""};
  DeclaredDim dim;
  dim.name = expression;
  if (!read) {
    // Whatever it is, the same text is the same size.
    const SymbolId unknown = symbols_->AddRuntime(expression, expression, std::nullopt);
    dim.formula = {symbols_, Dim::OfSymbol(unknown)};
    return dim;
  }
  const Bounds bounds = symbols_->BoundsOf(*read);
  dim.bounds = {std::max<int64_t>(bounds.min, 0), bounds.max};
  if (const Symbol& symbol = symbols_->at(read->symbol()); symbol.is_input()) {
    dim.name = symbol.name;
  } else {
    dim.name = symbols_->ToString(*read);
    dim.formula = {symbols_, *read};
  }
  return dim;
}

absl::StatusOr<std::vector<DeclaredDim>> ExportSizes::DimsOf(const Json& sizes) const {
  std::vector<DeclaredDim> dims;
  if (!sizes.is_array()) return InvalidArgument("has sizes that are not a list");
  for (const Json& size : sizes) {
    DeclaredDim dim;
    if (const Json* number = ExportMember(size, "as_int"); number && number->is_number_integer()) {
      dim.size = number->get<int64_t>();
    } else if (const Json* expression = ExportMember(size, "as_expr")) {
      dim = DimOf(ExportText(ExportMember(*expression, "expr_str")));
    } else {
      return InvalidArgument("a size is neither a number nor an expression");
    }
    if (dim.size < 0 && dim.name.empty()) return InvalidArgument("has the size {}", dim.size);
    dims.push_back(std::move(dim));
  }
  return dims;
}

}  // namespace quench::importer
