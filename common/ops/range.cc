#include <algorithm>
#include <cmath>
#include <limits>

#include "common/ops/nest.h"

namespace quench::ops {
namespace {

constexpr DataTypes kRangeTypes =
    kFloatTypes | TypeSet({DataType::kI16, DataType::kI32, DataType::kI64});

// max(ceil((limit - start) / delta), 0) for integers; nullopt when the contents are not known
// before a run.
absl::StatusOr<std::optional<Dim>> IntegerCount(const OpContext& ctx) {
  const auto start = ctx.elements(0);
  const auto limit = ctx.elements(1);
  const auto delta = ctx.ints(2);
  if (!start || !limit || !delta) return std::optional<Dim>();
  SymbolTable& symbols = ctx.symbols();
  const int64_t step = delta->front();
  if (step == 0) return ctx.Error("delta is 0");
  if (step == std::numeric_limits<int64_t>::min()) return ctx.Error("delta is out of range");
  const Dim span = step > 0 ? symbols.Sub(limit->front(), start->front())
                            : symbols.Sub(start->front(), limit->front());
  const Dim count = symbols.CeilDiv(span, std::abs(step));
  return std::optional(symbols.BoundsOf(count).min >= 0 ? count : symbols.Max(count, 0));
}

absl::StatusOr<std::optional<Dim>> FloatCount(const OpContext& ctx) {
  if (ctx.constant(0) == nullptr || ctx.constant(1) == nullptr || ctx.constant(2) == nullptr)
    return std::optional<Dim>();
  const double delta = ctx.constant(2)->FloatAt(0);
  const double count =
      std::ceil((ctx.constant(1)->FloatAt(0) - ctx.constant(0)->FloatAt(0)) / delta);
  if (delta == 0 || !std::isfinite(count) || count > 1e15)
    return ctx.Error("start, limit and delta give no finite count");
  return std::optional(Dim(static_cast<int64_t>(std::max(count, 0.0))));
}

absl::Status InferRange(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kRangeTypes));
  QUENCH_RETURN_IF_ERROR(RequireSameType(ctx));
  for (int i = 0; i < 3; ++i) QUENCH_RETURN_IF_ERROR(RequireRank(ctx, i, 0, 0));
  if (ctx.node().Int("stash_type", 1) != 1)
    return ctx.UnsupportedError("stash_type is not 1 (f32)");
  const DataType type = ctx.input(0).dtype;
  QUENCH_ASSIGN_OR_RETURN(const std::optional<Dim> count,
                          IsFloat(type) ? FloatCount(ctx) : IntegerCount(ctx));
  ctx.SetOutput(0, type, {count ? *count : ctx.RuntimeDim(0, std::nullopt)});
  if (IsFloat(type) || !count || !count->is_static() || count->value() > 1024)
    return absl::OkStatus();
  std::vector<Dim> elements;
  for (int64_t i = 0; i < count->value(); ++i) {
    elements.push_back(ctx.symbols().Add(ctx.elements(0)->front(), i * ctx.ints(2)->front()));
  }
  ctx.SetElements(0, std::move(elements));
  return absl::OkStatus();
}

absl::Status LowerSizesOfRange(LowerContext& ctx) {
  Builder& b = ctx.b();
  const E start = b.Let(ctx.in(0).At({}), "start");
  const E limit = b.Let(ctx.in(1).At({}), "limit");
  const E delta = b.Let(ctx.in(2).At({}), "delta");
  b.Check(delta != b.F(0, delta.type()),
          fmt::format("node `{}`: delta of Range is 0", ctx.node().name));
  E count;
  if (IsFloat(delta.type())) {
    count = Cast(Unary(UnaryOp::kCeil, (limit - start) / delta), DataType::kI64);
  } else {
    // ceil(a / d) = -floor(-a / d), which holds for either sign of d
    count = -FloorDiv(Cast(start, DataType::kI64) - Cast(limit, DataType::kI64),
                      Cast(delta, DataType::kI64));
  }
  SetRuntimeDim(ctx, ctx.output(0).dims[0], Max(count, b.I(0)));
  return absl::OkStatus();
}

absl::Status LowerRange(LowerContext& ctx) {
  Builder& b = ctx.b();
  const E start = b.Let(ctx.in(0).At({}), "start");
  const E delta = b.Let(ctx.in(2).At({}), "delta");
  b.ParallelFor(ctx.out(0).dim(0),
                [&](E i) { b.Store(ctx.out(0), {i}, start + Cast(i, start.type()) * delta); });
  return absl::OkStatus();
}

}  // namespace

const OpDef& RangeOp() {
  static const OpDef op = {.name = "Range",
                           .summary = "start, start + delta, ... below limit",
                           .min_inputs = 3,
                           .max_inputs = 3,
                           .attributes = {{"stash_type", AttributeSpec::kInt}},
                           .infer = InferRange,
                           .lower = LowerRange,
                           .lower_sizes = LowerSizesOfRange};
  return op;
}

}  // namespace quench::ops
