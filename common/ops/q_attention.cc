#include "common/ops/q_attention.h"

#include <algorithm>
#include <limits>

#include "common/base/status.h"

namespace quench::ops {
namespace {

constexpr const char* kNames[] = {"queries", "keys", "values"};

absl::Status ReadHeads(const OpContext& ctx, int i, int64_t heads, int64_t size, HeadsAt& at) {
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, i, 3, 4));
  const std::vector<Dim>& dims = ctx.input(i).dims;
  at.folded = dims.size() == 3;
  const std::vector<int64_t> offsets = ctx.node().Ints("offsets");
  if (!offsets.empty() && offsets.size() != 3)
    return ctx.Error(fmt::format("{} offsets, there are three", offsets.size()));
  at.offset = offsets.empty() ? 0 : offsets[static_cast<size_t>(i)];
  if (!at.folded) {
    if (at.offset != 0) return ctx.Error(fmt::format("{} of rank 4 have an offset", kNames[i]));
    QUENCH_RETURN_IF_ERROR(
        RequireEqual(ctx, dims[1], heads, fmt::format("heads of {}", kNames[i])));
    return RequireEqual(ctx, dims[3], size, fmt::format("head size of {}", kNames[i]));
  }
  at.columns = dims[2];
  if (!at.columns.is_static())
    return ctx.UnsupportedError("columns that are known only at run time");
  if (at.offset < 0 || at.offset > at.columns.value() ||
      heads * size > at.columns.value() - at.offset) {
    return ctx.Error(fmt::format("{} heads of {} from column {} on exceed the {} columns of {}",
                                 heads, size, at.offset, at.columns.value(), kNames[i]));
  }
  return absl::OkStatus();
}

Dim StepsOf(const OpContext& ctx, int i) {
  return ctx.input(i).dims[ctx.input(i).rank() == 3 ? 1 : 2];
}

absl::Status CheckMask(const OpContext& ctx, const AttentionShape& s) {
  if (!s.has_mask) return absl::OkStatus();
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, kAttentionMask, kFloatTypes | kBoolType));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, kAttentionMask, 4, 4));
  const std::vector<Dim> full = {s.batch, s.heads, s.steps, s.keys};
  for (size_t axis = 0; axis < full.size(); ++axis) {
    const Dim own = ctx.input(kAttentionMask).dims[axis];
    if (own.is(1) && axis < 3) continue;
    QUENCH_RETURN_IF_ERROR(
        RequireEqual(ctx, own, full[axis], fmt::format("axis {} of the mask", axis)));
  }
  return absl::OkStatus();
}

absl::Status InferQAttention(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, kAttentionQuery, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireSameType(ctx, {kAttentionQuery, kAttentionKey, kAttentionValue}));
  if (ctx.has_input(kAttentionLengths)) {
    QUENCH_RETURN_IF_ERROR(RequireType(ctx, kAttentionLengths, TypeSet({DataType::kI64})));
    QUENCH_RETURN_IF_ERROR(RequireRank(ctx, kAttentionLengths, 1, 1));
    QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, ctx.input(kAttentionLengths).dims[0],
                                        ctx.input(kAttentionQuery).dims[0],
                                        "lengths and batch of queries"));
  }
  QUENCH_ASSIGN_OR_RETURN(const AttentionShape s, AttentionShapeOf(ctx));
  ctx.SetOutput(0, s.type,
                s.folded_result ? std::vector<Dim>{s.batch, s.steps, s.heads * s.value_size}
                                : std::vector<Dim>{s.batch, s.heads, s.steps, s.value_size});
  return absl::OkStatus();
}

Dim QAttentionMacs(const OpContext& ctx) {
  const absl::StatusOr<AttentionShape> s = AttentionShapeOf(ctx);
  if (!s.ok()) return 0;
  return ctx.symbols().Product(
      std::vector<Dim>{s->batch, s->heads, s->steps, s->keys, s->size + s->value_size});
}

// One query at a time.
class Attender {
 public:
  Attender(LowerContext& ctx, const AttentionShape& s)
      : ctx_(ctx),
        b_(ctx.b()),
        s_(s),
        type_(loops::ComputeType(s.type)),
        keys_(ctx.Extent(s.keys)) {}

  void Lower() {
    EnsureShapes();
    row_ = b_.Scratch("row", type_, {keys_}, loops::ScratchScope::kIteration);
    ParallelRows(b_, std::vector<E>{ctx_.Extent(s_.batch), b_.I(s_.heads), ctx_.Extent(s_.steps)},
                 [&](std::span<const E> at) { Query(at[0], at[1], at[2]); });
  }

 private:
  void EnsureShapes() {
    for (const int i : {kAttentionKey, kAttentionValue}) {
      EnsureEqual(ctx_, ctx_.input(i).dims[0], s_.batch, fmt::format("batch of {}", kNames[i]));
      EnsureEqual(ctx_, StepsOf(ctx_, i), s_.keys, fmt::format("steps of {}", kNames[i]));
    }
    if (s_.has_lengths)
      EnsureEqual(ctx_, ctx_.input(kAttentionLengths).dims[0], s_.batch, "batch of lengths");
    if (!s_.has_mask) return;
    const std::vector<Dim> full = {s_.batch, s_.heads, s_.steps, s_.keys};
    for (size_t axis = 0; axis < full.size(); ++axis) {
      const Dim own = ctx_.input(kAttentionMask).dims[axis];
      if (!own.is(1) || axis == 3)
        EnsureEqual(ctx_, own, full[axis], fmt::format("axis {} of the mask", axis));
    }
  }

  E Element(int i, E n, E h, E step, E column, int64_t size) const {
    const HeadsAt& at = s_.at[i];
    if (!at.folded) return ctx_.in(i).At({n, h, step, column});
    return ctx_.in(i).At({n, step, h * size + column + at.offset});
  }

  // How many keys query `i` may attend, from the first on.
  E Reach(E n, E i) const {
    E reach = keys_;
    E place = i;
    if (s_.has_lengths) {
      const E length = b_.Let(ctx_.in(kAttentionLengths).At({n}), "length");
      reach = Min(reach, length);
      place = i + (length - ctx_.Extent(s_.steps));
    } else if (s_.at_end) {
      place = i + (keys_ - ctx_.Extent(s_.steps));
    }
    if (s_.causal) reach = Min(reach, place + 1);
    return b_.Let(reach, "reach");
  }

  E Masked(E score, E n, E h, E i, E j) const {
    if (!s_.has_mask) return score;
    const std::vector<Dim>& dims = ctx_.input(kAttentionMask).dims;
    std::vector<E> index = {n, h, i, j};
    for (size_t axis = 0; axis < 3; ++axis) {
      if (dims[axis].is(1)) index[axis] = b_.I(0);
    }
    const E value = ctx_.in(kAttentionMask).At(index);
    if (value.type() == DataType::kBool) return Select(value, score, b_.F(s_.fill, type_));
    return score + Cast(value, type_);
  }

  void Query(E n, E h, E i) {
    const E kv = b_.Let(h / b_.I(s_.heads / s_.kv_heads), "kv");
    const E reach = Reach(n, i);
    b_.For(reach, [&](E j) {
      E score = b_.Reduce(BinaryOp::kAdd, b_.F(0, type_), b_.I(s_.size), [&](E c) {
        return Element(kAttentionQuery, n, h, i, c, s_.size) *
               Element(kAttentionKey, n, kv, j, c, s_.size);
      });
      score = b_.Let(score * b_.F(s_.scale, type_), "score");
      if (s_.cap > 0) {
        const E cap = b_.F(s_.cap, type_);
        score = b_.Let(Unary(UnaryOp::kTanh, score / cap) * cap, "capped");
      }
      b_.Store(row_, {j}, Masked(score, n, h, i, j));
    });
    const E largest = b_.Let(
        b_.Reduce(BinaryOp::kMax, LowestOf(b_, type_), reach, [&](E j) { return row_.At({j}); }),
        "largest");
    const E nothing = b_.Let(largest == LowestOf(b_, type_), "nothing");
    const E shift = b_.Let(Select(nothing, b_.F(0, type_), largest), "shift");
    b_.ParallelFor(reach,
                   [&](E j) { b_.Store(row_, {j}, Unary(UnaryOp::kExp, row_.At({j}) - shift)); });
    const E sum =
        b_.Reduce(BinaryOp::kAdd, b_.F(0, type_), reach, [&](E j) { return row_.At({j}); });
    E inverse = b_.F(1, type_) / sum;
    if (s_.empty_is_zero) inverse = Select(nothing, b_.F(0, type_), inverse);
    // No key at all, unlike keys that are all masked: a sum of nothing.
    if (!s_.keys.is_static()) inverse = Select(keys_ == 0, b_.F(0, type_), inverse);
    inverse = b_.Let(inverse, "inverse");
    const B y = ctx_.out(0);
    b_.ParallelFor(b_.I(s_.value_size), [&](E column) {
      const E value = b_.Reduce(BinaryOp::kAdd, b_.F(0, type_), reach, [&](E j) {
        return row_.At({j}) * Element(kAttentionValue, n, kv, j, column, s_.value_size);
      });
      b_.Store(y, HeadIndex(y.rank(), n, h, i, column, b_.I(s_.value_size)), value * inverse);
    });
  }

  LowerContext& ctx_;
  Builder& b_;
  const AttentionShape& s_;
  const DataType type_;
  const E keys_;
  B row_;
};

absl::Status LowerQAttention(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const AttentionShape s, AttentionShapeOf(ctx));
  Attender(ctx, s).Lower();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AttentionShape> AttentionShapeOf(const OpContext& ctx) {
  const Node& node = ctx.node();
  AttentionShape s;
  s.type = ctx.input(kAttentionQuery).dtype;
  s.heads = node.Int("heads", 1);
  s.kv_heads = node.Int("kv_heads", s.heads);
  s.size = node.Int("size", 1);
  s.value_size = node.Int("value_size", s.size);
  if (s.heads < 1 || s.kv_heads < 1 || s.heads % s.kv_heads != 0)
    return ctx.Error(
        fmt::format("{} heads of keys do not divide {} of queries", s.kv_heads, s.heads));
  constexpr int64_t kMost = int64_t{1} << 24;  // of each: products of two do not overflow
  if (s.size < 1 || s.value_size < 1 || std::max({s.heads, s.size, s.value_size}) > kMost) {
    return ctx.Error(fmt::format("{} heads of sizes {} and {}, each is 1 to {}", s.heads, s.size,
                                 s.value_size, kMost));
  }
  for (const int i : {kAttentionQuery, kAttentionKey, kAttentionValue}) {
    QUENCH_RETURN_IF_ERROR(ReadHeads(ctx, i, i == kAttentionQuery ? s.heads : s.kv_heads,
                                     i == kAttentionValue ? s.value_size : s.size, s.at[i]));
  }
  s.batch = ctx.input(kAttentionQuery).dims[0];
  s.steps = StepsOf(ctx, kAttentionQuery);
  s.keys = StepsOf(ctx, kAttentionKey);
  for (const int i : {kAttentionKey, kAttentionValue}) {
    QUENCH_RETURN_IF_ERROR(
        RequireEqual(ctx, ctx.input(i).dims[0], s.batch, fmt::format("batch of {}", kNames[i])));
  }
  QUENCH_RETURN_IF_ERROR(
      RequireEqual(ctx, StepsOf(ctx, kAttentionValue), s.keys, "steps of keys and values"));
  s.folded_result = node.Int("folded", 0) != 0;
  s.scale = node.Float("scale", 1);
  s.cap = node.Float("softcap", 0);
  s.fill = node.Float("fill", -std::numeric_limits<double>::infinity());
  s.causal = node.Int("causal", 0) != 0;
  s.at_end = node.Int("at_end", 0) != 0;
  s.empty_is_zero = node.Int("empty_is_zero", 0) != 0;
  s.has_mask = ctx.has_input(kAttentionMask);
  s.has_lengths = ctx.has_input(kAttentionLengths);
  QUENCH_RETURN_IF_ERROR(CheckMask(ctx, s));
  return s;
}

const OpDef& QAttentionOp() {
  static const OpDef op = {
      .name = "q.attention",
      .summary = "attention of heads that lie anywhere in their tensors, without the scores",
      .min_inputs = 3,
      .max_inputs = 5,
      .attributes = {{"at_end", AttributeSpec::kInt},
                     {"causal", AttributeSpec::kInt},
                     {"empty_is_zero", AttributeSpec::kInt},
                     {"fill", AttributeSpec::kFloat},
                     {"folded", AttributeSpec::kInt},
                     {"heads", AttributeSpec::kInt},
                     {"kv_heads", AttributeSpec::kInt},
                     {"offsets", AttributeSpec::kInts},
                     {"scale", AttributeSpec::kFloat},
                     {"size", AttributeSpec::kInt},
                     {"softcap", AttributeSpec::kFloat},
                     {"value_size", AttributeSpec::kInt}},
      .infer = InferQAttention,
      .macs = QAttentionMacs,
      .lower = LowerQAttention};
  return op;
}

}  // namespace quench::ops
