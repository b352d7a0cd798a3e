#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::Status InferDepthToSpace(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 4, 4));
  const std::string mode = ctx.node().String("mode", "DCR");
  if (mode != "DCR" && mode != "CRD")
    return ctx.Error(fmt::format("mode is `{}`, DepthToSpace has DCR and CRD", mode));
  const int64_t block = ctx.node().Int("blocksize", 1);
  const std::vector<Dim>& dims = ctx.input(0).dims;
  if (block < 1 || block > 65536 ||
      (dims[1].is_static() && dims[1].value() % (block * block) != 0)) {
    return ctx.Error(fmt::format("blocksize is {}, its square must divide the {} channels", block,
                                 ctx.symbols().ToString(dims[1])));
  }
  SymbolTable& symbols = ctx.symbols();
  ctx.SetOutput(0, ctx.input(0).dtype,
                {dims[0], symbols.FloorDiv(dims[1], block * block), symbols.Mul(dims[2], block),
                 symbols.Mul(dims[3], block)});
  return absl::OkStatus();
}

// Loops over (n, c, h, i, w, j) with output row h * block + i and column w * block + j: no
// division.
absl::Status LowerDepthToSpace(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const B y = ctx.out(0);
  const E block = b.I(ctx.node().Int("blocksize", 1));
  const bool depth_first = ctx.node().String("mode", "DCR") == "DCR";
  const E channels = y.dim(1);
  b.ParallelForAll(std::vector<E>{y.dim(0), channels, x.dim(2), block, x.dim(3), block},
                   [&](std::span<const E> i) {
                     const E inner = i[3] * block + i[5];
                     const E channel =
                         depth_first ? inner * channels + i[1] : i[1] * block * block + inner;
                     b.Store(y, {i[0], i[1], i[2] * block + i[3], i[4] * block + i[5]},
                             x.At({i[0], channel, i[2], i[4]}));
                   });
  return absl::OkStatus();
}

}  // namespace

const OpDef& DepthToSpaceOp() {
  static const OpDef op = {
      .name = "DepthToSpace",
      .summary = "moves blocks of channels into height and width",
      .attributes = {{"blocksize", AttributeSpec::kInt, true}, {"mode", AttributeSpec::kString}},
      .quant = QuantRole::kPassThrough,
      .infer = InferDepthToSpace,
      .lower = LowerDepthToSpace};
  return op;
}

}  // namespace quench::ops
