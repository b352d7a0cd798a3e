#include "common/ops/recurrent_common.h"

namespace quench::ops {
namespace {

absl::Status InferGRU(InferContext& ctx) {
  return InferRecurrent(ctx, /*gates=*/3, /*activations=*/2);
}

// Gates in the order update, reset, hidden. Equations: ONNX GRU. With `linear_before_reset` the
// reset gate scales the product with R, else the state that goes into it.
void LowerGruDirection(LowerContext& ctx, Recurrent& net, int direction, B hidden, B gates) {
  Builder& b = ctx.b();
  const Activation f = net.ActivationOf(direction, 0, 2);
  const Activation g = net.ActivationOf(direction, 1, 2);
  const bool linear = ctx.node().Int("linear_before_reset", 0) != 0;
  const E size = net.hidden();
  const E first = b.I(2) * size;  // rows of the hidden gate
  net.LoadState(direction, 5, hidden);
  net.ProjectInputs(direction, linear ? 2 : 3);
  // The products of all gates first, then what is made of them: loops of nothing but sums are fast.
  const auto phases = [&](const Recurrent::Step& step) {
    net.ForEachGate(0, linear ? 3 : 2, [&](E n, const Recurrent::Gate& gate) {
      b.Store(gates, {n, gate.row}, net.Recur(direction, hidden, n, gate));
    });
    b.ParallelForAll(std::vector<E>{net.batch(), first}, [&](std::span<const E> i) {
      b.Store(gates, i, f(step.projected(i[0], i[1]) + gates.At(i)));
    });
    if (linear) return;
    net.ForEachGate(2, 3, [&](E n, const Recurrent::Gate& gate) {
      const auto reset = [&](E k) { return gates.At({n, size + k}); };
      b.Store(gates, {n, gate.row}, net.Recur(direction, hidden, n, gate, reset));
    });
  };
  const auto update = [&](const Recurrent::Step& step, E n, E unit) {
    const E row = first + unit;
    const E recurrent = linear ? gates.At({n, size + unit}) *
                                     (gates.At({n, row}) + net.RecurrentBias(direction, row))
                               : gates.At({n, row});
    const E candidate = g(step.projected(n, row) + recurrent);
    const E keep = b.Let(gates.At({n, unit}), "keep");
    return (b.F(1, net.type()) - keep) * candidate + keep * hidden.At({n, unit});
  };
  net.ForEachStep(direction, phases, update, hidden);
  net.StoreState(direction, 1, hidden);
}

absl::Status LowerGRU(LowerContext& ctx) {
  Recurrent net(ctx, 3);
  const B hidden = net.MakeState("hidden");
  const B gates = net.MakeScratch("gates", {net.batch(), ctx.b().I(3) * net.hidden()});
  for (int d = 0; d < net.directions(); ++d) LowerGruDirection(ctx, net, d, hidden, gates);
  return absl::OkStatus();
}

OpDef DefineGru() {
  OpDef op = {.name = "GRU",
              .summary = "gated recurrent unit over a sequence",
              .min_inputs = 3,
              .max_inputs = 6,
              .min_outputs = 0,
              .max_outputs = 2,
              .attributes = RecurrentAttributes(),
              .work = WorkKind::kRecurrent,
              .infer = InferGRU,
              .macs = RecurrentMacs,
              .lower = LowerGRU};
  op.attributes.push_back({"linear_before_reset", AttributeSpec::kInt});
  return op;
}

}  // namespace

const OpDef& GRUOp() {
  static const OpDef op = DefineGru();
  return op;
}

const OpDef& QGruOp() {
  static const OpDef op = ProjectedOp(DefineGru(), "q.gru");
  return op;
}

}  // namespace quench::ops
