#include "common/base/status.h"
#include "common/ops/helpers.h"
#include "common/ops/matmul_shape.h"

namespace quench::ops {
namespace {

constexpr DataTypes kWeightTypes =
    TypeSet({DataType::kI8, DataType::kU8, DataType::kI4, DataType::kU4});

// a f32 [.., m, k], b [k, n], scale f32 [ceil(k / block_size), n], zero point as b and shaped as the
// scale.
absl::Status InferQWeightOnlyMatmul(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireType(c, 0, TypeSet({DataType::kF32})));
  QUENCH_RETURN_IF_ERROR(RequireType(c, 1, kWeightTypes));
  QUENCH_RETURN_IF_ERROR(RequireType(c, 2, TypeSet({DataType::kF32})));
  QUENCH_RETURN_IF_ERROR(RequireSameType(c, {1, 3}));
  QUENCH_RETURN_IF_ERROR(RequireRank(c, 1, 2, 2));
  for (const int i : {1, 2, 3}) {
    if (c.has_input(i) && !c.input(i).is_static())
      return c.Error(fmt::format("input {} has dims of the run, weights have fixed ones", i));
  }
  const int64_t block = c.node().Int("block_size", 0);
  if (block < 1) return c.Error(fmt::format("block_size is {}, it must be 1 or more", block));
  const std::vector<Dim>& b = c.input(1).dims;
  for (const int i : {2, 3}) {
    if (!c.has_input(i)) continue;
    QUENCH_RETURN_IF_ERROR(RequireRank(c, i, 2, 2));
    QUENCH_RETURN_IF_ERROR(RequireEqual(c, c.input(i).dims[0], c.symbols().CeilDiv(b[0], block),
                                        fmt::format("rows of input {} and blocks of b", i)));
    QUENCH_RETURN_IF_ERROR(
        RequireEqual(c, c.input(i).dims[1], b[1], fmt::format("columns of input {} and of b", i)));
  }
  QUENCH_ASSIGN_OR_RETURN(std::vector<Dim> dims, MatMulDims(c, 0, 1));
  c.SetOutput(0, DataType::kF32, std::move(dims));
  return absl::OkStatus();
}

absl::Status LowerQWeightOnlyMatmul(LowerContext& c) {
  const int64_t block = c.node().Int("block_size", 1);
  LowerMatMul(c, 0, 1, [&](LowerContext& op, const MatMulTerms& terms) {
    const auto weight = [&](E k) {
      const std::vector<E> at = {k / op.b().I(block), terms.column};
      E whole = Cast(terms.b(k), DataType::kI32);
      if (op.has_input(3)) whole = whole - Cast(op.in(3).At(at), DataType::kI32);
      return Cast(whole, DataType::kF32) * op.in(2).At(at);
    };
    op.b().Store(op.out(0), terms.index,
                 op.b().Reduce(BinaryOp::kAdd, op.b().F(0, DataType::kF32), terms.depth,
                               [&](E k) { return terms.a(k) * weight(k); }));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& QWeightOnlyMatmulOp() {
  static const OpDef op = {
      .name = "q.weight_only_matmul",
      .summary = "MatMul by weights that are dequantized where they are read, block by block",
      .min_inputs = 3,
      .max_inputs = 4,
      .attributes = {{"block_size", AttributeSpec::kInt, true}},
      .infer = InferQWeightOnlyMatmul,
      .macs = [](const OpContext& c) { return MatMulMacs(c, 0, 1); },
      .lower = LowerQWeightOnlyMatmul,
  };
  return op;
}

}  // namespace quench::ops
