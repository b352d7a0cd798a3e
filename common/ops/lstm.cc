#include "common/ops/recurrent_common.h"

namespace quench::ops {
namespace {

absl::Status InferLSTM(InferContext& ctx) {
  return InferRecurrent(ctx, /*gates=*/4, /*activations=*/3);
}

// Gates in the order input, output, forget, cell. Equations: ONNX LSTM.
void LowerDirection(LowerContext& ctx, Recurrent& net, int direction, B hidden, B cell, B gates) {
  Builder& b = ctx.b();
  const Activation f = net.ActivationOf(direction, 0, 3);
  const Activation g = net.ActivationOf(direction, 1, 3);
  const Activation h = net.ActivationOf(direction, 2, 3);
  const bool coupled = ctx.node().Int("input_forget", 0) != 0;
  const E size = net.hidden();
  net.LoadState(direction, 5, hidden);
  net.LoadState(direction, 6, cell);
  net.ProjectInputs(direction, 4);
  const auto phases = [&](const Recurrent::Step&) {
    net.ForEachGate(0, 4, [&](E n, const Recurrent::Gate& gate) {
      b.Store(gates, {n, gate.row}, net.Recur(direction, hidden, n, gate));
    });
  };
  const auto update = [&](const Recurrent::Step& step, E n, E unit) {
    const auto gate = [&](int index) {
      const E at = b.I(index) * size + unit;
      return step.projected(n, at) + gates.At({n, at});
    };
    const auto peephole = [&](int index, E value) {
      if (!ctx.has_input(7)) return b.F(0, net.type());
      return ctx.in(7).At({b.I(direction), b.I(index) * size + unit}) * value;
    };
    const E old = b.Let(cell.At({n, unit}), "old");
    const E input = b.Let(f(gate(0) + peephole(0, old)), "input");
    const E forget =
        coupled ? b.F(1, net.type()) - input : b.Let(f(gate(2) + peephole(2, old)), "forget");
    const E now = b.Let(forget * old + input * g(gate(3)), "now");
    const E output = f(gate(1) + peephole(1, now));
    b.Store(cell, {n, unit}, now);
    return output * h(now);
  };
  net.ForEachStep(direction, phases, update, hidden);
  net.StoreState(direction, 1, hidden);
  net.StoreState(direction, 2, cell);
}

absl::Status LowerLSTM(LowerContext& ctx) {
  Recurrent net(ctx, 4);
  const B hidden = net.MakeState("hidden");
  const B cell = net.MakeState("cell");
  const B gates = net.MakeScratch("gates", {net.batch(), ctx.b().I(4) * net.hidden()});
  for (int d = 0; d < net.directions(); ++d) LowerDirection(ctx, net, d, hidden, cell, gates);
  return absl::OkStatus();
}

OpDef Define() {
  OpDef op = {.name = "LSTM",
              .summary = "long short-term memory over a sequence",
              .min_inputs = 3,
              .max_inputs = 8,
              .min_outputs = 0,
              .max_outputs = 3,
              .attributes = RecurrentAttributes(),
              .work = WorkKind::kRecurrent,
              .infer = InferLSTM,
              .macs = RecurrentMacs,
              .lower = LowerLSTM};
  op.attributes.push_back({"input_forget", AttributeSpec::kInt});
  return op;
}

}  // namespace

const OpDef& LSTMOp() {
  static const OpDef op = Define();
  return op;
}

const OpDef& QLstmOp() {
  static const OpDef op = ProjectedOp(Define(), "q.lstm");
  return op;
}

}  // namespace quench::ops
