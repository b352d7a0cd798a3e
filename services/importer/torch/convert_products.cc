// Products of matrices, attention, lookups.
#include <cmath>

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
  const char* second = n.Has("other") ? "other" : n.Has("mat2") ? "mat2" : "vec";
  return n.Finish(MatMul(n, n.In("self"), n.In(second)));
}

absl::Status AddMatMul(Converter& c) {
  AtenNode n(c);
  const bool batched = n.Has("batch1");
  const ValueId a = n.In(batched ? "batch1" : "mat1"), b = n.In(batched ? "batch2" : "mat2");
  const double alpha = n.Number("alpha", 1), beta = n.Number("beta", 1);
  const ValueId added = n.In("self");
  if (!batched && (n.Rank(added) == 1 || n.Rank(added) == 2)) {
    return n.Finish(
        n.Emit("Gemm", {a, b, beta == 0 ? kNone : added}, {{"alpha", alpha}, {"beta", beta}}));
  }
  ValueId y = MatMul(n, a, b);
  if (alpha != 1) y = n.Binary("Mul", y, alpha);
  if (beta == 0) return n.Finish(y);
  return n.Finish(n.Emit("Add", {y, beta == 1 ? added : n.Binary("Mul", added, beta)}));
}

// Masks the future: true where a query may look.
static ValueId CausalMask(AtenNode& n, ValueId q, ValueId k) {
  const ValueId rows = n.Slice(n.ShapeOf(q), 0, n.Rank(q) - 2, n.Rank(q) - 1);
  const ValueId columns = n.Slice(n.ShapeOf(k), 0, n.Rank(k) - 2, n.Rank(k) - 1);
  const auto count = [&](ValueId size) {
    return n.Emit("Range", {n.c.Scalar(DataType::kI64, 0), n.Squeeze(size, {0}),
                            n.c.Scalar(DataType::kI64, 1)});
  };
  return n.Emit("LessOrEqual", {n.Unsqueeze(count(columns), {0}), n.Unsqueeze(count(rows), {1})});
}

absl::Status Attention(Converter& c) {
  AtenNode n(c);
  const ValueId q = n.In("query");
  ValueId k = n.In("key"), v = n.In("value");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(q, "query"));
  const int64_t rank = n.Rank(q), width = n.SizeAt(q, rank - 1);
  if (!n.Has("scale") && width < 0)
    return c.Unsupported("the width of query is known only at run time");
  const double scale =
      n.Number("scale", 1 / std::sqrt(static_cast<double>(std::max<int64_t>(width, 1))));
  if (n.Flag("enable_gqa")) {
    const int64_t heads = n.SizeAt(q, rank - 3), groups = n.SizeAt(k, rank - 3);
    if (heads < 1 || groups < 1 || heads % groups != 0 || rank != 4)
      return c.Unsupported("enable_gqa with heads that are known only at run time");
    for (ValueId* part : {&k, &v}) {  // each head as often as queries share it
      if (heads == groups) break;
      const ValueId wide = n.Unsqueeze(*part, {2});
      const ValueId tiled = n.Emit("Tile", {wide, c.Ints({1, 1, heads / groups, 1, 1})});
      *part = n.Reshape(tiled, {0, heads, -1, n.SizeAt(*part, 3)});
    }
  }
  std::vector<int64_t> perm(static_cast<size_t>(n.Rank(k)));
  for (size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<int64_t>(i);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  ValueId scores = n.Emit("MatMul", {n.Binary("Mul", q, scale), n.Transpose(k, perm)});
  const auto mask_out = [&](ValueId mask) {
    return n.Emit("Where", {mask, n.Scalar(scores, 0), n.Scalar(scores, -INFINITY)});
  };
  if (n.Flag("is_causal")) scores = n.Emit("Add", {scores, mask_out(CausalMask(n, q, k))});
  if (const ValueId mask = n.In("attn_mask"); mask != kNone)
    scores = n.Emit("Add", {scores, n.TypeOf(mask) == DataType::kBool ? mask_out(mask) : mask});
  const ValueId weights = n.Emit("Softmax", {scores}, {{"axis", int64_t{-1}}});
  return n.Finish(n.Emit("MatMul", {weights, v}));
}

// ---- Layers of transformers that PyTorch fuses for inference ----

// Queries, keys and values of one tensor [batch, steps, width], by one product.
static absl::StatusOr<ValueId> AttendToItself(AtenNode& n, ValueId x, int64_t heads) {
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "query"));
  const int64_t width = n.SizeAt(x, 2);
  if (n.Rank(x) != 3 || heads < 1 || width < 1 || width % heads != 0)
    return n.c.Unsupported(fmt::format("a width of {} in {} heads", width, heads));
  if (n.Has("mask")) return n.c.Unsupported("a mask");
  const ValueId all = LinearOf(n, x, n.In("qkv_weight"), n.In("qkv_bias"));
  const ValueId cut = n.Reshape(all, {0, 0, 3, heads, width / heads});
  const auto part = [&](int64_t i,
                        const std::vector<int64_t>& perm) {  // [batch, steps, heads, ...]
    return n.Transpose(n.Emit("Gather", {cut, n.c.Scalar(DataType::kI64, static_cast<double>(i))},
                              {{"axis", int64_t{2}}}),
                       perm);
  };
  const double scale = 1 / std::sqrt(static_cast<double>(width / heads));
  const ValueId q = n.Binary("Mul", part(0, {0, 2, 1, 3}), scale);
  const ValueId weights =
      n.Emit("Softmax", {n.Emit("MatMul", {q, part(1, {0, 2, 3, 1})})}, {{"axis", int64_t{-1}}});
  const ValueId y = n.Emit("MatMul", {weights, part(2, {0, 2, 1, 3})});
  return LinearOf(n, n.Reshape(n.Transpose(y, {0, 2, 1, 3}), {0, 0, width}), n.In("proj_weight"),
                  n.In("proj_bias"));
}

absl::Status SelfAttention(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("query");
  if (n.In("key") != x || n.In("value") != x)
    return c.Unsupported("keys and values of another tensor than the queries");
  QUENCH_ASSIGN_OR_RETURN(const ValueId y, AttendToItself(n, x, n.Int("num_head")));
  return c.FinalValues({y, kNone});
}

absl::Status EncoderLayer(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("src");
  const auto norm = [&](ValueId id, const char* weight, const char* bias) {
    return n.Emit("LayerNormalization", {id, n.In(weight), n.In(bias)},
                  {{"axis", int64_t{-1}}, {"epsilon", n.Number("eps", 1e-5)}});
  };
  const auto forward = [&](ValueId id) {
    const ValueId wide = LinearOf(n, id, n.In("ffn_weight_1"), n.In("ffn_bias_1"));
    return LinearOf(n, n.Emit(n.Flag("use_gelu") ? "Gelu" : "Relu", {wide}), n.In("ffn_weight_2"),
                    n.In("ffn_bias_2"));
  };
  const bool first = n.Flag("norm_first");
  const ValueId inner = first ? norm(x, "norm_weight_1", "norm_bias_1") : x;
  QUENCH_ASSIGN_OR_RETURN(const ValueId attended, AttendToItself(n, inner, n.Int("num_heads")));
  ValueId y = n.Emit("Add", {x, attended});
  if (first) return n.Finish(n.Emit("Add", {y, forward(norm(y, "norm_weight_2", "norm_bias_2"))}));
  y = norm(y, "norm_weight_1", "norm_bias_1");
  return n.Finish(norm(n.Emit("Add", {y, forward(y)}), "norm_weight_2", "norm_bias_2"));
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
