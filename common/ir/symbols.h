// Dimensions and the symbol table.
//
// A Dim is an integer or a symbol id. Expressions over symbols are interned in normal form (a polynomial over
// atoms, where an atom is an input, a runtime size, or an irreducible floordiv/ceildiv/mod/min/max), so two
// equal shapes compare equal as ids. The table is append-only and shared by a graph and its nested bodies.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
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
  constexpr int64_t value() const { return value_; }       // static dims only
  constexpr SymbolId symbol() const { return symbol_; }    // symbolic dims only
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

// runtime(node): known only after the node of that name has computed its sizes. `upper` bounds it from above
// where a bound exists.
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

  // A new symbol read from an input. Names are unique; asking for an existing name returns the existing symbol.
  SymbolId AddInput(const std::string& name, InputAxis axis, Bounds bounds = {1, kUnbounded},
                    int64_t multiple_of = 1);
  // A new symbol that a node computes at run time.
  SymbolId AddRuntime(const std::string& name, const std::string& node, std::optional<Dim> upper);
  std::optional<SymbolId> Find(const std::string& name) const;
  // Narrows the range of an input symbol.
  absl::Status Restrict(SymbolId id, Bounds bounds, int64_t multiple_of = 1);

  // Arithmetic in normal form. Division and modulo round towards minus infinity; a divisor must be > 0.
  // Constant folding saturates at the int64 limits.
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

  // "batch", "2*seq + 1", "floordiv(n, 2)".
  std::string ToString(Dim dim) const;
  // Inverse of ToString over the names in this table.
  absl::StatusOr<Dim> Parse(const std::string& text);

  // Values of all symbols, given those of inputs and runtime sizes (entries of expression symbols are ignored
  // and recomputed; index = symbol id). Symbols that depend on an unset runtime size (-1) become -1.
  // Fails with the symbol's name on division by zero or overflow.
  absl::StatusOr<std::vector<int64_t>> Evaluate(std::span<const int64_t> base) const;
  // Value of one dim given all slots.
  static int64_t ValueOf(Dim dim, std::span<const int64_t> slots) {
    return dim.is_static() ? dim.value() : slots[static_cast<size_t>(dim.symbol())];
  }

  // Rewrites `dim` of table `from` into this table, with some symbols of `from` replaced (keyed by id).
  Dim Import(const SymbolTable& from, Dim dim, const std::map<SymbolId, Dim>& replacements);

 private:
  friend class SymbolTableReader;  // ir/text and ir/wire rebuild tables symbol by symbol
  SymbolId Append(Symbol symbol);
  SymbolId Intern(const Polynomial& polynomial);
  SymbolId Intern(const DimBinary& binary);
  Polynomial ToPolynomial(Dim dim) const;
  Dim FromPolynomial(Polynomial polynomial);

  std::vector<Symbol> symbols_;
  std::map<std::string, SymbolId> by_name_;
  std::map<std::string, SymbolId> by_form_;  // normal form -> id
};

}  // namespace quench
