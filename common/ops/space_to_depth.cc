#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::Status InferSpaceToDepth(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 4, 4));
  const std::string mode = ctx.node().String("mode", "DCR");
  if (mode != "DCR" && mode != "CRD")
    return ctx.Error(fmt::format("mode is `{}`, SpaceToDepth has DCR and CRD", mode));
  const int64_t block = ctx.node().Int("blocksize", 1);
  const std::vector<Dim>& dims = ctx.input(0).dims;
  for (size_t axis = 2; axis < 4; ++axis) {
    if (block < 1 || block > 65536 || (dims[axis].is_static() && dims[axis].value() % block != 0)) {
      return ctx.Error(fmt::format("blocksize is {}, it must divide axis {} of size {}", block,
                                   axis, ctx.symbols().ToString(dims[axis])));
    }
  }
  SymbolTable& symbols = ctx.symbols();
  ctx.SetOutput(0, ctx.input(0).dtype,
                {dims[0], symbols.Mul(dims[1], block * block), symbols.FloorDiv(dims[2], block),
                 symbols.FloorDiv(dims[3], block)});
  return absl::OkStatus();
}

absl::Status LowerSpaceToDepth(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const B y = ctx.out(0);
  const E block = b.I(ctx.node().Int("blocksize", 1));
  const bool depth_first = ctx.node().String("mode", "DCR") == "DCR";
  const E channels = x.dim(1);
  const std::vector<E> extents =
      depth_first ? std::vector<E>{y.dim(0), block, block, channels, y.dim(2), y.dim(3)}
                  : std::vector<E>{y.dim(0), channels, block, block, y.dim(2), y.dim(3)};
  b.ParallelForAll(extents, [&](std::span<const E> i) {
    const E c = depth_first ? i[3] : i[1];
    const E row = depth_first ? i[1] : i[2];
    const E column = depth_first ? i[2] : i[3];
    const E inner = row * block + column;
    const E channel = depth_first ? inner * channels + c : c * block * block + inner;
    b.Store(y, {i[0], channel, i[4], i[5]},
            x.At({i[0], c, i[4] * block + row, i[5] * block + column}));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& SpaceToDepthOp() {
  static const OpDef op = {
      .name = "SpaceToDepth",
      .summary = "moves blocks of height and width into channels",
      .attributes = {{"blocksize", AttributeSpec::kInt, true}, {"mode", AttributeSpec::kString}},
      .quant = QuantRole::kPassThrough,
      .infer = InferSpaceToDepth,
      .lower = LowerSpaceToDepth};
  return op;
}

}  // namespace quench::ops
