#include "common/ops/recurrent_common.h"

#include <algorithm>
#include <cctype>
#include <map>

namespace quench::ops {
namespace {

struct ActivationRule {
  int parameters = 0;  // how many of activation_alpha and activation_beta it takes
  double alpha = 0;
  double beta = 0;
  E (*apply)(E x, E alpha, E beta) = nullptr;
};

E Zero(E x) { return x.builder()->F(0, x.type()); }
E One(E x) { return x.builder()->F(1, x.type()); }

const std::map<std::string, ActivationRule>& Rules() {
  static const std::map<std::string, ActivationRule> rules = {
      {"relu", {0, 0, 0, [](E x, E, E) { return Max(x, Zero(x)); }}},
      {"tanh", {0, 0, 0, [](E x, E, E) { return Unary(UnaryOp::kTanh, x); }}},
      {"sigmoid", {0, 0, 0, [](E x, E, E) { return Unary(UnaryOp::kLogistic, x); }}},
      {"softsign", {0, 0, 0, [](E x, E, E) { return x / (One(x) + Unary(UnaryOp::kAbs, x)); }}},
      {"softplus", {0, 0, 0, [](E x, E, E) { return Softplus(x); }}},
      {"affine", {2, 1, 0, [](E x, E a, E c) { return a * x + c; }}},
      {"scaledtanh", {2, 1, 1, [](E x, E a, E c) { return a * Unary(UnaryOp::kTanh, c * x); }}},
      {"hardsigmoid",
       {2, 0.2, 0.5, [](E x, E a, E c) { return Min(Max(a * x + c, Zero(x)), One(x)); }}},
      {"leakyrelu", {1, 0.01, 0, [](E x, E a, E) { return Select(x >= Zero(x), x, a * x); }}},
      {"thresholdedrelu", {1, 1, 0, [](E x, E a, E) { return Select(x > a, x, Zero(x)); }}},
      {"elu",
       {1, 1, 0,
        [](E x, E a, E) { return Select(x >= Zero(x), x, a * (Unary(UnaryOp::kExp, x) - 1.0)); }}},
  };
  return rules;
}

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool IsProjected(const OpContext& ctx) { return ctx.node().op.starts_with("q."); }

int DirectionCount(const OpContext& ctx) {
  return ctx.node().String("direction", "forward") == "bidirectional" ? 2 : 1;
}

// Names of all activations, in order; ONNX's defaults when the node has none.
std::vector<std::string> ActivationNames(const OpContext& ctx) {
  if (const Attribute* given = ctx.node().Find("activations"))
    return std::get<std::vector<std::string>>(*given);
  std::vector<std::string> names;
  for (int d = 0; d < DirectionCount(ctx); ++d) {
    const std::string kind = Lower(ctx.node().op);
    if (!kind.ends_with("rnn")) names.push_back("Sigmoid");
    names.push_back("Tanh");
    if (kind.ends_with("lstm")) names.push_back("Tanh");
  }
  return names;
}

absl::Status CheckAttributes(const OpContext& ctx, int activations) {
  const std::string direction = ctx.node().String("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional") {
    return ctx.Error(
        fmt::format("direction is `{}`, it is forward, reverse or bidirectional", direction));
  }
  const int64_t layout = ctx.node().Int("layout", 0);
  if (layout != 0 && layout != 1)
    return ctx.Error(fmt::format("layout is {}, it is 0 or 1", layout));
  const std::vector<std::string> names = ActivationNames(ctx);
  const auto expected = static_cast<size_t>(activations * DirectionCount(ctx));
  if (names.size() != expected) {
    return ctx.Error(fmt::format("has {} activations, direction {} takes {}", names.size(),
                                 direction, expected));
  }
  for (const std::string& name : names) {
    if (!Rules().contains(Lower(name)))
      return ctx.Error(fmt::format("unknown activation `{}`", name));
  }
  return absl::OkStatus();
}

// Input `i` is omitted or has these dims (a negative one in `dims` is not given here).
absl::Status CheckDims(const OpContext& ctx, int i, const std::vector<Dim>& dims) {
  if (!ctx.has_input(i)) return absl::OkStatus();
  const int rank = static_cast<int>(dims.size());
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, i, rank, rank));
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    QUENCH_RETURN_IF_ERROR(
        RequireEqual(ctx, ctx.input(i).dims[axis], dims[axis],
                     fmt::format("axis {} of input {} and what the others give", axis, i)));
  }
  return absl::OkStatus();
}

// W, R and the scales of R against X.
absl::Status CheckWeights(const OpContext& ctx, Dim directions, Dim rows, Dim hidden) {
  const Type& x = ctx.input(0);
  if (!IsProjected(ctx)) {
    QUENCH_RETURN_IF_ERROR(CheckDims(ctx, 1, {directions, rows, x.dims[2]}));
    return CheckDims(ctx, 2, {directions, rows, hidden});
  }
  QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, x.dims[2], directions.value() * rows.value(),
                                      "last axis of input 0 and all gates of all directions"));
  const Dim block = ctx.input(2).dims[3];
  if (!block.is_static() || block.value() < 1 || hidden.value() % block.value() != 0)
    return ctx.Error(fmt::format("blocks of R divide the hidden size, {}", hidden.value()));
  QUENCH_RETURN_IF_ERROR(
      CheckDims(ctx, 2, {directions, rows.value() / block.value(), hidden, block}));
  if (ctx.input(2).dtype != x.dtype && (ctx.input(2).dtype != DataType::kI8 || !ctx.has_input(8)))
    return ctx.Error("R is of another type than input 0, and no i8 with scales");
  if (!ctx.has_input(8)) return absl::OkStatus();
  QUENCH_RETURN_IF_ERROR(RequireSameType(ctx, {0, 8}));
  const Type& scale = ctx.input(8);
  if (scale.rank() == 1 && (scale.dims[0].is(1) || scale.dims[0] == rows)) return absl::OkStatus();
  return ctx.Error(fmt::format("scales of R are one, or one for each of {} gates", rows.value()));
}

}  // namespace

OpDef ProjectedOp(OpDef base, const std::string& name) {
  base.name = name;
  base.summary += ", its inputs projected already";
  base.min_inputs = 1;
  base.max_inputs = 9;
  return base;
}

std::vector<AttributeSpec> RecurrentAttributes() {
  return {{"activation_alpha", AttributeSpec::kFloats},
          {"activation_beta", AttributeSpec::kFloats},
          {"activations", AttributeSpec::kStrings},
          {"clip", AttributeSpec::kFloat},
          {"direction", AttributeSpec::kString},
          {"hidden_size", AttributeSpec::kInt},
          {"layout", AttributeSpec::kInt}};
}

absl::Status InferRecurrent(InferContext& ctx, int gates, int activations) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kFloatTypes));
  const bool projected = IsProjected(ctx);
  if (projected && (!ctx.has_input(2) || ctx.has_input(1)))
    return ctx.Error("has R and no W, for its inputs are projected already");
  QUENCH_RETURN_IF_ERROR(projected ? RequireSameType(ctx, {0, 3, 5, 6, 7})
                                   : RequireSameType(ctx, {0, 1, 2, 3, 5, 6, 7}));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 4, kIndexTypes));
  QUENCH_RETURN_IF_ERROR(CheckAttributes(ctx, activations));
  for (const int i : {0, 1, 2}) {
    const int rank = i == 2 && projected ? 4 : 3;
    if (ctx.has_input(i)) QUENCH_RETURN_IF_ERROR(RequireRank(ctx, i, rank, rank));
  }
  const bool batch_first = ctx.node().Int("layout", 0) == 1;
  const Type& x = ctx.input(0);
  const Dim time = x.dims[batch_first ? 1 : 0];
  const Dim batch = x.dims[batch_first ? 0 : 1];
  const Dim hidden = ctx.input(2).dims[2];
  if (hidden.is(0)) return ctx.Error("hidden size is 0, it is at least 1");
  if (!hidden.is_static()) return ctx.UnsupportedError("hidden size is known only at run time");
  if (ctx.node().Find("hidden_size") != nullptr && !hidden.is(ctx.node().Int("hidden_size", 0))) {
    return ctx.Error(fmt::format("hidden_size is {}, R has {}", ctx.node().Int("hidden_size", 0),
                                 hidden.value()));
  }
  const Dim directions = DirectionCount(ctx);
  const Dim rows = gates * hidden.value();
  QUENCH_RETURN_IF_ERROR(CheckWeights(ctx, directions, rows, hidden));
  QUENCH_RETURN_IF_ERROR(CheckDims(ctx, 3, {directions, 2 * gates * hidden.value()}));
  QUENCH_RETURN_IF_ERROR(CheckDims(ctx, 4, {batch}));
  const std::vector<Dim> state = batch_first ? std::vector<Dim>{batch, directions, hidden}
                                             : std::vector<Dim>{directions, batch, hidden};
  QUENCH_RETURN_IF_ERROR(CheckDims(ctx, 5, state));
  QUENCH_RETURN_IF_ERROR(CheckDims(ctx, 6, state));
  QUENCH_RETURN_IF_ERROR(CheckDims(ctx, 7, {directions, 3 * hidden.value()}));
  ctx.SetOutput(0, x.dtype,
                batch_first ? std::vector<Dim>{batch, time, directions, hidden}
                            : std::vector<Dim>{time, directions, batch, hidden});
  ctx.SetOutput(1, x.dtype, state);
  ctx.SetOutput(2, x.dtype, state);
  return absl::OkStatus();
}

Dim RecurrentMacs(const OpContext& ctx) {
  SymbolTable& symbols = ctx.symbols();
  const Type& x = ctx.input(0);
  const std::vector<Dim>& r = ctx.input(2).dims;
  if (IsProjected(ctx))
    return symbols.Product(std::vector<Dim>{x.dims[0], x.dims[1], r[0], r[1], r[2], r[3]});
  const Dim row = symbols.Add(x.dims[2], r[2]);
  return symbols.Product(std::vector<Dim>{x.dims[0], x.dims[1], r[0], r[1], row});
}

Recurrent::Recurrent(LowerContext& ctx, int gates)
    : ctx_(ctx),
      gates_(gates),
      directions_(DirectionCount(ctx)),
      batch_first_(ctx.node().Int("layout", 0) == 1),
      projected_(IsProjected(ctx)),
      type_(loops::ComputeType(ctx.input(0).dtype)) {
  const B x = ctx.in(0);
  time_ = x.dim(batch_first_ ? 1 : 0);
  batch_ = x.dim(batch_first_ ? 0 : 1);
  hidden_ = ctx.in(2).dim(2);
  if (!projected_)
    projection_ = MakeScratch("projection", {time_, batch_, ctx.b().I(gates) * hidden_});
  const int batch_axis = batch_first_ ? 0 : 1;
  for (const int state : {5, 6}) {
    if (ctx.has_input(state))
      EnsureEqual(ctx, ctx.input(state).dims[static_cast<size_t>(batch_axis)],
                  ctx.input(0).dims[static_cast<size_t>(batch_axis)],
                  "batch of X and the initial states");
  }
  if (!projected_)
    EnsureEqual(ctx, ctx.input(1).dims[2], ctx.input(0).dims[2], "input sizes of W and X");
  Builder& b = ctx.b();
  if (ctx.has_input(4)) {
    EnsureEqual(ctx, ctx.input(4).dims[0], ctx.input(0).dims[static_cast<size_t>(batch_axis)],
                "batch of X and sequence_lens");
    b.For(batch_, [&](E n) {
      const E length = Length(n);
      b.Check(length >= b.I(0) && length <= time_,
              fmt::format("node `{}`: a sequence length is out of range", ctx.node().name));
    });
    // Steps past the end of a sequence give 0.
    const B y = ctx.out(0);
    if (y.valid())
      b.ParallelForAll(DimsOf(y), [&](std::span<const E> i) { b.Store(y, i, b.F(0, type_)); });
  }
}

bool Recurrent::Reverse(int direction) const {
  return direction == 1 || ctx_.node().String("direction", "forward") == "reverse";
}

E Recurrent::Length(E n) {
  return ctx_.has_input(4) ? Cast(ctx_.in(4).At({n}), DataType::kI64) : time_;
}

E Recurrent::Time(int direction, E step, E n) {
  return Reverse(direction) ? Length(n) - ctx_.b().I(1) - step : step;
}

std::vector<E> Recurrent::StateAt(int direction, E n, E h) const {
  const E d = ctx_.b().I(direction);
  return batch_first_ ? std::vector<E>{n, d, h} : std::vector<E>{d, n, h};
}

Activation Recurrent::ActivationOf(int direction, int index, int per_direction) {
  const std::vector<std::string> names = ActivationNames(ctx_);
  const std::vector<double> alphas = ctx_.node().Floats("activation_alpha");
  const std::vector<double> betas = ctx_.node().Floats("activation_beta");
  const auto wanted = static_cast<size_t>(direction * per_direction + index);
  size_t alpha_at = 0;  // both lists hold entries only for the activations that take them
  size_t beta_at = 0;
  for (size_t i = 0; i < wanted; ++i) {
    const ActivationRule& rule = Rules().at(Lower(names[i]));
    alpha_at += rule.parameters >= 1 ? 1 : 0;
    beta_at += rule.parameters >= 2 ? 1 : 0;
  }
  const ActivationRule& rule = Rules().at(Lower(names[wanted]));
  const double alpha =
      rule.parameters >= 1 && alpha_at < alphas.size() ? alphas[alpha_at] : rule.alpha;
  const double beta = rule.parameters >= 2 && beta_at < betas.size() ? betas[beta_at] : rule.beta;
  const double clip = ctx_.node().Float("clip", 0);
  return [&rule, alpha, beta, clip](E x) {
    if (clip > 0) x = Min(Max(x, ConstantLike(x, -clip)), ConstantLike(x, clip));
    return rule.apply(x, ConstantLike(x, alpha), ConstantLike(x, beta));
  };
}

void Recurrent::LoadState(int direction, int input, B state) {
  Builder& b = ctx_.b();
  b.ParallelForAll(DimsOf(state), [&](std::span<const E> i) {
    const bool given = ctx_.has_input(input);
    b.Store(state, i, given ? ctx_.in(input).At(StateAt(direction, i[0], i[1])) : b.F(0, type_));
  });
}

void Recurrent::StoreState(int direction, int output, B state) {
  if (!ctx_.has_output(output)) return;
  Builder& b = ctx_.b();
  b.ParallelForAll(DimsOf(state), [&](std::span<const E> i) {
    b.Store(ctx_.out(output), StateAt(direction, i[0], i[1]), state.At(i));
  });
}

void Recurrent::ProjectInputs(int direction, int recurrent_bias_gates) {
  if (projected_) return;
  Builder& b = ctx_.b();
  const B x = ctx_.in(0);
  const B w = ctx_.in(1);
  const E d = b.I(direction);
  for (int gate = 0; gate < gates_; ++gate) {
    b.ParallelForAll(std::vector<E>{time_, batch_, hidden_}, [&](std::span<const E> i) {
      const E t = i[0];
      const E n = i[1];
      const E g = gate == 0 ? i[2] : i[2] + b.I(gate) * hidden_;
      E sum = b.Reduce(BinaryOp::kAdd, b.F(0, type_), x.dim(2), [&](E k) {
        return (batch_first_ ? x.At({n, t, k}) : x.At({t, n, k})) * w.At({d, g, k});
      });
      if (ctx_.has_input(3)) sum = sum + ctx_.in(3).At({d, g});
      if (ctx_.has_input(3) && gate < recurrent_bias_gates) sum = sum + RecurrentBias(direction, g);
      b.Store(projection_, {t, n, g}, sum);
    });
  }
}

E Recurrent::RecurrentBias(int direction, E g) {
  Builder& b = ctx_.b();
  if (!ctx_.has_input(3)) return b.F(0, type_);
  return ctx_.in(3).At({b.I(direction), g + b.I(gates_) * hidden_});
}

void Recurrent::ForEachGate(int first, int last,
                            const std::function<void(E n, const Gate& gate)>& body) {
  Builder& b = ctx_.b();
  const E begin = b.I(first) * hidden_, count = b.I(last - first) * hidden_;
  if (!projected_) {
    b.ParallelForAll(std::vector<E>{batch_, count},
                     [&](std::span<const E> i) { body(i[0], {begin + i[1], {}, {}}); });
    return;
  }
  const E size = ctx_.in(2).dim(3);
  b.ParallelForAll(std::vector<E>{batch_, count / size, size}, [&](std::span<const E> i) {
    const E block = begin / size + i[1];
    body(i[0], {block * size + i[2], block, i[2]});
  });
}

E Recurrent::Recur(int direction, B state, E n, const Gate& gate,
                   const std::function<E(E)>& scale) {
  Builder& b = ctx_.b();
  const E d = b.I(direction);
  const E sum = b.Reduce(BinaryOp::kAdd, b.F(0, type_), hidden_, [&](E k) {
    const E value = scale ? scale(k) * state.At({n, k}) : state.At({n, k});
    const B r = ctx_.in(2);
    return value *
           Cast(projected_ ? r.At({d, gate.block, k, gate.lane}) : r.At({d, gate.row, k}), type_);
  });
  if (!ctx_.has_input(8)) return sum;
  return sum * ctx_.in(8).At({ctx_.input(8).dims[0].is(1) ? b.I(0) : gate.row});
}

E Recurrent::Projection(int direction, E t, E n, E g) const {
  if (!projected_) return projection_.At({t, n, g});
  const E at = ctx_.b().I(direction) * ctx_.b().I(gates_) * hidden_ + g;
  return batch_first_ ? ctx_.in(0).At({n, t, at}) : ctx_.in(0).At({t, n, at});
}

void Recurrent::ForEachStep(int direction, const std::function<void(const Step&)>& phases,
                            const std::function<E(const Step&, E, E)>& update, B state) {
  Builder& b = ctx_.b();
  const B y = ctx_.out(0);
  // Nothing is left to do behind the end of the longest sequence.
  const E steps =
      ctx_.has_input(4)
          ? b.Let(b.Reduce(BinaryOp::kMax, b.I(0), batch_, [&](E n) { return Length(n); }), "steps")
          : time_;
  b.For(
      steps,
      [&](E s) {
        const auto at_time = [&](E n, E g) {
          E t = Time(direction, s, n);
          if (ctx_.has_input(4))
            t = Max(t, b.I(0));  // a sample that has ended: the value is not used
          return Projection(direction, t, n, g);
        };
        const Step step{s, at_time};
        phases(step);
        b.ParallelForAll(std::vector<E>{batch_, hidden_}, [&](std::span<const E> i) {
          const E n = i[0];
          const E h = i[1];
          const auto body = [&] {
            const E value = b.Let(update(step, n, h), "h");
            b.Store(state, {n, h}, value);
            if (!y.valid()) return;
            const E t = Time(direction, s, n);
            const E d = b.I(direction);
            b.Store(y, batch_first_ ? std::vector<E>{n, t, d, h} : std::vector<E>{t, d, n, h},
                    value);
          };
          if (ctx_.has_input(4)) {
            b.If(s < Length(n), body);
          } else {
            body();
          }
        });
      },
      "step");
}

}  // namespace quench::ops
