#include <cmath>

#include "common/ops/heads.h"

namespace quench::ops {
namespace {

enum Input { kQuery, kKey, kValue, kMask, kPastKey, kPastValue, kValidLengths };
enum Output { kResult, kPresentKey, kPresentValue, kScores };

struct Shapes {
  HeadDims q, k, v;
  Dim past;   // cached positions before those of K and V
  Dim total;  // past and new ones
};

absl::StatusOr<Shapes> ShapesOf(const OpContext& ctx) {
  const int64_t q_heads = ctx.node().Int("q_num_heads", 0);
  const int64_t kv_heads = ctx.node().Int("kv_num_heads", 0);
  Shapes shapes;
  QUENCH_ASSIGN_OR_RETURN(shapes.q, HeadDimsOf(ctx, kQuery, q_heads));
  QUENCH_ASSIGN_OR_RETURN(shapes.k, HeadDimsOf(ctx, kKey, kv_heads));
  QUENCH_ASSIGN_OR_RETURN(shapes.v, HeadDimsOf(ctx, kValue, kv_heads));
  shapes.past = ctx.has_input(kPastKey) ? ctx.input(kPastKey).dims[2] : Dim(0);
  shapes.total = ctx.symbols().Add(shapes.past, shapes.k.sequence);
  return shapes;
}

absl::Status CheckShapes(const OpContext& ctx, const Shapes& s) {
  QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, s.q.batch, s.k.batch, "batch of Q and K"));
  QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, s.k.batch, s.v.batch, "batch of K and V"));
  QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, s.q.size, s.k.size, "head size of Q and K"));
  QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, s.k.heads, s.v.heads, "heads of K and V"));
  QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, s.k.sequence, s.v.sequence, "sequence of K and V"));
  if (!s.q.heads.is_static() || !s.k.heads.is_static())
    return ctx.UnsupportedError("the number of heads is not known");
  if (s.k.heads.value() < 1 || s.q.heads.value() % s.k.heads.value() != 0) {
    return ctx.Error(fmt::format("{} heads of K do not divide {} heads of Q", s.k.heads.value(),
                                 s.q.heads.value()));
  }
  if (!ctx.has_input(kPastKey)) return absl::OkStatus();
  QUENCH_RETURN_IF_ERROR(
      RequireEqual(ctx, ctx.input(kPastKey).dims[1], s.k.heads, "heads of K and its past"));
  QUENCH_RETURN_IF_ERROR(
      RequireEqual(ctx, ctx.input(kPastKey).dims[3], s.k.size, "head size of K and its past"));
  QUENCH_RETURN_IF_ERROR(
      RequireEqual(ctx, ctx.input(kPastValue).dims[3], s.v.size, "head size of V and its past"));
  return RequireEqual(ctx, ctx.input(kPastValue).dims[2], s.past, "past positions of K and V");
}

absl::Status CheckAttentionAttributes(const OpContext& ctx) {
  if (ctx.has_input(kPastKey) != ctx.has_input(kPastValue))
    return ctx.Error("past_key and past_value come together");
  if (ctx.has_input(kPastKey) && ctx.has_input(kValidLengths))
    return ctx.Error("nonpad_kv_seqlen excludes past_key and past_value");
  for (const int i : {kPastKey, kPastValue}) QUENCH_RETURN_IF_ERROR(RequireRank(ctx, i, 4, 4));
  for (const char* side : {"left_window_size", "right_window_size"}) {
    if (ctx.node().Int(side, -1) < -1)
      return ctx.Error(fmt::format("{} is {}, it is -1 or more", side, ctx.node().Int(side, -1)));
  }
  const int64_t mode = ctx.node().Int("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3)
    return ctx.Error(fmt::format("qk_matmul_output_mode is {}, it is 0 to 3", mode));
  const int64_t precision = ctx.node().Int("softmax_precision", 1);
  if (precision < 1 || precision >= kDataTypeCount ||
      !Contains(kFloatTypes, static_cast<DataType>(precision))) {
    return ctx.Error(fmt::format("softmax_precision is {}, it must be a float type", precision));
  }
  return absl::OkStatus();
}

absl::Status InferAttention(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, kQuery, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireSameType(ctx, {kQuery, kKey, kValue, kPastKey, kPastValue}));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, kMask, kFloatTypes | kBoolType));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, kMask, 1, 4));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, kValidLengths, TypeSet({DataType::kI64})));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, kValidLengths, 1, 1));
  QUENCH_RETURN_IF_ERROR(CheckAttentionAttributes(ctx));
  QUENCH_ASSIGN_OR_RETURN(const Shapes s, ShapesOf(ctx));
  QUENCH_RETURN_IF_ERROR(CheckShapes(ctx, s));
  const DataType type = ctx.input(kQuery).dtype;
  const bool folded = ctx.input(kQuery).rank() == 3;
  const Dim hidden = ctx.symbols().Mul(s.q.heads, s.v.size);
  ctx.SetOutput(kResult, type,
                folded ? std::vector<Dim>{s.q.batch, s.q.sequence, hidden}
                       : std::vector<Dim>{s.q.batch, s.q.heads, s.q.sequence, s.v.size});
  ctx.SetOutput(kPresentKey, type, {s.q.batch, s.k.heads, s.total, s.k.size});
  ctx.SetOutput(kPresentValue, type, {s.q.batch, s.k.heads, s.total, s.v.size});
  ctx.SetOutput(kScores, type, {s.q.batch, s.q.heads, s.q.sequence, s.total});
  return absl::OkStatus();
}

Dim AttentionMacs(const OpContext& ctx) {
  const absl::StatusOr<Shapes> s = ShapesOf(ctx);
  if (!s.ok()) return 0;
  SymbolTable& symbols = ctx.symbols();
  return symbols.Product(std::vector<Dim>{s->q.batch, s->q.heads, s->q.sequence, s->total,
                                          symbols.Add(s->q.size, s->v.size)});
}

// Keys or values of all positions, past ones first.
class Cache {
 public:
  Cache(LowerContext& ctx, const HeadDims& dims, Dim total, int input, int past_input, int output)
      : source_(ctx.in(input)), size_(ctx.Extent(dims.size)) {
    Builder& b = ctx.b();
    if (ctx.has_input(past_input)) {
      const B past = ctx.in(past_input);
      EnsureEqual(ctx, ctx.input(past_input).dims[0], dims.batch,
                  "batch of the input and its past");
      joined_ =
          b.Scratch("present", source_.dtype(),
                    {ctx.Extent(dims.batch), ctx.Extent(dims.heads), ctx.Extent(total), size_},
                    loops::ScratchScope::kFunction);
      b.ParallelForAll(DimsOf(past),
                       [&](std::span<const E> i) { b.Store(joined_, i, past.At(i)); });
      const std::vector<E> fresh = {ctx.Extent(dims.batch), ctx.Extent(dims.heads),
                                    ctx.Extent(dims.sequence), size_};
      b.ParallelForAll(fresh, [&](std::span<const E> i) {
        b.Store(joined_, {i[0], i[1], i[2] + past.dim(2), i[3]},
                source_.At(HeadIndex(source_.rank(), i[0], i[1], i[2], i[3], size_)));
      });
    }
    if (!ctx.has_output(output)) return;
    b.ParallelForAll(DimsOf(ctx.out(output)), [&](std::span<const E> i) {
      b.Store(ctx.out(output), i, At(i[0], i[1], i[2], i[3]));
    });
  }

  E At(E n, E h, E s, E k) const {
    if (joined_.valid()) return joined_.At({n, h, s, k});
    return source_.At(HeadIndex(source_.rank(), n, h, s, k, size_));
  }

 private:
  B source_;
  B joined_;
  E size_;
};

// The keys that query (n, h, i) may attend to, and the terms added to its scores.
class Bias {
 public:
  Bias(LowerContext& ctx, const Shapes& s) : ctx_(ctx), total_(ctx.Extent(s.total)) {
    if (ctx.has_input(kValidLengths))
      EnsureEqual(ctx, ctx.input(kValidLengths).dims[0], s.q.batch,
                  "batch of Q and nonpad_kv_seqlen");
    if (!ctx.has_input(kMask)) return;
    const std::vector<Dim> full = {s.q.batch, s.q.heads, s.q.sequence};
    const std::vector<Dim>& dims = ctx.input(kMask).dims;
    for (size_t axis = 0; axis + 1 < dims.size(); ++axis) {
      const Dim wide = full[axis + 4 - dims.size()];
      if (dims[axis].is(1) || dims[axis] == wide) continue;
      const E own = ctx.Extent(dims[axis]);
      ctx.b().Check(own == ctx.b().I(1) || own == ctx.Extent(wide),
                    fmt::format("node `{}`: attn_mask does not broadcast", ctx.node().name));
    }
    const E last = ctx.Extent(dims.back());
    ctx.b().Check(
        last > ctx.b().I(0) && last <= total_,
        fmt::format("node `{}`: the last axis of attn_mask does not fit", ctx.node().name));
    shorter_ = dims.back() != s.total;
  }

  // score + mask, or -inf where attention is not allowed.
  E Apply(E score, E n, E h, E i, E j, E offset) const {
    Builder& b = ctx_.b();
    E allowed;
    const auto require = [&](E condition) {
      allowed = allowed.valid() ? allowed && condition : condition;
    };
    const int64_t left = ctx_.node().Int("left_window_size", -1);
    const int64_t right = ctx_.node().Int("right_window_size", -1);
    const E place = i + offset;
    if (ctx_.node().Int("is_causal", 0) != 0) require(j <= place);
    if (left >= 0) require(place - j <= b.I(left));
    if (right >= 0) require(j - place <= b.I(right));
    if (ctx_.has_input(kValidLengths)) require(j < ctx_.in(kValidLengths).At({n}));
    if (ctx_.has_input(kMask)) {
      const B mask = ctx_.in(kMask);
      const E last = mask.dim(-1);
      if (shorter_) require(j < last);
      const E value = mask.At(MaskIndex(mask, {n, h, i}, shorter_ ? Min(j, last - b.I(1)) : j));
      if (value.type() == DataType::kBool) {
        require(value);
      } else {
        score = score + Cast(value, score.type());
      }
    }
    return allowed.valid() ? Select(allowed, score, LowestOf(b, score.type())) : score;
  }

 private:
  std::vector<E> MaskIndex(B mask, const std::vector<E>& full, E last) const {
    Builder& b = ctx_.b();
    const std::vector<Dim>& dims = ctx_.input(kMask).dims;
    std::vector<E> index;
    for (size_t axis = 0; axis + 1 < dims.size(); ++axis) {
      const E own = full[axis + 4 - dims.size()];
      if (dims[axis].is(1)) {
        index.push_back(b.I(0));
      } else {
        index.push_back(
            dims[axis].is_static() ? own : Min(own, mask.dim(static_cast<int>(axis)) - b.I(1)));
      }
    }
    index.push_back(last);
    return index;
  }

  LowerContext& ctx_;
  E total_;
  bool shorter_ = false;  // the mask's last axis: what it lacks is not attended
};

// Position of query 0 among the keys.
E OffsetOf(LowerContext& ctx, const Shapes& s, E n) {
  Builder& b = ctx.b();
  if (ctx.has_input(kValidLengths))
    return b.Let(ctx.in(kValidLengths).At({n}) - ctx.Extent(s.q.sequence), "offset");
  return ctx.Extent(s.past);
}

void EnsureShapes(LowerContext& ctx, const Shapes& s) {
  EnsureEqual(ctx, s.q.batch, s.k.batch, "batch of Q and K");
  EnsureEqual(ctx, s.k.batch, s.v.batch, "batch of K and V");
  EnsureEqual(ctx, s.q.size, s.k.size, "head sizes of Q and K");
  EnsureEqual(ctx, s.k.sequence, s.v.sequence, "sequence lengths of K and V");
  if (ctx.has_input(kPastKey))
    EnsureEqual(ctx, ctx.input(kPastValue).dims[2], s.past, "past positions of K and V");
}

absl::Status LowerAttention(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const Shapes s, ShapesOf(ctx));
  EnsureShapes(ctx, s);
  Builder& b = ctx.b();
  const B q = ctx.in(kQuery);
  const DataType own = loops::ComputeType(q.dtype());
  const DataType type =
      ctx.node().Find("softmax_precision") == nullptr
          ? own
          : loops::ComputeType(static_cast<DataType>(ctx.node().Int("softmax_precision", 1)));
  const Cache keys(ctx, s.k, s.total, kKey, kPastKey, kPresentKey);
  const Cache values(ctx, s.v, s.total, kValue, kPastValue, kPresentValue);
  const Bias bias(ctx, s);
  const E total = ctx.Extent(s.total);
  const E size = ctx.Extent(s.q.size);
  const E repeat = b.I(s.q.heads.value() / s.k.heads.value());
  const double cap = ctx.node().Float("softcap", 0);
  const int64_t mode = ctx.node().Int("qk_matmul_output_mode", 0);
  const E scale = ctx.node().Find("scale") != nullptr
                      ? b.F(ctx.node().Float("scale", 1), own)
                      : b.Let(b.F(1, own) / Unary(UnaryOp::kSqrt, Cast(size, own)), "scale");
  const B row = b.Scratch("row", type, {total}, loops::ScratchScope::kIteration);
  ParallelRows(
      b, std::vector<E>{ctx.Extent(s.q.batch), ctx.Extent(s.q.heads), ctx.Extent(s.q.sequence)},
      [&](std::span<const E> at) {
        const E n = at[0];
        const E h = at[1];
        const E i = at[2];
        const E kv = b.Let(h / repeat, "kv");
        const E offset = OffsetOf(ctx, s, n);
        const auto report = [&](int64_t when, E j, E value) {
          if (ctx.has_output(kScores) && mode == when)
            b.Store(ctx.out(kScores), {n, h, i, j}, Cast(value, own));
        };
        b.For(total, [&](E j) {
          const E dot = b.Reduce(BinaryOp::kAdd, b.F(0, own), size, [&](E k) {
            return q.At(HeadIndex(q.rank(), n, h, i, k, size)) * keys.At(n, kv, j, k);
          });
          E score = b.Let(dot * scale, "score");
          report(0, j, score);
          if (cap > 0) score = b.Let(Unary(UnaryOp::kTanh, score / cap) * cap, "capped");
          report(1, j, score);
          score = b.Let(bias.Apply(score, n, h, i, j, offset), "biased");
          report(2, j, score);
          b.Store(row, {j}, Cast(score, type));
        });
        // A query that may attend nothing gives zeros.
        const E largest = b.Let(
            b.Reduce(BinaryOp::kMax, LowestOf(b, type), total, [&](E j) { return row.At({j}); }),
            "largest");
        const E nothing = b.Let(largest == LowestOf(b, type), "nothing");
        const E shift = b.Let(Select(nothing, b.F(0, type), largest), "shift");
        b.ParallelFor(total,
                      [&](E j) { b.Store(row, {j}, Unary(UnaryOp::kExp, row.At({j}) - shift)); });
        const E sum =
            b.Reduce(BinaryOp::kAdd, b.F(0, type), total, [&](E j) { return row.At({j}); });
        const E inverse = b.Let(Select(nothing, b.F(0, type), b.F(1, type) / sum), "inverse");
        b.For(total, [&](E j) { report(3, j, row.At({j}) * inverse); });
        const B y = ctx.out(kResult);
        const E width = ctx.Extent(s.v.size);
        b.ParallelFor(width, [&](E v) {
          const E value = b.Reduce(BinaryOp::kAdd, b.F(0, own), total, [&](E j) {
            return Cast(row.At({j}) * inverse, own) * values.At(n, kv, j, v);
          });
          b.Store(y, HeadIndex(y.rank(), n, h, i, v, width), value);
        });
      });
  return absl::OkStatus();
}

}  // namespace

const OpDef& AttentionOp() {
  static const OpDef op = {
      .name = "Attention",
      .summary = "scaled dot product attention over heads, with masks and a cache",
      .min_inputs = 3,
      .max_inputs = 7,
      .max_outputs = 4,
      .attributes = {{"is_causal", AttributeSpec::kInt},
                     {"kv_num_heads", AttributeSpec::kInt},
                     {"left_window_size", AttributeSpec::kInt},
                     {"q_num_heads", AttributeSpec::kInt},
                     {"qk_matmul_output_mode", AttributeSpec::kInt},
                     {"right_window_size", AttributeSpec::kInt},
                     {"scale", AttributeSpec::kFloat},
                     {"softcap", AttributeSpec::kFloat},
                     {"softmax_precision", AttributeSpec::kInt}},
      .infer = InferAttention,
      .macs = AttentionMacs,
      .lower = LowerAttention};
  return op;
}

}  // namespace quench::ops
