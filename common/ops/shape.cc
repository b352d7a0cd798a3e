#include <algorithm>

#include "common/ops/nest.h"

namespace quench::ops {
namespace {

// Dims in [start, end), both counted from the end when negative and clamped.
std::vector<Dim> Selected(const OpContext& ctx) {
  const std::vector<Dim>& dims = ctx.input(0).dims;
  const auto rank = static_cast<int64_t>(dims.size());
  const auto clamp = [rank](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t start = clamp(ctx.node().Int("start", 0));
  const int64_t end = std::max(start, clamp(ctx.node().Int("end", rank)));
  return {dims.begin() + start, dims.begin() + end};
}

absl::Status InferShape(InferContext& ctx) {
  std::vector<Dim> selected = Selected(ctx);
  ctx.SetOutput(0, DataType::kI64, {static_cast<int64_t>(selected.size())});
  ctx.SetElements(0, std::move(selected));
  return absl::OkStatus();
}

absl::Status LowerShape(LowerContext& ctx) {
  const std::vector<Dim> selected = Selected(ctx);
  for (size_t i = 0; i < selected.size(); ++i) {
    ctx.b().Store(ctx.out(0), {ctx.b().I(static_cast<int64_t>(i))}, ctx.Extent(selected[i]));
  }
  return absl::OkStatus();
}

}  // namespace

const OpDef& ShapeOp() {
  static const OpDef op = {
      .name = "Shape",
      .summary = "dims of a tensor as i64",
      .attributes = {{"start", AttributeSpec::kInt}, {"end", AttributeSpec::kInt}},
      .infer = InferShape,
      .lower = LowerShape};
  return op;
}

}  // namespace quench::ops
