// Attention, and the layers of transformers that PyTorch fuses for inference.
#include <cmath>

#include "common/base/status.h"
#include "services/importer/torch/converters.h"

namespace quench::importer::torch_ops {

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

// The error of these fused operators; a model does without them if it is traced or scripted as the
// error says.
static absl::Status UnsupportedFused(const AtenNode& n, const std::string& text) {
  return n.c.Unsupported(text +
                         ": save the model after `torch.backends.mha.set_fastpath_enabled(False)`, "
                         "or by torch.export");
}

// Where a query must not look, against scores [batch, heads, queries, keys]. Whatever is not 0 masks, of floats too.
static absl::StatusOr<ValueId> FusedMask(AtenNode& n) {
  const ValueId mask = n.Cast(n.In("mask"), DataType::kBool);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(mask, "mask"));
  constexpr int64_t kOfQueries = 0, kOfKeys = 1, kOfBoth = 2;
  const int64_t type = n.Int("mask_type", -1);
  const int rank = n.Rank(mask);
  if (type == kOfKeys && rank == 2) return n.Unsqueeze(mask, {1, 2});
  if (type == kOfQueries && rank == 2) return mask;
  if ((type == kOfQueries || type == kOfBoth) && rank == 4) return mask;
  return UnsupportedFused(n, fmt::format("a mask of rank {} and mask_type {}", rank, type));
}

// Queries, keys and values [batch, heads, steps, width / heads].
struct FusedHeads {
  ValueId q = kNone, k = kNone, v = kNone;
};

static FusedHeads SplitHeads(AtenNode& n, const std::vector<ValueId>& from, int64_t heads,
                             int64_t width) {
  const ValueId weight = n.In("qkv_weight"), bias = n.In("qkv_bias");
  std::vector<ValueId> parts;
  if (from[1] == from[0] && from[2] == from[0]) {  // by one product
    const ValueId cut =
        n.Reshape(LinearOf(n, from[0], weight, bias), {0, 0, 3, heads, width / heads});
    for (int64_t i = 0; i < 3; ++i)
      parts.push_back(n.Emit("Gather", {cut, n.c.Scalar(DataType::kI64, static_cast<double>(i))},
                             {{"axis", int64_t{2}}}));
  } else {
    const Attributes thirds = {{"axis", int64_t{0}}, {"num_outputs", int64_t{3}}};
    const std::vector<ValueId> weights = n.c.EmitMany("Split", {weight}, 3, thirds);
    const std::vector<ValueId> biases = n.c.EmitMany("Split", {bias}, 3, thirds);
    for (size_t i = 0; i < 3; ++i)
      parts.push_back(
          n.Reshape(LinearOf(n, from[i], weights[i], biases[i]), {0, 0, heads, width / heads}));
  }
  for (ValueId& part : parts) part = n.Transpose(part, {0, 2, 1, 3});
  return {parts[0], parts[1], parts[2]};
}

// The result, and what each query took from each key [batch, heads, queries, keys].
struct Attended {
  ValueId y = kNone, weights = kNone;
};

static absl::StatusOr<Attended> AttendFused(AtenNode& n, const std::vector<ValueId>& from,
                                            int64_t heads) {
  for (const ValueId id : from) QUENCH_RETURN_IF_ERROR(n.RequireRank(id, "query"));
  const int64_t width = n.SizeAt(from[0], 2);
  if (n.Rank(from[0]) != 3 || heads < 1 || width < 1 || width % heads != 0)
    return UnsupportedFused(n, fmt::format("a width of {} in {} heads", width, heads));
  const FusedHeads part = SplitHeads(n, from, heads, width);
  const int64_t head_width = width / heads;
  const ValueId q = n.Times(part.q, 1 / std::sqrt(static_cast<double>(head_width)));
  ValueId scores = n.Emit("MatMul", {q, n.Transpose(part.k, {0, 1, 3, 2})});
  if (n.Has("mask")) {
    QUENCH_ASSIGN_OR_RETURN(const ValueId mask, FusedMask(n));
    scores = n.Emit("Where", {n.Emit("Not", {mask}), scores, n.Scalar(scores, -INFINITY)});
  }
  const ValueId weights = n.Emit("Softmax", {scores}, {{"axis", int64_t{-1}}});
  const ValueId joined = n.Transpose(n.Emit("MatMul", {weights, part.v}), {0, 2, 1, 3});
  return Attended{
      LinearOf(n, n.Reshape(joined, {0, 0, width}), n.In("proj_weight"), n.In("proj_bias")),
      weights};
}

absl::Status SelfAttention(Converter& c) {
  AtenNode n(c);
  QUENCH_ASSIGN_OR_RETURN(
      const Attended attended,
      AttendFused(n, {n.In("query"), n.In("key"), n.In("value")}, n.Int("num_head")));
  ValueId weights = kNone;
  if (n.Flag("need_weights", true) && c.num_outputs() > 1) {
    weights = attended.weights;
    if (n.Flag("average_attn_weights", true)) weights = n.Reduce("ReduceMean", weights, {1}, false);
  }
  return c.FinalValues({attended.y, weights});
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
  QUENCH_ASSIGN_OR_RETURN(const Attended attended,
                          AttendFused(n, {inner, inner, inner}, n.Int("num_heads")));
  ValueId y = n.Emit("Add", {x, attended.y});
  if (first) return n.Finish(n.Emit("Add", {y, forward(norm(y, "norm_weight_2", "norm_bias_2"))}));
  y = norm(y, "norm_weight_1", "norm_bias_1");
  return n.Finish(norm(n.Emit("Add", {y, forward(y)}), "norm_weight_2", "norm_bias_2"));
}

}  // namespace quench::importer::torch_ops
