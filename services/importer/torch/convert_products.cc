// Products of matrices, lookups.
#include "common/base/status.h"
#include "services/importer/torch/converters.h"

namespace quench::importer::torch_ops {

ValueId MatMul(AtenNode& n, ValueId a, ValueId b) { return n.Emit("MatMul", {a, b}); }

ValueId LinearOf(AtenNode& n, ValueId x, ValueId weight, ValueId bias) {
  if (n.Rank(weight) == 1) {  // one output, without an axis
    const ValueId y = MatMul(n, x, weight);
    return bias == kNone ? y : n.Emit("Add", {y, bias});
  }
  if (n.Rank(x) == 2 && (bias == kNone || n.Rank(bias) == 1)) {
    return n.Emit("Gemm", {x, weight, bias}, {{"transB", int64_t{1}}});
  }
  const ValueId y = MatMul(n, x, n.Transpose(weight, {1, 0}));
  return bias == kNone ? y : n.Emit("Add", {y, bias});
}

absl::Status Linear(Converter& c) {
  AtenNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(n.In("input"), "input"));
  return n.Finish(LinearOf(n, n.In("input"), n.In("weight"), n.In("bias")));
}

absl::Status MatrixProduct(Converter& c) {
  AtenNode n(c);
  for (const char* second : {"other", "mat2", "vec", "tensor"}) {
    if (n.Has(second)) return n.Finish(MatMul(n, n.In("self"), n.In(second)));
  }
  return c.Error("has no second factor");
}

absl::Status Outer(Converter& c) {
  AtenNode n(c);
  const DataType dtype = n.Common("self", "vec2");
  const ValueId column = n.Unsqueeze(n.Operand("self", dtype), {1});
  return n.Finish(n.Emit("Mul", {column, n.Unsqueeze(n.Operand("vec2", dtype), {0})}));
}

absl::Status AddMatMul(Converter& c) {
  AtenNode n(c);
  const bool batched = n.Has("batch1");
  const bool vector = n.Has("vec");
  const ValueId a = n.In(batched ? "batch1" : vector ? "mat" : "mat1");
  const ValueId b = n.In(batched ? "batch2" : vector ? "vec" : "mat2");
  const double alpha = n.Number("alpha", 1), beta = n.Number("beta", 1);
  const ValueId added = n.In("self");
  if (!batched && !vector && (n.Rank(added) == 1 || n.Rank(added) == 2)) {
    return n.Finish(
        n.Emit("Gemm", {a, b, beta == 0 ? kNone : added}, {{"alpha", alpha}, {"beta", beta}}));
  }
  ValueId y = MatMul(n, a, b);
  if (alpha != 1) y = n.Binary("Mul", y, alpha);
  if (beta == 0) return n.Finish(y);
  return n.Finish(n.Emit("Add", {y, beta == 1 ? added : n.Binary("Mul", added, beta)}));
}

absl::Status Embedding(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Emit("Gather", {n.In("weight"), n.In("indices")}, {{"axis", int64_t{0}}}));
}

absl::Status EinsumOf(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Emit("Einsum", n.List("tensors"), {{"equation", n.Text("equation")}}));
}

absl::Status OneHotOf(Converter& c) {
  AtenNode n(c);
  const std::optional<int64_t> classes = n.KnownInt("num_classes");
  if (!classes || *classes < 1) return c.Unsupported("num_classes must be given");
  const ValueId values = c.AddConstant(Tensor::Of(DataType::kI64, {2}, std::vector<int64_t>{0, 1}));
  return n.Finish(
      n.Emit("OneHot", {n.In("self"), c.Ints({*classes}), values}, {{"axis", int64_t{-1}}}));
}

}  // namespace quench::importer::torch_ops
