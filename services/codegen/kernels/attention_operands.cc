#include "services/codegen/kernels/attention_operands.h"

#include "common/loops/builder.h"
#include "common/ops/op.h"

namespace quench::codegen {
namespace {

using loops::ScalarFunction;

bool IsFloatTensor(DataType type) { return RegisterTypeOf(type) == DataType::kF32; }

bool OperandsFit(const Group& group, const ops::AttentionShape& s) {
  const auto steps = [&](int i) { return group.InputType(i).dims[s.at[i].folded ? 1 : 2]; };
  for (const int i : {ops::kAttentionKey, ops::kAttentionValue}) {
    if (group.InputType(i).dims[0] != s.batch || steps(i) != s.keys) return false;
  }
  if (s.has_lengths && group.InputType(ops::kAttentionLengths).dims[0] != s.batch) return false;
  if (!s.has_mask) return true;
  const std::vector<Dim>& mask = group.InputType(ops::kAttentionMask).dims;
  const Dim full[] = {s.batch, s.heads, s.steps, s.keys};
  for (size_t axis = 0; axis < 4; ++axis) {
    if (mask[axis] != full[axis] && !(mask[axis].is(1) && axis < 3)) return false;
  }
  return true;
}

}  // namespace

std::optional<AttentionOperands> ReadAttention(const Group& group) {
  if (!group.epilogue.empty()) return std::nullopt;
  const absl::StatusOr<ops::AttentionShape> shape =
      ops::AttentionShapeOf(ops::ContextOf(*group.graph, *group.root));
  if (!shape.ok() || !IsFloatTensor(shape->type) || !OperandsFit(group, *shape))
    return std::nullopt;
  for (const Dim dim : {shape->batch, shape->steps, shape->keys}) {
    if (dim.is_static() && dim.value() < 1) return std::nullopt;
  }
  AttentionOperands operands;
  operands.shape = *shape;
  if (shape->has_mask) {
    const Type& mask = group.InputType(ops::kAttentionMask);
    operands.mask_dims = mask.dims;
    operands.mask_type = mask.dtype;
    if (!IsFloatTensor(mask.dtype) && mask.dtype != DataType::kBool) return std::nullopt;
  }
  return operands;
}

AttentionPlaces::AttentionPlaces(VectorBuilder& b, const Group& group, const BufferMap& buffers,
                                 AttentionOperands operands)
    : b_(b), operands_(std::move(operands)), output_(buffers.Output()) {
  for (const int input : group.inputs) inputs_.push_back(input < 0 ? -1 : buffers.Input(input));
}

int64_t AttentionPlaces::StepBytes(int i) const {
  const ops::AttentionShape& s = operands_.shape;
  const int64_t size = i == ops::kAttentionValue ? s.value_size : s.size;
  return (s.at[i].folded ? s.at[i].columns.value() : size) * Bytes(s.type);
}

Ptr AttentionPlaces::StepAt(int i, Int batch, Int head, Int step) {
  const ops::AttentionShape& s = operands_.shape;
  const ops::HeadsAt& at = s.at[i];
  const int64_t size = i == ops::kAttentionValue ? s.value_size : s.size;
  const int64_t heads = i == ops::kAttentionQuery ? s.heads : s.kv_heads;
  const Int steps = b_.Size(i == ops::kAttentionQuery ? s.steps : s.keys);
  if (at.folded) {
    return Input(i) + (batch * steps + step) * StepBytes(i) +
           (head * size + at.offset) * Bytes(s.type);
  }
  return Input(i) + ((batch * heads + head) * steps + step) * StepBytes(i);
}

Ptr AttentionPlaces::ResultAt(Int batch, Int head, Int step) {
  const ops::AttentionShape& s = operands_.shape;
  const Int steps = b_.Size(s.steps);
  const Int row = s.folded_result ? (batch * steps + step) * s.heads + head
                                  : (batch * s.heads + head) * steps + step;
  return b_.Buffer(output_) + row * (s.value_size * Bytes(s.type));
}

Ptr AttentionPlaces::MaskAt(Int batch, Int head, Int step, Int key) {
  Int at = b_.I(0);
  const Int places[] = {batch, head, step};
  for (size_t axis = 0; axis < 3; ++axis) {
    const Dim dim = operands_.mask_dims[axis];
    if (!dim.is(1)) at = at * b_.Size(dim) + places[axis];
  }
  const Int element = at * b_.Size(operands_.shape.keys) + key;
  return Input(ops::kAttentionMask) + element * Bytes(operands_.mask_type);
}

Int AttentionPlaces::LengthOf(Int batch) {
  return b_.LoadInt(Input(ops::kAttentionLengths) + batch * 8, DataType::kI64);
}

ScalarFunction CappedScore(double cap) {
  loops::Builder b("capped");
  const loops::E limit = b.F(cap, DataType::kF32);
  return b.FinishScalar(Unary(loops::UnaryOp::kTanh, b.Param(0, DataType::kF32) / limit) * limit,
                        {DataType::kF32});
}

ScalarFunction FilledScore(double fill) {
  loops::Builder b("filled");
  return b.FinishScalar(
      Select(b.Param(1, DataType::kU8) != 0, b.Param(0, DataType::kF32), b.F(fill, DataType::kF32)),
      {DataType::kF32, DataType::kU8});
}

ScalarFunction InverseSum(bool of_zero_is_zero) {
  loops::Builder b("inverse");
  const loops::E x = b.Param(0, DataType::kF32), one = b.F(1, DataType::kF32);
  return b.FinishScalar(of_zero_is_zero
                            ? Select(x == b.F(0, DataType::kF32), b.F(0, DataType::kF32), one / x)
                            : one / x,
                        {DataType::kF32});
}

}  // namespace quench::codegen
