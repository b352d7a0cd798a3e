// Dimensions and the symbol table.
//
// A Dim is an integer or a symbol id. Expressions over symbols are interned in normal form (a
// polynomial over atoms, where an atom is an input, a runtime size, or an irreducible
// floordiv/mod/min/max), so two equal shapes compare equal as ids. Operands of an expression always
// have smaller ids. The table is append-only and shared by a graph and its nested bodies.
// Polynomials stay small (64 terms, 16 factors): beyond that operands become atoms.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace quench {

using SymbolId = int32_t;

class Dim {
 public:
  constexpr Dim() = default;
  constexpr Dim(int64_t value) : value_(value) {}  // NOLINT: an integer is a dim
  static constexpr Dim OfSymbol(SymbolId id) {
    Dim dim;
    dim.symbol_ = id;
    return dim;
  }

  constexpr bool is_static() const { return symbol_ < 0; }
  constexpr int64_t value() const { return value_; }     // static dims only
  constexpr SymbolId symbol() const { return symbol_; }  // symbolic dims only
  constexpr bool is(int64_t v) const { return is_static() && value_ == v; }

  friend constexpr bool operator==(const Dim&, const Dim&) = default;
  friend constexpr auto operator<=>(const Dim&, const Dim&) = default;

 private:
  int64_t value_ = 0;
  SymbolId symbol_ = -1;
};

inline constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

// Inclusive range of values a dim can take; max == kUnbounded when nothing is known.
struct Bounds {
  int64_t min = 0;
  int64_t max = kUnbounded;
};

// input(i, axis): read from the caller's tensor when a run is planned.
struct InputAxis {
  int input = 0;
  int axis = 0;
  friend bool operator==(const InputAxis&, const InputAxis&) = default;
};

// runtime(node): known only after the node of that name has computed its sizes. `upper` bounds it
// from above where a bound exists.
struct RuntimeSize {
  std::string node;
  std::optional<Dim> upper;
};

// coefficient * product of factors (sorted ids of atoms).
struct Monomial {
  int64_t coefficient = 1;
  std::vector<SymbolId> factors;
  friend bool operator==(const Monomial&, const Monomial&) = default;
};
// Sum of monomials, sorted by factors, plus a constant; never a bare constant or a bare atom.
struct Polynomial {
  std::vector<Monomial> terms;
  int64_t constant = 0;
};

enum class DimOp : uint8_t { kFloorDiv, kCeilDiv, kMod, kMin, kMax };
struct DimBinary {
  DimOp op = DimOp::kFloorDiv;
  Dim lhs;
  Dim rhs;
};

struct Symbol {
  std::string name;  // user's name for inputs ("batch"), generated for the rest
  int64_t min = 0;
  int64_t max = kUnbounded;
  int64_t multiple_of = 1;
  std::variant<InputAxis, RuntimeSize, Polynomial, DimBinary> definition;

  bool is_input() const { return std::holds_alternative<InputAxis>(definition); }
  bool is_runtime() const { return std::holds_alternative<RuntimeSize>(definition); }
  bool is_expression() const { return !is_input() && !is_runtime(); }
};

class SymbolTable {
 public:
  int size() const { return static_cast<int>(symbols_.size()); }
  const Symbol& at(SymbolId id) const { return symbols_[static_cast<size_t>(id)]; }

  // A new symbol read from an input. Names are unique; asking for an existing name returns the
  // existing symbol.
  SymbolId AddInput(const std::string& name, InputAxis axis, Bounds bounds = {1, kUnbounded},
                    int64_t multiple_of = 1);
  // A new symbol that a node computes at run time.
  SymbolId AddRuntime(const std::string& name, const std::string& node, std::optional<Dim> upper);
  std::optional<SymbolId> Find(const std::string& name) const;
  // Narrows the range of an input symbol. Expressions made before keep their form, with the
  // narrower range.
  absl::Status Restrict(SymbolId id, Bounds bounds, int64_t multiple_of = 1);

  // Arithmetic in normal form. Division and modulo round towards minus infinity; a divisor must be
  // > 0: one that is not makes `Evaluate` fail. `CeilDiv` is expressed through floordiv. Constant
  // folding saturates at the int64 limits.
  Dim Add(Dim a, Dim b);
  Dim Sub(Dim a, Dim b);
  Dim Mul(Dim a, Dim b);
  Dim FloorDiv(Dim a, Dim b);
  Dim CeilDiv(Dim a, Dim b);
  Dim Mod(Dim a, Dim b);
  Dim Min(Dim a, Dim b);
  Dim Max(Dim a, Dim b);
  Dim Product(std::span<const Dim> dims);

  Bounds BoundsOf(Dim dim) const;
  bool IsMultipleOf(Dim dim, int64_t factor) const;  // provably
  // True when the value of the dim is only known after some node has run.
  bool DependsOnRuntime(Dim dim) const;

  // "batch", "2*seq + 1", "floordiv(n, 2)". Names that are not identifiers are quoted. Expressions
  // whose text would be long print as `$id`, so that text stays linear in the table; `Definition`
  // spells them out.
  std::string ToString(Dim dim) const;
  bool IsAbbreviated(SymbolId id) const;
  std::string Definition(SymbolId id) const;
  // Inverse of ToString over the names in this table. `aliases` says what `$id` stands for; without
  // it, the symbol of that id.
  absl::StatusOr<Dim> Parse(const std::string& text,
                            const std::map<std::string, Dim>* aliases = nullptr);

  // Calls visit(dim) on every operand of a symbol's definition, the upper bound of a runtime size
  // included.
  template <typename Visit>
  void ForEachOperand(SymbolId id, Visit&& visit) const;

  // Values of all symbols, given those of inputs and runtime sizes (entries of expression symbols
  // are ignored and recomputed; index = symbol id). Symbols that depend on an unset runtime size
  // (-1) become -1. A shorter `base` counts as unset, as does -1 for an input. Fails with the
  // symbol's text on a divisor <= 0 or overflow.
  absl::StatusOr<std::vector<int64_t>> Evaluate(std::span<const int64_t> base) const;
  // Value of one dim given all slots.
  static int64_t ValueOf(Dim dim, std::span<const int64_t> slots) {
    return dim.is_static() ? dim.value() : slots[static_cast<size_t>(dim.symbol())];
  }

  // A definition of another table with its symbols replaced: atom(id) is a dim of this table.
  Dim Combine(const Polynomial& polynomial, const std::function<Dim(SymbolId)>& atom);
  Dim Combine(const DimBinary& binary, const std::function<Dim(SymbolId)>& atom);
  // Rewrites `dim` of table `from` into this table, with some symbols of `from` replaced (keyed by
  // id).
  Dim Import(const SymbolTable& from, Dim dim, const std::map<SymbolId, Dim>& replacements);

 private:
  friend class DimParser;
  static constexpr int kMaxInlineText = 160;

  SymbolId Append(Symbol symbol);
  void Refresh(SymbolId id);  // range and multiple of an expression, from its operands
  Dim Intern(const Polynomial& polynomial);
  Dim Intern(const DimBinary& binary);
  Polynomial ToPolynomial(Dim dim) const;
  Polynomial Opaque(const Polynomial& polynomial);  // as one atom
  Dim FromPolynomial(const Polynomial& polynomial);
  Polynomial Sum(const Polynomial& a, const Polynomial& b, int64_t scale_b);
  Polynomial Times(const Polynomial& a, const Polynomial& b);
  Dim FloorDivConstant(Dim a, int64_t divisor);
  Dim Extremum(DimOp op, Dim a, Dim b);
  Bounds BoundsOfPolynomial(const Polynomial& polynomial) const;
  int64_t MultipleOf(Dim dim) const;
  int64_t MultipleOf(const Monomial& term) const;
  std::string Quoted(SymbolId id) const;
  int TextSize(SymbolId id) const;

  std::vector<Symbol> symbols_;
  std::vector<bool> depends_on_runtime_;
  std::vector<int> text_size_;               // estimated
  std::map<std::string, SymbolId> by_name_;  // inputs and runtime sizes
  std::map<std::string, SymbolId> by_form_;  // normal form -> id
};

template <typename Visit>
void SymbolTable::ForEachOperand(SymbolId id, Visit&& visit) const {
  const Symbol& symbol = at(id);
  if (const auto* runtime = std::get_if<RuntimeSize>(&symbol.definition)) {
    if (runtime->upper) visit(*runtime->upper);
  } else if (const auto* polynomial = std::get_if<Polynomial>(&symbol.definition)) {
    for (const Monomial& term : polynomial->terms) {
      for (SymbolId factor : term.factors) visit(Dim::OfSymbol(factor));
    }
  } else if (const auto* binary = std::get_if<DimBinary>(&symbol.definition)) {
    visit(binary->lhs);
    visit(binary->rhs);
  }
}

}  // namespace quench
