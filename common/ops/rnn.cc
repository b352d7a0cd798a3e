#include "common/ops/recurrent_common.h"

namespace quench::ops {
namespace {

absl::Status InferRNN(InferContext& ctx) {
  return InferRecurrent(ctx, /*gates=*/1, /*activations=*/1);
}

absl::Status LowerRNN(LowerContext& ctx) {
  Builder& b = ctx.b();
  Recurrent net(ctx, 1);
  const B hidden = net.MakeState("hidden");
  const B sums = net.MakeState("sums");
  for (int d = 0; d < net.directions(); ++d) {
    const Activation f = net.ActivationOf(d, 0, 1);
    net.LoadState(d, 5, hidden);
    net.ProjectInputs(d, 1);
    const auto phases = [&](const Recurrent::Step&) {
      net.ForEachGate(0, 1, [&](E n, const Recurrent::Gate& gate) {
        b.Store(sums, {n, gate.row}, net.Recur(d, hidden, n, gate));
      });
    };
    const auto update = [&](const Recurrent::Step& step, E n, E h) {
      return f(step.projected(n, h) + sums.At({n, h}));
    };
    net.ForEachStep(d, phases, update, hidden);
    net.StoreState(d, 1, hidden);
  }
  return absl::OkStatus();
}

}  // namespace

const OpDef& RNNOp() {
  static const OpDef op = {.name = "RNN",
                           .summary = "simple recurrent layer over a sequence",
                           .min_inputs = 3,
                           .max_inputs = 6,
                           .min_outputs = 0,
                           .max_outputs = 2,
                           .attributes = RecurrentAttributes(),
                           .work = WorkKind::kRecurrent,
                           .infer = InferRNN,
                           .macs = RecurrentMacs,
                           .lower = LowerRNN};
  return op;
}

const OpDef& QRnnOp() {
  static const OpDef op = ProjectedOp(RNNOp(), "q.rnn");
  return op;
}

}  // namespace quench::ops
