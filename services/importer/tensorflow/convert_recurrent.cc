// Cells of recurrent layers as one operator.
#include "common/base/status.h"
#include "services/importer/tensorflow/converters.h"

namespace quench::importer::tensorflow_ops {
namespace {

constexpr int64_t kMaxSteps = 1024;  // each becomes nodes of its own

struct LstmWeights {
  ValueId w, in_peephole, forget_peephole, out_peephole, b;
};

// Results of a step of an LSTM, in the order of its outputs.
enum LstmOutput { kIn, kState, kForget, kOut, kCandidate, kSquashed, kHidden, kLstmOutputs };

std::vector<ValueId> LstmStep(TfNode& n, ValueId x, ValueId state, ValueId hidden,
                              const LstmWeights& weights) {
  Converter& c = n.c;
  const DataType dtype = c.type(x).dtype;
  const ValueId joined = n.Emit("Concat", {x, hidden}, {{"axis", int64_t{1}}});
  const ValueId sums = n.Emit("Add", {n.Emit("MatMul", {joined, weights.w}), weights.b});
  std::vector<ValueId> parts =
      c.EmitMany("Split", {sums}, 4, {{"axis", int64_t{1}}, {"num_outputs", int64_t{4}}});
  // Gates lie as input, candidate, forget, output; since version 2 as input, forget, candidate, output.
  const bool v2 = c.node().op == "BlockLSTMV2";
  if (v2) std::swap(parts[1], parts[2]);
  const bool peephole = n.Flag("use_peephole");
  const auto gate = [&](ValueId sum, ValueId from, ValueId weight) {
    if (peephole) sum = n.Emit("Add", {sum, n.Emit("Mul", {from, weight})});
    return n.Emit("Sigmoid", {sum});
  };
  std::vector<ValueId> out(kLstmOutputs, kNone);
  ValueId forget = parts[2];
  const double bias = v2 ? 0 : n.Float("forget_bias", 1);
  if (bias != 0) forget = n.Emit("Add", {forget, c.Scalar(dtype, bias)});
  out[kIn] = gate(parts[0], state, weights.in_peephole);
  out[kForget] = gate(forget, state, weights.forget_peephole);
  out[kCandidate] = n.Emit("Tanh", {parts[1]});
  ValueId next = n.Emit(
      "Add", {n.Emit("Mul", {out[kCandidate], out[kIn]}), n.Emit("Mul", {state, out[kForget]})});
  const double clip = n.Float("cell_clip", c.node().op == "BlockLSTMV2" ? 0 : 3);
  if (clip > 0) next = n.Emit("Clip", {next, c.Scalar(dtype, -clip), c.Scalar(dtype, clip)});
  out[kState] = next;
  out[kOut] = gate(parts[3], next, weights.out_peephole);
  out[kSquashed] = n.Emit("Tanh", {next});
  out[kHidden] = n.Emit("Mul", {out[kSquashed], out[kOut]});
  return out;
}

}  // namespace

absl::Status LstmBlockCell(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 8));
  return c.FinalValues(
      LstmStep(n, c.in(0), c.in(1), c.in(2), {c.in(3), c.in(4), c.in(5), c.in(6), c.in(7)}));
}

// All steps of [time, batch, width], unrolled.
absl::Status BlockLstm(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 9));
  QUENCH_RETURN_IF_ERROR(c.RequireRank(1));
  const Type type = c.type(c.in(1));
  if (type.rank() != 3) return c.Error(fmt::format("its input has rank {}", type.rank()));
  if (!type.dims[0].is_static() || type.dims[0].value() > kMaxSteps || type.dims[0].value() < 1)
    return c.Unsupported(
        fmt::format("the number of steps is not known, or not 1 to {}", kMaxSteps));
  const int64_t steps = type.dims[0].value();
  const std::optional<std::vector<int64_t>> most = n.KnownInts(0);
  if (!most || most->size() != 1 || (*most)[0] < steps)
    return c.Unsupported("seq_len_max may be less than the number of steps");
  std::vector<std::vector<ValueId>> all(kLstmOutputs);
  ValueId state = c.in(2), hidden = c.in(3);
  for (int64_t i = 0; i < steps; ++i) {
    const ValueId x = n.Emit("Gather", {c.in(1), c.Scalar(DataType::kI64, static_cast<double>(i))},
                             {{"axis", int64_t{0}}});
    const std::vector<ValueId> out =
        LstmStep(n, x, state, hidden, {c.in(4), c.in(5), c.in(6), c.in(7), c.in(8)});
    state = out[kState];
    hidden = out[kHidden];
    for (size_t k = 0; k < out.size(); ++k) {
      if (c.IsUsed(static_cast<int>(k)))
        all[k].push_back(n.Emit("Unsqueeze", {out[k], c.Ints({0})}));
    }
  }
  std::vector<ValueId> results;
  for (const std::vector<ValueId>& parts : all)
    results.push_back(parts.empty() ? kNone : n.Emit("Concat", parts, {{"axis", int64_t{0}}}));
  return c.FinalValues(results);
}

absl::Status GruBlockCell(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 6));
  const ValueId x = c.in(0), hidden = c.in(1);
  const auto dense = [&](ValueId a, ValueId b, int w, int bias) {
    const ValueId joined = n.Emit("Concat", {a, b}, {{"axis", int64_t{1}}});
    return n.Emit("Add", {n.Emit("MatMul", {joined, c.in(w)}), c.in(bias)});
  };
  const std::vector<ValueId> gates =
      c.EmitMany("Split", {n.Emit("Sigmoid", {dense(x, hidden, 2, 4)})}, 2,
                 {{"axis", int64_t{1}}, {"num_outputs", int64_t{2}}});
  const ValueId candidate = n.Emit("Tanh", {dense(x, n.Emit("Mul", {hidden, gates[0]}), 3, 5)});
  const ValueId one = c.Scalar(c.type(x).dtype, 1);
  const ValueId next = n.Emit("Add", {n.Emit("Mul", {n.Emit("Sub", {one, gates[1]}), candidate}),
                                      n.Emit("Mul", {gates[1], hidden})});
  return c.FinalValues({gates[0], gates[1], candidate, next});
}

}  // namespace quench::importer::tensorflow_ops
