#include "common/ops/integer.h"

#include "common/base/float8.h"

namespace quench::ops {

absl::Status RequireByte(const OpContext& op, std::initializer_list<int> inputs) {
  for (const int i : inputs) {
    QUENCH_RETURN_IF_ERROR(RequireType(op, i, TypeSet({DataType::kI8, DataType::kU8})));
  }
  return absl::OkStatus();
}

absl::Status RequireParameter(const OpContext& op, int i, Dim channels) {
  if (!op.has_input(i)) return absl::OkStatus();
  QUENCH_RETURN_IF_ERROR(RequireRank(op, i, 0, 1));
  if (op.input(i).rank() == 0 || op.input(i).dims[0].is(1)) return absl::OkStatus();
  return RequireEqual(op, op.input(i).dims[0], channels,
                      fmt::format("size of input {} and channels", i));
}

E Parameter(LowerContext& op, int i, E channel) {
  const Type& type = op.input(i);
  if (type.rank() == 0) return op.in(i).At({});
  return op.in(i).At({type.dims[0].is(1) ? op.b().I(0) : channel});
}

E ConvAccumulator(LowerContext& op, const ConvTerms& terms, int x_zero, int w_zero) {
  loops::Builder& b = op.b();
  auto zero_point = [&](int i) {
    if (!op.has_input(i)) return E();
    return b.Let(Cast(Parameter(op, i, terms.index[1]), DataType::kI32), "zero");
  };
  const E x_offset = zero_point(x_zero);
  const E w_offset = zero_point(w_zero);
  return b.ReduceAll(BinaryOp::kAdd, b.Int(0, DataType::kI32), terms.extents,
                     [&](std::span<const E> term) {
                       E x = Cast(terms.x(term), DataType::kI32);
                       E w = Cast(terms.w(term), DataType::kI32);
                       if (x_offset.valid()) x = x - x_offset;
                       if (w_offset.valid()) w = w - w_offset;
                       return x * w;
                     });
}

E RoundToInteger(E value, E zero_point, DataType type) {
  loops::Builder& b = *value.builder();
  E rounded = Unary(UnaryOp::kRoundEven, value);
  if (zero_point.valid()) rounded = rounded + Cast(zero_point, value.type());
  if (DataTypeBits(type) >= 8) return Cast(rounded, type);  // saturates
  const E low = Cast(LowestOf(b, type), value.type());
  const E high = Cast(HighestOf(b, type), value.type());
  return Cast(Max(Min(rounded, high), low), type);
}

E ToFloat8(E value, DataType type, bool saturate) {
  value = Cast(value, DataType::kF32);
  if (!saturate) return value;
  loops::Builder& b = *value.builder();
  const double largest = Float8Max(type);
  return Max(Min(value, b.F(largest, DataType::kF32)), b.F(-largest, DataType::kF32));
}

E Requantise(E sum, E scale, E zero_point, DataType type) {
  return RoundToInteger(Cast(sum, DataType::kF32) * scale, zero_point, type);
}

}  // namespace quench::ops
