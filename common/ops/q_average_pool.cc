#include "common/base/status.h"
#include "common/ops/integer.h"
#include "common/ops/pool_shape.h"

namespace quench::ops {
namespace {

bool IsGlobal(const Node& node) { return node.Find("kernel_shape") == nullptr; }

DataType ResultType(const OpContext& c) {
  return c.node().Int("to", 0) == static_cast<int64_t>(DataType::kI8) ? DataType::kI8
                                                                      : DataType::kU8;
}

absl::Status RequireZeroPoint(const OpContext& c, const std::string& name, DataType type) {
  const int64_t zero = c.node().Int(name, 0), low = type == DataType::kI8 ? -128 : 0;
  if (zero >= low && zero <= low + 255) return absl::OkStatus();
  return c.Error(fmt::format("{} is {}, which {} does not hold", name, zero, DataTypeName(type)));
}

absl::Status InferQAveragePool(InferContext& c) {
  constexpr DataTypes kBytes = TypeSet({DataType::kI8, DataType::kU8});
  const int64_t to = c.node().Int("to", 0);
  if (to != static_cast<int64_t>(DataType::kI8) && to != static_cast<int64_t>(DataType::kU8))
    return c.Error(fmt::format("to is {}, it takes {}", to, ToString(kBytes)));
  QUENCH_RETURN_IF_ERROR(IsGlobal(c.node()) ? InferGlobalPool(c, kBytes) : InferPool(c, kBytes));
  QUENCH_RETURN_IF_ERROR(RequireZeroPoint(c, "x_zero_point", c.input(0).dtype));
  QUENCH_RETURN_IF_ERROR(RequireZeroPoint(c, "y_zero_point", ResultType(c)));
  c.SetOutput(0, ResultType(c), std::vector<Dim>(c.outputs()[0].dims));
  return absl::OkStatus();
}

// The average of `terms` elements, with a divisor of `count`, as requantisation has it.
void StoreAverage(LowerContext& c, std::span<const E> index, std::span<const E> extents, E count,
                  const std::function<std::vector<E>(std::span<const E>)>& at) {
  loops::Builder& b = c.b();
  E terms = b.I(1);
  for (const E extent : extents) terms = terms * extent;
  E sum = b.ReduceAll(
      BinaryOp::kAdd, b.Int(0, DataType::kI32), extents,
      [&](std::span<const E> term) { return Cast(c.in(0).At(at(term)), DataType::kI32); });
  const int64_t zero = c.node().Int("x_zero_point", 0);
  if (zero != 0) sum = sum - Cast(terms * b.I(zero), DataType::kI32);
  const E scale = b.F(c.node().Float("scale", 1), DataType::kF32) / Cast(count, DataType::kF32);
  const DataType type = ResultType(c);
  const int64_t moved = c.node().Int("y_zero_point", 0);
  b.Store(c.out(0), index,
          Requantise(sum, scale, moved == 0 ? E() : b.F(static_cast<double>(moved), DataType::kF32),
                     type));
}

absl::Status LowerGlobal(LowerContext& c) {
  const std::vector<E> extents = c.Extents(std::span(c.input(0).dims).subspan(2));
  E count = c.b().I(1);
  for (const E extent : extents) count = count * extent;
  c.b().ParallelForAll(c.Extents(c.output(0).dims), [&](std::span<const E> index) {
    StoreAverage(c, index, extents, Max(count, c.b().I(1)), [&](std::span<const E> term) {
      std::vector<E> at = {index[0], index[1]};
      at.insert(at.end(), term.begin(), term.end());
      return at;
    });
  });
  return absl::OkStatus();
}

absl::Status LowerQAveragePool(LowerContext& c) {
  if (IsGlobal(c.node())) return LowerGlobal(c);
  LowerPool(c, [](LowerContext& op, const PoolWindow& window) {
    const bool padded = op.node().Int("count_include_pad", 0) != 0;
    E count = op.b().I(1);
    for (size_t d = 0; d < window.axes.size(); ++d) {
      const E own = padded ? window.axes[d].CountPadded(window.index[d + 2]) : window.extents[d];
      count = count * own;
    }
    StoreAverage(op, window.index, window.extents, Max(count, op.b().I(1)), window.at);
  });
  return absl::OkStatus();
}

std::vector<AttributeSpec> Attributes() {
  std::vector<AttributeSpec> specs =
      WindowAttributes(/*pooling=*/false, {{"ceil_mode", AttributeSpec::kInt},
                                           {"count_include_pad", AttributeSpec::kInt},
                                           {"scale", AttributeSpec::kFloat, true},
                                           {"to", AttributeSpec::kInt, true},
                                           {"x_zero_point", AttributeSpec::kInt},
                                           {"y_zero_point", AttributeSpec::kInt}});
  return specs;
}

}  // namespace

// sum(x - x_zero_point) in i32, times scale / count in f32, rounded, plus y_zero_point, saturated.
const OpDef& QAveragePoolOp() {
  static const OpDef op = {
      .name = "q.average_pool",
      .summary = "AveragePool of bytes, of all that is spatial without kernel_shape, in integers",
      .attributes = Attributes(),
      .work = WorkKind::kPooling,
      .infer = InferQAveragePool,
      .lower = LowerQAveragePool,
  };
  return op;
}

}  // namespace quench::ops
