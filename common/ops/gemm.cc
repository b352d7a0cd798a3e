#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

bool TransA(const OpContext& c) { return c.node().Int("transA", 0) != 0; }
bool TransB(const OpContext& c) { return c.node().Int("transB", 0) != 0; }

absl::Status InferGemm(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireType(
      c, 0,
      kFloatTypes | TypeSet({DataType::kI32, DataType::kI64, DataType::kU32, DataType::kU64})));
  QUENCH_RETURN_IF_ERROR(RequireSameType(c));
  for (const int i : {0, 1}) QUENCH_RETURN_IF_ERROR(RequireRank(c, i, 2, 2));
  QUENCH_RETURN_IF_ERROR(RequireRank(c, 2, 0, 2));
  const std::vector<Dim>& a = c.input(0).dims;
  const std::vector<Dim>& b = c.input(1).dims;
  const std::vector<Dim> dims = {a[TransA(c) ? 1 : 0], b[TransB(c) ? 0 : 1]};
  QUENCH_RETURN_IF_ERROR(RequireEqual(c, a[TransA(c) ? 0 : 1], b[TransB(c) ? 1 : 0],
                                      "columns of a and rows of b (after transA, transB)"));
  if (c.has_input(2)) {
    const std::vector<Dim> shapes[] = {dims, c.input(2).dims};
    QUENCH_ASSIGN_OR_RETURN(const std::vector<Dim> both, c.Broadcast(shapes));
    for (size_t i = 0; i < 2; ++i) {
      QUENCH_RETURN_IF_ERROR(RequireEqual(c, both[i], dims[i], "dims of c and of the product"));
    }
  }
  c.SetOutput(0, c.input(0).dtype, dims);
  return absl::OkStatus();
}

// Integers are scaled as f64: alpha and beta are floats.
E Scale(E value, double factor) {
  if (factor == 1) return value;
  if (IsFloat(value.type())) return value * factor;
  return Cast(Cast(value, DataType::kF64) * factor, value.type());
}

absl::Status LowerGemm(LowerContext& c) {
  loops::Builder& b = c.b();
  const std::vector<Dim>& dims = c.output(0).dims;
  const E depth = c.Extent(c.input(0).dims[TransA(c) ? 0 : 1]);
  const DataType type = loops::ComputeType(c.output(0).dtype);
  const BroadcastLoad addend =
      c.has_input(2) ? BroadcastLoad::RightAligned(c, 2, dims) : BroadcastLoad();
  b.ParallelForAll(c.Extents(dims), [&](std::span<const E> index) {
    const E m = index[0];
    const E n = index[1];
    const E product = b.Reduce(BinaryOp::kAdd, b.F(0, type), depth, [&](E k) {
      const E left = TransA(c) ? c.in(0).At({k, m}) : c.in(0).At({m, k});
      return left * (TransB(c) ? c.in(1).At({n, k}) : c.in(1).At({k, n}));
    });
    E value = Scale(product, c.node().Float("alpha", 1.0));
    if (addend.valid()) value = value + Scale(addend.At(index), c.node().Float("beta", 1.0));
    b.Store(c.out(0), index, value);
  });
  return absl::OkStatus();
}

Dim GemmMacs(const OpContext& c) {
  SymbolTable& symbols = c.symbols();
  return symbols.Mul(symbols.Product(c.output(0).dims), c.input(0).dims[TransA(c) ? 0 : 1]);
}

}  // namespace

const OpDef& GemmOp() {
  static const OpDef op = {
      .name = "Gemm",
      .summary = "alpha * a x b + beta * c, a and b optionally transposed, c broadcast",
      .min_inputs = 2,
      .max_inputs = 3,
      .attributes = {{"alpha", AttributeSpec::kFloat},
                     {"beta", AttributeSpec::kFloat},
                     {"transA", AttributeSpec::kInt},
                     {"transB", AttributeSpec::kInt}},
      .quant = QuantRole::kCompute,
      .bias = 2,
      .infer = InferGemm,
      .macs = GemmMacs,
      .lower = LowerGemm,
  };
  return op;
}

}  // namespace quench::ops
