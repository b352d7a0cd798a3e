// LSTM, GRU and RNN layers: PyTorch stacks layers in one call, with gates in an order of their own.
#include "common/base/status.h"
#include "services/importer/torch/converters.h"

namespace quench::importer::torch_ops {
namespace {

struct LayerKind {
  const char* op;
  std::vector<int64_t> order;  // of PyTorch's gates, as ONNX has them
  Attributes attributes;
};

// The rows of the gates in another order.
ValueId Reordered(AtenNode& n, ValueId weight, const std::vector<int64_t>& order) {
  if (order.size() == 1) return weight;
  const std::vector<ValueId> gates =
      n.c.EmitMany("Split", {weight}, static_cast<int>(order.size()),
                   {{"axis", int64_t{0}}, {"num_outputs", static_cast<int64_t>(order.size())}});
  std::vector<ValueId> parts;
  for (const int64_t gate : order) parts.push_back(gates[static_cast<size_t>(gate)]);
  return n.Emit("Concat", parts, {{"axis", int64_t{0}}});
}

ValueId Stacked(AtenNode& n, const std::vector<ValueId>& directions) {
  std::vector<ValueId> wide;
  for (const ValueId id : directions) wide.push_back(n.Unsqueeze(id, {0}));
  return wide.size() == 1 ? wide[0] : n.Emit("Concat", wide, {{"axis", int64_t{0}}});
}

const std::vector<int64_t>& LstmGates() {
  static const std::vector<int64_t> kOrder = {0, 3, 1, 2};
  return kOrder;
}

absl::Status Recurrent(Converter& c, const LayerKind& kind) {
  AtenNode n(c);
  ValueId x = n.In("input");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "input"));
  std::vector<ValueId> states = n.List("hx"), params = n.List("params");
  const bool lstm = std::string_view(kind.op) == "LSTM";
  const bool has_bias = n.Flag("has_biases", true), bidirectional = n.Flag("bidirectional");
  const int64_t layers = n.Int("num_layers", 1), directions = bidirectional ? 2 : 1;
  const bool batch_first = n.Flag("batch_first"), batched = n.Rank(x) == 3;
  const size_t per = has_bias ? 4 : 2;
  if (states.size() != (lstm ? 2u : 1u) || layers < 1 || layers > 1024 ||
      params.size() != static_cast<size_t>(layers * directions) * per)
    return c.Unsupported(fmt::format("has {} weights for {} layers: projections are not read",
                                     params.size(), layers));
  if (!batched) {
    x = n.Unsqueeze(x, {1});
    for (ValueId& state : states) state = n.Unsqueeze(state, {1});
  } else if (batch_first) {
    x = n.Transpose(x, {1, 0, 2});
  }
  const int64_t hidden = n.SizeAt(params[1], 1);
  std::vector<ValueId> last_h, last_c;
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<ValueId> w, r, b;
    for (int64_t d = 0; d < directions; ++d) {
      const ValueId* p = &params[static_cast<size_t>(layer * directions + d) * per];
      w.push_back(Reordered(n, p[0], kind.order));
      r.push_back(Reordered(n, p[1], kind.order));
      if (has_bias)
        b.push_back(n.Emit("Concat",
                           {Reordered(n, p[2], kind.order), Reordered(n, p[3], kind.order)},
                           {{"axis", int64_t{0}}}));
    }
    const auto initial = [&](ValueId state) {
      return layers == 1 ? state : n.Slice(state, 0, layer * directions, (layer + 1) * directions);
    };
    std::vector<ValueId> inputs = {
        x,     Stacked(n, w),     Stacked(n, r), has_bias ? Stacked(n, b) : kNone,
        kNone, initial(states[0])};
    if (lstm) inputs.push_back(initial(states[1]));
    Attributes attributes = kind.attributes;
    attributes["hidden_size"] = hidden;
    if (bidirectional) attributes["direction"] = std::string("bidirectional");
    if (auto found = attributes.find("activations"); found != attributes.end() && bidirectional) {
      auto names = std::get<std::vector<std::string>>(found->second);
      const std::vector<std::string> once = names;
      names.insert(names.end(), once.begin(), once.end());
      found->second = names;
    }
    const std::vector<ValueId> y = c.EmitMany(kind.op, inputs, lstm ? 3 : 2, attributes);
    last_h.push_back(y[1]);
    if (lstm) last_c.push_back(y[2]);
    x = directions == 1 ? n.Squeeze(y[0], {1})
                        : n.Reshape(n.Transpose(y[0], {0, 2, 1, 3}), {0, 0, 2 * hidden});
  }
  const auto joined = [&](const std::vector<ValueId>& parts) {
    const ValueId all =
        parts.size() == 1 ? parts[0] : n.Emit("Concat", parts, {{"axis", int64_t{0}}});
    return batched ? all : n.Squeeze(all, {1});
  };
  const ValueId y = !batched ? n.Squeeze(x, {1}) : batch_first ? n.Transpose(x, {1, 0, 2}) : x;
  std::vector<ValueId> outputs = {y, joined(last_h)};
  if (lstm) outputs.push_back(joined(last_c));
  return c.FinalValues(outputs);
}

// A layer over a sequence of one step.
absl::Status Cell(Converter& c, const LayerKind& kind) {
  AtenNode n(c);
  const ValueId x = n.In("input"), recurrence = n.In("w_hh");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "input"));
  if (n.Rank(x) != 2) return c.Error(fmt::format("its input has rank {}, expected 2", n.Rank(x)));
  const bool lstm = std::string_view(kind.op) == "LSTM";
  const std::vector<ValueId> states = n.List("hx");
  if (states.size() != (lstm ? 2u : 1u))
    return c.Error(fmt::format("has {} states", states.size()));
  const int64_t hidden = n.SizeAt(recurrence, 1);
  ValueId bias = kNone;
  if (n.Has("b_ih") != n.Has("b_hh")) return c.Unsupported("one bias of two");
  if (n.Has("b_ih"))
    bias = Stacked(
        n, {n.Emit("Concat",
                   {Reordered(n, n.In("b_ih"), kind.order), Reordered(n, n.In("b_hh"), kind.order)},
                   {{"axis", int64_t{0}}})});
  std::vector<ValueId> inputs = {n.Unsqueeze(x, {0}),
                                 Stacked(n, {Reordered(n, n.In("w_ih"), kind.order)}),
                                 Stacked(n, {Reordered(n, recurrence, kind.order)}), bias, kNone};
  for (const ValueId state : states) inputs.push_back(n.Unsqueeze(state, {0}));
  Attributes attributes = kind.attributes;
  attributes["hidden_size"] = hidden;
  const std::vector<ValueId> y = c.EmitMany(kind.op, inputs, lstm ? 3 : 2, attributes);
  std::vector<ValueId> outputs = {n.Squeeze(y[1], {0})};
  if (lstm) outputs.push_back(n.Squeeze(y[2], {0}));
  return c.FinalValues(outputs);
}

}  // namespace

absl::Status Lstm(Converter& c) { return Recurrent(c, {"LSTM", LstmGates(), {}}); }

// oneDNN's kernel, one layer in one direction: time comes first, whatever `batch_first` says of the model.
absl::Status MkldnnRnnLayer(Converter& c) {
  AtenNode n(c);
  static constexpr const char* kModes[] = {"RNN with relu", "RNN with tanh", "LSTM", "GRU"};
  constexpr int64_t kLstm = 2;
  const int64_t mode = n.Int("mode", kLstm);
  if (mode != kLstm) {
    const bool known = mode >= 0 && mode < static_cast<int64_t>(std::size(kModes));
    return c.Unsupported(fmt::format("mode {} ({}): LSTMs are read, which is mode {}", mode,
                                     known ? kModes[mode] : "of no known kind", kLstm));
  }
  if (const auto sizes = n.Ints("batch_sizes"); sizes && !sizes->empty())
    return c.Unsupported("its sequences are packed");
  const std::vector<int64_t>& gates = LstmGates();
  const ValueId recurrence = n.In("weight1");
  ValueId bias = kNone;
  if (n.Flag("has_biases", true)) {
    bias = Stacked(
        n, {n.Emit("Concat",
                   {Reordered(n, n.In("weight2"), gates), Reordered(n, n.In("weight3"), gates)},
                   {{"axis", int64_t{0}}})});
  }
  Attributes attributes = {{"hidden_size", n.SizeAt(recurrence, 1)}};
  if (n.Flag("reverse")) attributes["direction"] = std::string("reverse");
  const std::vector<ValueId> y = c.EmitMany(
      "LSTM",
      {n.In("input"), Stacked(n, {Reordered(n, n.In("weight0"), gates)}),
       Stacked(n, {Reordered(n, recurrence, gates)}), bias, kNone, n.In("hx_"), n.In("cx_")},
      3, attributes);
  return c.FinalValues({n.Squeeze(y[0], {1}), y[1], y[2]});
}

static LayerKind GruLayer() { return {"GRU", {1, 0, 2}, {{"linear_before_reset", int64_t{1}}}}; }

absl::Status Gru(Converter& c) { return Recurrent(c, GruLayer()); }

static LayerKind RnnLayer(bool relu) {
  return {"RNN", {0}, {{"activations", std::vector<std::string>{relu ? "Relu" : "Tanh"}}}};
}

absl::Status Rnn(Converter& c) { return Recurrent(c, RnnLayer(c.node().op == "rnn_relu")); }

// ---- One step ----

absl::Status LstmCell(Converter& c) { return Cell(c, {"LSTM", LstmGates(), {}}); }
absl::Status GruCell(Converter& c) { return Cell(c, GruLayer()); }
absl::Status RnnCell(Converter& c) { return Cell(c, RnnLayer(c.node().op == "rnn_relu_cell")); }

}  // namespace quench::importer::torch_ops
