#include "common/ops/helpers.h"

#include <algorithm>
#include <limits>

namespace quench::ops {

std::string ToString(DataTypes types) {
  std::vector<std::string> names;
  for (int i = 1; i < kDataTypeCount; ++i) {
    const DataType type = static_cast<DataType>(i);
    if (Contains(types, type)) names.emplace_back(DataTypeName(type));
  }
  if (names.size() < 2) return names.empty() ? "nothing" : names[0];
  const std::string last = names.back();
  names.pop_back();
  return fmt::format("{} or {}", fmt::join(names, ", "), last);
}

std::string ToString(const OpContext& op, std::span<const Dim> dims) {
  std::vector<std::string> texts;
  for (const Dim dim : dims) texts.push_back(op.symbols().ToString(dim));
  return fmt::format("{{{}}}", fmt::join(texts, ", "));
}

absl::Status RequireType(const OpContext& op, int i, DataTypes allowed) {
  if (!op.has_input(i) || Contains(allowed, op.input(i).dtype)) return absl::OkStatus();
  return op.Error(fmt::format("input {} is {}, {} takes {}", i, DataTypeName(op.input(i).dtype),
                              op.node().op, ToString(allowed)));
}

absl::Status RequireSameType(const OpContext& op, std::initializer_list<int> inputs) {
  std::vector<int> all(inputs);
  for (int i = 0; inputs.size() == 0 && i < op.num_inputs(); ++i) all.push_back(i);
  int first = -1;
  for (const int i : all) {
    if (!op.has_input(i)) continue;
    if (first < 0) first = i;
    if (op.input(i).dtype == op.input(first).dtype) continue;
    return op.Error(fmt::format("input {} is {} and input {} is {}, {} takes one type", first,
                                DataTypeName(op.input(first).dtype), i,
                                DataTypeName(op.input(i).dtype), op.node().op));
  }
  return absl::OkStatus();
}

absl::Status RequireRank(const OpContext& op, int i, int min, int max) {
  if (!op.has_input(i)) return absl::OkStatus();
  const int rank = op.input(i).rank();
  if (rank >= min && (max < 0 || rank <= max)) return absl::OkStatus();
  const std::string rule = max < 0      ? fmt::format("at least {}", min)
                           : min == max ? fmt::format("{}", min)
                                        : fmt::format("{} to {}", min, max);
  return op.Error(fmt::format("input {} has rank {}, {} takes {}", i, rank, op.node().op, rule));
}

absl::StatusOr<int> RankFromLength(const OpContext& op, int i) {
  constexpr int64_t kMostAxes = 64;
  const Dim length = op.input(i).dims[0];
  if (!length.is_static())
    return op.UnsupportedError("the rank of the result is known only at run time");
  if (length.value() > kMostAxes) {
    return op.Error(fmt::format("its shape has {} entries, ranks up to {} are taken",
                                length.value(), kMostAxes));
  }
  return static_cast<int>(length.value());
}

absl::Status RequireEqual(const OpContext& op, Dim a, Dim b, const std::string& what) {
  if (a == b || !a.is_static() || !b.is_static()) return absl::OkStatus();
  return op.Error(fmt::format("{} are {} and {}, they must be equal", what, a.value(), b.value()));
}

absl::StatusOr<std::vector<Dim>> BroadcastInputs(const InferContext& op) {
  std::vector<std::vector<Dim>> shapes;
  for (int i = 0; i < op.num_inputs(); ++i) {
    if (op.has_input(i)) shapes.push_back(op.input(i).dims);
  }
  return op.Broadcast(shapes);
}

absl::Status InferElementwise(InferContext& op, DataTypes allowed) {
  for (int i = 0; i < op.num_inputs(); ++i) QUENCH_RETURN_IF_ERROR(RequireType(op, i, allowed));
  QUENCH_RETURN_IF_ERROR(RequireSameType(op));
  QUENCH_ASSIGN_OR_RETURN(std::vector<Dim> dims, BroadcastInputs(op));
  op.SetOutput(0, op.input(0).dtype, std::move(dims));
  return absl::OkStatus();
}

absl::Status InferComparison(InferContext& op, DataTypes allowed) {
  QUENCH_RETURN_IF_ERROR(InferElementwise(op, allowed));
  op.SetOutput(0, DataType::kBool, op.outputs()[0].dims);
  return absl::OkStatus();
}

absl::Status InferLikeFirst(InferContext& op, DataTypes allowed) {
  QUENCH_RETURN_IF_ERROR(RequireType(op, 0, allowed));
  op.SetOutput(0, op.input(0));
  return absl::OkStatus();
}

void InferElements(InferContext& op,
                   std::optional<Dim> (*fold)(SymbolTable& symbols, Dim a, Dim b)) {
  std::optional<std::vector<Dim>> result;
  for (int i = 0; i < op.num_inputs(); ++i) {
    const std::optional<std::vector<Dim>> next = op.elements(i);
    if (!next) return;
    if (!result) {
      result = next;
      continue;
    }
    if (result->size() == 1) result->resize(next->size(), result->front());
    if (next->size() != 1 && next->size() != result->size()) return;
    for (size_t k = 0; k < result->size(); ++k) {
      const std::optional<Dim> value =
          fold(op.symbols(), (*result)[k], next->size() == 1 ? next->front() : (*next)[k]);
      if (!value) return;
      (*result)[k] = *value;
    }
  }
  if (result && op.outputs()[0].rank() <= 1) op.SetElements(0, std::move(*result));
}

std::optional<bool> ProvablyLess(SymbolTable& symbols, Dim a, Dim b) {
  const Bounds difference = symbols.BoundsOf(symbols.Sub(a, b));
  if (difference.max < 0) return true;
  if (difference.min >= 0) return false;
  return std::nullopt;
}

int NormalAxis(int64_t axis, int rank) { return static_cast<int>(axis < 0 ? axis + rank : axis); }

absl::StatusOr<std::vector<int>> Axes(const InferContext& op, const std::vector<int64_t>& axes,
                                      int rank) {
  std::vector<int> result;
  for (const int64_t axis : axes) {
    QUENCH_ASSIGN_OR_RETURN(const int normal, op.Axis(axis, rank));
    result.push_back(normal);
  }
  std::sort(result.begin(), result.end());
  const auto twice = std::adjacent_find(result.begin(), result.end());
  if (twice != result.end()) return op.Error(fmt::format("axis {} is given twice", *twice));
  return result;
}

namespace {

// Bits and signedness of an integer type.
E IntegerLimit(loops::Builder& b, DataType type, bool highest) {
  if (type == DataType::kBool) return b.Int(highest ? 1 : 0, type);
  const int bits = DataTypeBits(type);
  if (IsUnsigned(type)) {
    return b.Int(highest ? static_cast<int64_t>(~uint64_t{0} >> (64 - bits)) : 0, type);
  }
  const int64_t top = static_cast<int64_t>(~uint64_t{0} >> (65 - bits));
  return b.Int(highest ? top : -top - 1, type);
}

}  // namespace

E Combined(std::span<const E> x, const std::function<E(E, E)>& op) {
  constexpr size_t kFew = 8;
  if (x.size() > kFew) {
    const size_t half = x.size() / 2;
    return op(Combined(x.first(half), op), Combined(x.subspan(half), op));
  }
  E result = x[0];
  for (const E next : x.subspan(1)) result = op(result, next);
  return result;
}

E LowestOf(loops::Builder& b, DataType type) {
  if (!IsFloat(type)) return IntegerLimit(b, type, false);
  return b.F(-std::numeric_limits<double>::infinity(), type);
}

E HighestOf(loops::Builder& b, DataType type) {
  if (!IsFloat(type)) return IntegerLimit(b, type, true);
  return b.F(std::numeric_limits<double>::infinity(), type);
}

BroadcastLoad::BroadcastLoad(LowerContext& op, int i, std::vector<int> axes)
    : BroadcastLoad(op, i, std::move(axes), op.output(0).dims) {}

BroadcastLoad::BroadcastLoad(LowerContext& op, int i, std::vector<int> axes,
                             std::span<const Dim> to)
    : buffer_(op.in(i)), axes_(std::move(axes)) {
  loops::Builder& b = op.b();
  const std::vector<Dim>& from = op.input(i).dims;
  for (size_t k = 0; k < axes_.size(); ++k) {
    const Dim wide = to[static_cast<size_t>(axes_[k])];
    if (from[k] == wide) {
      factors_.emplace_back();
    } else if (from[k].is(1)) {
      factors_.push_back(b.I(0));
    } else {
      const E own = op.Extent(from[k]);
      b.Check(own == b.I(1) || own == op.Extent(wide),
              fmt::format("{}: input {} cannot be broadcast in axis {}", op.node().name, i, k));
      factors_.push_back(b.Let(Cast(own != b.I(1), DataType::kI64), "stretch"));
    }
  }
}

BroadcastLoad BroadcastLoad::RightAligned(LowerContext& op, int i, std::span<const Dim> to) {
  const int rank = op.input(i).rank();
  std::vector<int> axes;
  for (int k = 0; k < rank; ++k) axes.push_back(static_cast<int>(to.size()) - rank + k);
  return BroadcastLoad(op, i, std::move(axes), to);
}

E BroadcastLoad::At(std::span<const E> output_index, std::span<const E> tail) const {
  std::vector<E> index;
  for (size_t k = 0; k < axes_.size(); ++k) {
    const E own = output_index[static_cast<size_t>(axes_[k])];
    if (!factors_[k].valid()) {
      index.push_back(own);
    } else {
      const loops::Expr& factor = own.builder()->expr(factors_[k].id());
      const bool known = factor.kind == loops::ExprKind::kInt;
      index.push_back(!known ? own * factors_[k] : factor.i == 0 ? factors_[k] : own);
    }
  }
  index.insert(index.end(), tail.begin(), tail.end());
  return buffer_.At(index);
}

}  // namespace quench::ops
