// Helpers for operator files: type and rank rules, shape arithmetic, broadcasting loads, constants
// in expressions.
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/ops/catalogue.h"
#include "common/ops/op.h"

namespace quench::ops {

using loops::B;
using loops::BinaryOp;
using loops::E;
using loops::UnaryOp;

// ---- Types ----

// A set of element types.
using DataTypes = uint32_t;
constexpr DataTypes TypeSet(std::initializer_list<DataType> types) {
  DataTypes set = 0;
  for (const DataType type : types) set |= DataTypes{1} << static_cast<int>(type);
  return set;
}
constexpr bool Contains(DataTypes set, DataType type) {
  return (set >> static_cast<int>(type)) & 1;
}

inline constexpr DataTypes kFloatTypes =
    TypeSet({DataType::kF16, DataType::kBF16, DataType::kF32, DataType::kF64});
inline constexpr DataTypes kSignedTypes =
    TypeSet({DataType::kI8, DataType::kI16, DataType::kI32, DataType::kI64});
inline constexpr DataTypes kUnsignedTypes =
    TypeSet({DataType::kU8, DataType::kU16, DataType::kU32, DataType::kU64});
inline constexpr DataTypes kIntTypes = kSignedTypes | kUnsignedTypes;
inline constexpr DataTypes kNumericTypes = kFloatTypes | kIntTypes;
inline constexpr DataTypes kBoolType = TypeSet({DataType::kBool});
inline constexpr DataTypes kIndexTypes = TypeSet({DataType::kI32, DataType::kI64});
inline constexpr DataTypes kFloat8Types =
    TypeSet({DataType::kF8E4M3FN, DataType::kF8E4M3FNUZ, DataType::kF8E5M2, DataType::kF8E5M2FNUZ});
inline constexpr DataTypes kSubByteTypes =
    TypeSet({DataType::kI4, DataType::kU4, DataType::kI2, DataType::kU2, DataType::kF4E2M1});
// Every tensor of fixed-size elements, and every tensor at all.
inline constexpr DataTypes kPlainTypes =
    kNumericTypes | kBoolType | kFloat8Types | kSubByteTypes | TypeSet({DataType::kF8E8M0});
inline constexpr DataTypes kAllTypes =
    kPlainTypes | TypeSet({DataType::kString, DataType::kC64, DataType::kC128});

// "f32, f16 or i64", for error texts.
std::string ToString(DataTypes types);

// Input i, if present, has one of the types.
absl::Status RequireType(const OpContext& op, int i, DataTypes allowed);
// All present inputs of the list have the type of the first present one; an empty list means all
// inputs.
absl::Status RequireSameType(const OpContext& op, std::initializer_list<int> inputs = {});
// Input i, if present, has a rank in [min, max]; max -1: no limit.
absl::Status RequireRank(const OpContext& op, int i, int min, int max = -1);
// Two dims that must be equal are not provably different. `what` reads "channels of x and w".
absl::Status RequireEqual(const OpContext& op, Dim a, Dim b, const std::string& what);
// Length of input i, a vector whose entries are the sizes of a result that only a run knows: at most
// 64 of them.
absl::StatusOr<int> RankFromLength(const OpContext& op, int i);

// "{2, batch, 8}".
std::string ToString(const OpContext& op, std::span<const Dim> dims);

// ---- Shape inference shared by many ----

// All inputs of one of the types, all equal, broadcast; output 0 has the same type.
absl::Status InferElementwise(InferContext& op, DataTypes allowed);
// The same, output 0 is bool.
absl::Status InferComparison(InferContext& op, DataTypes allowed);
// Broadcast shape of all present inputs.
absl::StatusOr<std::vector<Dim>> BroadcastInputs(const InferContext& op);
// Output 0 is like input 0.
absl::Status InferLikeFirst(InferContext& op, DataTypes allowed);
// When all inputs have known integer or bool contents: contents of output 0 = fold(symbols, a, b),
// left to right over the inputs, broadcast between scalars and vectors. `fold` gives nullopt where
// no dim expresses the result.
void InferElements(InferContext& op,
                   std::optional<Dim> (*fold)(SymbolTable& symbols, Dim a, Dim b));

// a < b where the ranges of the symbols decide it: for folds that give a bool as 0 or 1.
std::optional<bool> ProvablyLess(SymbolTable& symbols, Dim a, Dim b);

// The attribute `axis` (default `fallback`) normalised for `rank`. For use after `infer` has
// checked it.
int NormalAxis(int64_t axis, int rank);
// A list of axes normalised, sorted and checked for duplicates.
absl::StatusOr<std::vector<int>> Axes(const InferContext& op, const std::vector<int64_t>& axes,
                                      int rank);

// ---- Expressions ----

// A constant of the type of `like`.
inline E ConstantLike(E like, double value) { return like.builder()->F(value, like.type()); }
// log(1 + exp(x)), without overflow and with the relative error of a rounding wherever it is small: the
// sum's rounding is divided out of the logarithm (Kahan's log1p, HP-15C Advanced Functions Handbook).
E Softplus(E x);
template <std::floating_point T>
E operator+(E a, T b) {
  return a + ConstantLike(a, b);
}
template <std::floating_point T>
E operator-(E a, T b) {
  return a - ConstantLike(a, b);
}
template <std::floating_point T>
E operator*(E a, T b) {
  return a * ConstantLike(a, b);
}
template <std::floating_point T>
E operator/(E a, T b) {
  return a / ConstantLike(a, b);
}
// x[0] op x[1] op ..: few from the left, many by halves, so that expressions stay shallow however many
// inputs an operator has.
E Combined(std::span<const E> x, const std::function<E(E, E)>& op);
// Lowest and highest value of a type, as a constant (infinities for floats).
E LowestOf(loops::Builder& b, DataType type);
E HighestOf(loops::Builder& b, DataType type);

// Loads an operand at indices of an output it broadcasts to. Made before the loops over the output,
// because it may emit the checks that symbolic dims fit.
class BroadcastLoad {
 public:
  BroadcastLoad() = default;
  // axes[k] is the output axis of dim k of input i. Output dims are those of output 0 or `to`.
  BroadcastLoad(LowerContext& op, int i, std::vector<int> axes);
  BroadcastLoad(LowerContext& op, int i, std::vector<int> axes, std::span<const Dim> to);
  // Right-aligned NumPy broadcasting.
  static BroadcastLoad RightAligned(LowerContext& op, int i, std::span<const Dim> to);

  bool valid() const { return buffer_.valid(); }
  // Element, widened to its compute type, for indices of the output; `tail` is appended to the
  // operand's indices (for dims that do not broadcast).
  E At(std::span<const E> output_index, std::span<const E> tail = {}) const;

 private:
  B buffer_;
  std::vector<int> axes_;
  std::vector<E> factors_;  // per dim: 0 when it is 1, invalid when it equals the output's, else 0
                            // or 1 at run time
};

}  // namespace quench::ops
