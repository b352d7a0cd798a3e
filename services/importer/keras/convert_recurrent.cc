// Layers with states. Plain ones are the catalogue's LSTM, GRU and RNN; with a mask, or an activation that
// these lack, a layer becomes nodes for each of its steps.
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "common/base/status.h"
#include "services/importer/keras/converters.h"

namespace quench::importer::keras_layers {
namespace {

// The options of a layer of `gates` gates.
struct Recurrence {
  int64_t units = 0, gates = 0, steps = -1;
  bool backwards = false, sequences = false, reset_after = false;
  std::vector<ValueId> states;  // the first ones; none: zeros
};

absl::StatusOr<Recurrence> RecurrenceOf(KerasNode& n, int64_t gates) {
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 3));
  Recurrence r{n.Int("units"),
               gates,
               n.Size(n.in(0), 1),
               n.Flag("go_backwards"),
               n.Flag("return_sequences"),
               n.Flag("reset_after"),
               {}};
  if (n.c.Rank(n.in(0)) != 3)
    return n.c.Error(fmt::format("its input has rank {}, expected 3", n.c.Rank(n.in(0))));
  if (r.units < 1 || r.units > 1 << 24) return n.c.Error(fmt::format("units is {}", r.units));
  for (const char* key : {"stateful", "time_major"}) {
    if (n.Flag(key)) return n.c.Unsupported(fmt::format("`{}` is set", key));
  }
  const int64_t width = n.Size(n.in(0), 2), all = gates * r.units;
  QUENCH_RETURN_IF_ERROR(n.RequireDims("kernel", {width, all}));
  QUENCH_RETURN_IF_ERROR(n.RequireDims("recurrent_kernel", {r.units, all}));
  if (n.Weight("bias") != kNone)
    QUENCH_RETURN_IF_ERROR(n.RequireDims("bias", r.reset_after && gates == 3
                                                     ? std::vector<int64_t>{2, all}
                                                     : std::vector<int64_t>{all}));
  const int states = gates == 4 ? 2 : 1;
  if (n.count() != 1 && n.count() != 1 + states)
    return n.c.Error(fmt::format("has {} initial states, expected {}", n.count() - 1, states));
  for (int i = 1; i < n.count(); ++i) r.states.push_back(n.in(i));
  return r;
}

// The names of ONNX's recurrent layers; "" for what they lack.
std::string OnnxActivation(const std::string& name) {
  if (name == "sigmoid") return "Sigmoid";
  if (name == "tanh") return "Tanh";
  if (name == "relu") return "Relu";
  return "";
}

// ---- As one node ----

// [rows, gates * units] -> [1, gates * units, rows], the gates in the order of `order`.
ValueId Gates(KerasNode& n, ValueId weight, int64_t units, const std::vector<int64_t>& order) {
  std::vector<ValueId> parts;
  for (const int64_t gate : order)
    parts.push_back(n.Slice(weight, 1, gate * units, (gate + 1) * units));
  const ValueId ordered = std::is_sorted(order.begin(), order.end())
                              ? weight
                              : n.Emit("Concat", parts, {{"axis", int64_t{1}}});
  return n.Unsqueeze(n.Transpose(ordered, {1, 0}), {0});
}

ValueId OnnxBias(KerasNode& n, const Recurrence& r, const std::vector<int64_t>& order) {
  const ValueId bias = n.Weight("bias");
  const int64_t all = r.gates * r.units;
  if (bias == kNone) return kNone;
  if (n.c.Rank(bias) == 2) return n.Reshape(bias, {1, 2 * all});
  const ValueId zeros = n.c.AddConstant(
      Tensor::Of(DataType::kF32, {1, all}, std::vector<float>(static_cast<size_t>(all), 0)));
  ValueId row = n.Reshape(bias, {1, all});
  if (!std::is_sorted(order.begin(), order.end()))
    row = n.Squeeze(Gates(n, row, r.units, order), {2});
  return n.Emit("Concat", {row, n.Cast(zeros, n.c.type(row).dtype)}, {{"axis", int64_t{1}}});
}

absl::Status FinishAsNode(KerasNode& n, const Recurrence& r, const char* op,
                          const std::vector<int64_t>& order,
                          const std::vector<std::string>& activations) {
  const ValueId x = n.Transpose(n.Float(n.in(0)), {1, 0, 2});
  std::vector<ValueId> inputs = {x, Gates(n, n.Weight("kernel"), r.units, order),
                                 Gates(n, n.Weight("recurrent_kernel"), r.units, order),
                                 OnnxBias(n, r, order), kNone};
  for (const ValueId state : r.states) inputs.push_back(n.Unsqueeze(state, {0}));
  Attributes attributes = {{"hidden_size", r.units},
                           {"direction", std::string(r.backwards ? "reverse" : "forward")},
                           {"activations", activations}};
  if (r.gates == 3) attributes["linear_before_reset"] = int64_t{r.reset_after};
  const int count = r.gates == 4 ? 3 : 2;
  const std::vector<ValueId> all = n.c.EmitMany(op, inputs, count, std::move(attributes));
  std::vector<ValueId> outputs;
  for (int i = 1; i < count; ++i) outputs.push_back(n.Squeeze(all[static_cast<size_t>(i)], {0}));
  ValueId y = outputs[0];
  if (r.sequences) {
    y = n.Transpose(n.Squeeze(all[0], {1}), {1, 0, 2});
    if (r.backwards) y = n.Slice(y, 1, -1, -kToEnd, -1);
  }
  outputs.insert(outputs.begin(), y);
  return n.c.FinalValues(outputs);
}

// ---- Step by step ----

// (gates of the input, states before; kNone: zeros) -> states behind, the output first.
using StepFunction =
    std::function<absl::StatusOr<std::vector<ValueId>>(ValueId, const std::vector<ValueId>&)>;

// `projected` has a step in each index of axis 1.
absl::Status FinishSteps(KerasNode& n, const Recurrence& r, ValueId projected, size_t states,
                         const StepFunction& step) {
  if (r.steps < 1 || r.steps > kMaxSteps)
    return n.c.Unsupported(
        r.steps < 0 ? std::string("its steps, known only at run time, would be nodes of their own")
                    : fmt::format("has {} steps, at most {} become nodes of their own", r.steps,
                                  kMaxSteps));
  std::vector<ValueId> now(states, kNone), outputs;
  for (size_t i = 0; i < r.states.size(); ++i) now[i] = r.states[i];
  ValueId last = kNone;
  for (int64_t i = 0; i < r.steps; ++i) {
    const int64_t at = r.backwards ? r.steps - 1 - i : i;
    const ValueId gates = n.Squeeze(n.Slice(projected, 1, at, at + 1), {1});
    QUENCH_ASSIGN_OR_RETURN(std::vector<ValueId> next, step(gates, now));
    ValueId output = next[0];
    if (n.mask() != kNone) {  // a step that does not count changes nothing
      const ValueId counts = n.Slice(n.mask(), 1, at, at + 1);
      const auto keep = [&](ValueId value, ValueId old) {
        return n.Emit("Where", {counts, value, old == kNone ? n.Scalar(value, 0) : old});
      };
      output = keep(output, n.Flag("zero_output_for_mask") ? kNone : last);
      for (size_t k = 0; k < states; ++k) next[k] = keep(next[k], now[k]);
    }
    now = std::move(next);
    last = output;
    if (r.sequences) outputs.push_back(n.Unsqueeze(output, {1}));
  }
  std::vector<ValueId> results = {r.sequences ? n.Emit("Concat", outputs, {{"axis", int64_t{1}}})
                                              : last};
  results.insert(results.end(), now.begin(), now.end());
  return n.c.FinalValues(results);
}

// The input's part of all gates of all steps, [batch, steps, gates * units].
ValueId Project(KerasNode& n, ValueId bias) {
  const ValueId product = n.Emit("MatMul", {n.Float(n.in(0)), n.Weight("kernel")});
  return bias == kNone ? product : n.Emit("Add", {product, bias});
}

ValueId GateOf(KerasNode& n, ValueId gates, int64_t size, int64_t gate, int64_t axis = 1) {
  return n.Slice(gates, axis, gate * size, (gate + 1) * size);
}

// Gates i, f, c, o along `axis`: the same for LSTM and ConvLSTM.
absl::StatusOr<std::vector<ValueId>> LstmStep(KerasNode& n, ValueId gates, ValueId cell,
                                              int64_t size) {
  QUENCH_ASSIGN_OR_RETURN(const ValueId input,
                          n.Activate(GateOf(n, gates, size, 0), "recurrent_activation"));
  QUENCH_ASSIGN_OR_RETURN(const ValueId candidate, n.Activate(GateOf(n, gates, size, 2)));
  QUENCH_ASSIGN_OR_RETURN(const ValueId output,
                          n.Activate(GateOf(n, gates, size, 3), "recurrent_activation"));
  ValueId now = n.Emit("Mul", {input, candidate});
  if (cell != kNone) {
    QUENCH_ASSIGN_OR_RETURN(const ValueId forget,
                            n.Activate(GateOf(n, gates, size, 1), "recurrent_activation"));
    now = n.Emit("Add", {n.Emit("Mul", {forget, cell}), now});
  }
  QUENCH_ASSIGN_OR_RETURN(const ValueId shown, n.Activate(now));
  return std::vector<ValueId>{n.Emit("Mul", {output, shown}), now};
}

absl::StatusOr<std::vector<ValueId>> GruStep(KerasNode& n, const Recurrence& r, ValueId gates,
                                             ValueId hidden) {
  const ValueId kernel = n.Weight("recurrent_kernel");
  ValueId recurrent = kNone;  // of all gates, or of those two that need no reset
  if (hidden != kNone) {
    const ValueId part = r.reset_after ? kernel : n.Slice(kernel, 1, 0, 2 * r.units);
    recurrent = n.Emit("MatMul", {hidden, part});
  }
  if (r.reset_after && n.Weight("bias") != kNone) {
    const ValueId bias = n.Slice(n.Weight("bias"), 0, 1, 2);
    recurrent = recurrent == kNone ? bias : n.Emit("Add", {recurrent, bias});
  }
  const auto sum = [&](int64_t gate) {
    const ValueId own = GateOf(n, gates, r.units, gate);
    return recurrent == kNone ? own : n.Emit("Add", {own, GateOf(n, recurrent, r.units, gate)});
  };
  QUENCH_ASSIGN_OR_RETURN(const ValueId update, n.Activate(sum(0), "recurrent_activation"));
  QUENCH_ASSIGN_OR_RETURN(const ValueId reset, n.Activate(sum(1), "recurrent_activation"));
  ValueId inner = GateOf(n, gates, r.units, 2);
  if (r.reset_after && recurrent != kNone) {
    inner = n.Emit("Add", {inner, n.Emit("Mul", {reset, GateOf(n, recurrent, r.units, 2)})});
  } else if (!r.reset_after && hidden != kNone) {
    inner = n.Emit(
        "Add",
        {inner, n.Emit("MatMul", {n.Emit("Mul", {reset, hidden}), GateOf(n, kernel, r.units, 2)})});
  }
  QUENCH_ASSIGN_OR_RETURN(const ValueId candidate, n.Activate(inner));
  ValueId now = n.Emit("Mul", {n.Emit("Sub", {n.Scalar(update, 1), update}), candidate});
  if (hidden != kNone) now = n.Emit("Add", {n.Emit("Mul", {update, hidden}), now});
  return std::vector<ValueId>{now};
}

}  // namespace

absl::Status Lstm(Converter& c) {
  KerasNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const Recurrence r, RecurrenceOf(n, 4));
  const std::string f = OnnxActivation(n.Text("recurrent_activation", "sigmoid"));
  const std::string g = OnnxActivation(n.Text("activation", "tanh"));
  if (!f.empty() && !g.empty() && n.mask() == kNone)
    return FinishAsNode(n, r, "LSTM", {0, 3, 1, 2}, {f, g, g});
  const ValueId projected = Project(n, n.Weight("bias"));
  return FinishSteps(
      n, r, projected, 2,
      [&](ValueId gates,
          const std::vector<ValueId>& states) -> absl::StatusOr<std::vector<ValueId>> {
        if (states[0] != kNone)
          gates =
              n.Emit("Add", {gates, n.Emit("MatMul", {states[0], n.Weight("recurrent_kernel")})});
        return LstmStep(n, gates, states[1], r.units);
      });
}

absl::Status Gru(Converter& c) {
  KerasNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const Recurrence r, RecurrenceOf(n, 3));
  const std::string f = OnnxActivation(n.Text("recurrent_activation", "sigmoid"));
  const std::string g = OnnxActivation(n.Text("activation", "tanh"));
  if (!f.empty() && !g.empty() && n.mask() == kNone)
    return FinishAsNode(n, r, "GRU", {0, 1, 2}, {f, g});
  ValueId bias = n.Weight("bias");
  if (bias != kNone && r.reset_after) bias = n.Slice(bias, 0, 0, 1);
  return FinishSteps(n, r, Project(n, bias), 1,
                     [&](ValueId gates, const std::vector<ValueId>& states) {
                       return GruStep(n, r, gates, states[0]);
                     });
}

absl::Status SimpleRnn(Converter& c) {
  KerasNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const Recurrence r, RecurrenceOf(n, 1));
  const std::string f = OnnxActivation(n.Text("activation", "tanh"));
  if (!f.empty() && n.mask() == kNone) return FinishAsNode(n, r, "RNN", {0}, {f});
  return FinishSteps(
      n, r, Project(n, n.Weight("bias")), 1,
      [&](ValueId sum, const std::vector<ValueId>& states) -> absl::StatusOr<std::vector<ValueId>> {
        if (states[0] != kNone)
          sum = n.Emit("Add", {sum, n.Emit("MatMul", {states[0], n.Weight("recurrent_kernel")})});
        QUENCH_ASSIGN_OR_RETURN(const ValueId now, n.Activate(sum));
        return std::vector<ValueId>{now};
      });
}

// [batch, steps, sizes..., channels]: all steps' inputs are convolved at once.
absl::Status ConvLstm(Converter& c) {
  KerasNode n(c);
  const std::string& name = c.node().op;
  const int spatial = name[name.size() - 2] - '0';
  const auto axes = static_cast<size_t>(spatial);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(spatial + 3));
  if (n.Flag("stateful")) return c.Unsupported("`stateful` is set");
  const ValueId x = n.Float(n.in(0));
  Recurrence r;
  r.steps = n.Size(x, 1);
  r.backwards = n.Flag("go_backwards");
  r.sequences = n.Flag("return_sequences");
  const int64_t filters = n.Int("filters");
  std::vector<int64_t> order = {spatial + 1, spatial}, folded = {-1}, unfolded = {-1, r.steps};
  for (int i = 0; i < spatial; ++i) order.push_back(i);
  for (int i = 2; i < spatial + 3; ++i) {
    folded.push_back(n.Size(x, i));
    if (folded.back() < 1)
      return c.Unsupported(fmt::format("the size of its axis {} is known only at run time", i));
  }
  if (r.steps < 1) return c.Unsupported("the number of its steps is known only at run time");
  std::vector<int64_t> dims = n.Ints("kernel_size", axes, -1);
  std::vector<int64_t> recurrent = dims;
  dims.insert(dims.end(), {n.ChannelsFirst() ? folded[1] : folded.back(), 4 * filters});
  recurrent.insert(recurrent.end(), {filters, 4 * filters});
  QUENCH_RETURN_IF_ERROR(n.RequireDims("kernel", dims));
  QUENCH_RETURN_IF_ERROR(n.RequireDims("recurrent_kernel", recurrent));
  const std::string padding = n.Text("padding", "valid") == "same" ? "SAME_UPPER" : "VALID";
  std::vector<ValueId> inputs = {n.ToFirst(n.Reshape(x, folded), spatial),
                                 n.Transpose(n.Weight("kernel"), order)};
  if (n.Weight("bias") != kNone) inputs.push_back(n.Weight("bias"));
  const ValueId convolved = n.Emit("Conv", inputs,
                                   {{"strides", n.Ints("strides", axes)},
                                    {"dilations", n.Ints("dilation_rate", axes)},
                                    {"auto_pad", padding}});
  for (int i = 1; i < spatial + 2; ++i) unfolded.push_back(n.Size(convolved, i));
  const ValueId kernel = n.Transpose(n.Weight("recurrent_kernel"), order);
  const auto step =
      [&](ValueId gates,
          const std::vector<ValueId>& states) -> absl::StatusOr<std::vector<ValueId>> {
    if (states[0] != kNone)
      gates = n.Emit("Add", {gates, n.Emit("Conv", {states[0], kernel},
                                           {{"auto_pad", std::string("SAME_UPPER")}})});
    QUENCH_ASSIGN_OR_RETURN(std::vector<ValueId> next, LstmStep(n, gates, states[1], filters));
    return next;
  };
  if (n.ChannelsFirst() || c.num_outputs() > 1)
    return c.Unsupported("its channels are first, or its states are outputs");
  // Outputs have channels first until all steps are done.
  r.sequences = true;
  const ValueId projected = n.Reshape(convolved, unfolded);
  std::vector<ValueId> now(2, kNone), outputs;
  if (r.steps > kMaxSteps)
    return c.Unsupported(
        fmt::format("has {} steps, at most {} become nodes of their own", r.steps, kMaxSteps));
  for (int64_t i = 0; i < r.steps; ++i) {
    const int64_t at = r.backwards ? r.steps - 1 - i : i;
    QUENCH_ASSIGN_OR_RETURN(now, step(n.Squeeze(n.Slice(projected, 1, at, at + 1), {1}), now));
    outputs.push_back(n.Unsqueeze(n.FromFirst(now[0], spatial), {1}));
  }
  if (!n.Flag("return_sequences")) return n.Finish(n.Squeeze(outputs.back(), {1}));
  return n.Finish(n.Emit("Concat", outputs, {{"axis", int64_t{1}}}));
}

// ---- What the reader makes of wrappers ----

// [batch, steps, ...] -> [batch * steps, ...]
absl::Status FoldSteps(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  if (c.Rank(n.in(0)) < 3)
    return c.Error(fmt::format("its input has rank {}, 3 is the least", c.Rank(n.in(0))));
  std::vector<int64_t> shape = {-1};
  for (int i = 2; i < c.Rank(n.in(0)); ++i) {
    shape.push_back(n.Size(n.in(0), i));
    if (shape.back() < 0)
      return c.Unsupported(fmt::format("the size of its axis {} is known only at run time", i));
  }
  return n.Finish(n.Reshape(n.in(0), shape));
}

// [batch * steps, ...] -> [batch, steps, ...], as input 1 has them.
absl::Status UnfoldSteps(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(2, 2));
  std::vector<int64_t> rest;
  for (int i = 1; i < c.Rank(n.in(0)); ++i) {
    rest.push_back(n.Size(n.in(0), i));
    if (rest.back() < 0)
      return c.Unsupported(fmt::format("the size of axis {} is known only at run time", i));
  }
  const int64_t steps = n.Size(n.in(1), 1);
  if (steps > 0) {
    rest.insert(rest.begin(), {-1, steps});
    return n.Finish(n.Reshape(n.in(0), rest));
  }
  const ValueId head = n.Emit("Shape", {n.in(1)}, {{"start", int64_t{0}}, {"end", int64_t{2}}});
  const ValueId shape = n.Emit("Concat", {head, c.Ints(rest)}, {{"axis", int64_t{0}}});
  return n.Finish(n.Emit("Reshape", {n.in(0), shape}));
}

// The layer forwards and the one backwards, whose steps stand in the order in which it took them.
absl::Status MergeDirections(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(2, 2));
  const ValueId forward = n.in(0);
  ValueId backward = n.in(1);
  if (n.Flag("return_sequences")) backward = n.Slice(backward, 1, -1, -kToEnd, -1);
  const std::string mode = n.Text("merge_mode");
  if (mode.empty()) return c.FinalValues({forward, backward});
  if (mode == "concat")
    return n.Finish(n.Emit("Concat", {forward, backward}, {{"axis", int64_t{-1}}}));
  if (mode == "mul") return n.Finish(n.Emit("Mul", {forward, backward}));
  if (mode != "sum" && mode != "ave") return c.Error(fmt::format("merge_mode is `{}`", mode));
  const ValueId sum = n.Emit("Add", {forward, backward});
  return n.Finish(mode == "sum" ? sum : n.Binary("Div", sum, 2));
}

}  // namespace quench::importer::keras_layers
