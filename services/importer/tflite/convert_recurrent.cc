// Layers with states: SVDF, recurrent layers.
#include <map>

#include "common/base/status.h"
#include "services/importer/tflite/attributes.h"
#include "services/importer/tflite/converters.h"

namespace quench::importer::tflite_ops {
namespace {

constexpr int64_t kMaxUnits = 1 << 20;  // of a recurrent layer
constexpr int64_t kMaxSteps = 1024;     // that become nodes of their own

// A state as the model keeps it: of integers its steps, and the real numbers that these stand for.
struct State {
  ValueId stored = kNone, real = kNone;
};

// The state that the variable in input `input` keeps of `real`.
State StateOf(TfliteNode& n, int input, ValueId real) {
  Converter& c = n.c;
  const TensorScale scale = ScaleOf(c.node(), "input", static_cast<size_t>(input));
  const DataType dtype = c.type(c.in(input)).dtype;
  if (scale.scale.empty() || IsFloat(dtype)) return {real, real};
  const ValueId step = c.AddConstant(Tensor::ScalarF32(static_cast<float>(scale.scale[0])));
  const ValueId zero = c.Scalar(dtype, static_cast<double>(scale.zero[0]));
  const ValueId stored = n.Emit("QuantizeLinear", {real, step, zero});
  return {stored, n.Emit("DequantizeLinear", {stored, step, zero})};
}

ValueId Clamped(TfliteNode& n, ValueId x, double bound) {
  if (!(bound > 0)) return x;
  const DataType dtype = n.c.type(x).dtype;
  return n.Emit("Clip", {x, n.c.Scalar(dtype, -bound), n.c.Scalar(dtype, bound)});
}

std::vector<ValueId> Split(TfliteNode& n, ValueId x, int64_t axis, int64_t parts) {
  if (parts == 1) return {x};
  return n.c.EmitMany("Split", {x}, static_cast<int>(parts),
                      {{"axis", axis}, {"num_outputs", parts}});
}

ValueId Joined(TfliteNode& n, const std::vector<ValueId>& parts, int64_t axis) {
  return parts.size() == 1 ? parts[0] : n.Emit("Concat", parts, {{"axis", axis}});
}

// ---- Steps of a layer ----

// x [steps, batch, depth], as real numbers.
struct Sequence {
  ValueId x = kNone;
  int64_t steps = 0;
  bool timed = true, time_major = true;  // as the model has it; without time it is one step
};

absl::StatusOr<Sequence> SequenceOf(TfliteNode& n, bool timed, bool time_major) {
  Converter& c = n.c;
  QUENCH_RETURN_IF_ERROR(c.RequireRank(0));
  const int wanted = timed ? 3 : 2;
  if (c.Rank(c.in(0)) != wanted)
    return c.Error(fmt::format("input 0 has rank {}, expected {}", c.Rank(c.in(0)), wanted));
  Sequence sequence{.steps = 1, .timed = timed, .time_major = time_major};
  if (!timed) {
    sequence.x = n.Emit("Unsqueeze", {n.Real(0), c.Ints({0})});
    return sequence;
  }
  const Dim steps = c.type(c.in(0)).dims[time_major ? 0 : 1];
  if (!steps.is_static())
    return c.Unsupported("the number of steps is known only at run time, which this layer needs");
  if (steps.value() < 1 || steps.value() > kMaxSteps)
    return c.Unsupported(fmt::format("has {} steps, 1 to {} are read", steps.value(), kMaxSteps));
  sequence.steps = steps.value();
  sequence.x = n.Real(0, time_major ? std::vector<int64_t>() : std::vector<int64_t>{1, 0, 2});
  return sequence;
}

// The outputs of a layer for all steps, [steps, batch, units], in the order of the model.
ValueId InModelOrder(TfliteNode& n, const Sequence& sequence, ValueId y) {
  if (!sequence.timed) return n.Emit("Squeeze", {y, n.c.Ints({0})});
  return sequence.time_major ? y : n.Transpose(y, {1, 0, 2});
}

// Products with the inputs for all steps at once: one value [batch, units] for each step.
std::vector<ValueId> ProductsOf(TfliteNode& n, const Sequence& sequence, ValueId weights,
                                ValueId bias) {
  ValueId product = n.Emit("MatMul", {sequence.x, weights});
  if (bias != kNone) product = n.Emit("Add", {product, bias});
  std::vector<ValueId> steps = Split(n, product, 0, sequence.steps);
  for (ValueId& step : steps) step = n.Emit("Squeeze", {step, n.c.Ints({0})});
  return steps;
}

// Runs `cell(product)`, which gives [batch, units], for each step, from the last to the first when
// `backwards`. Together they are [steps, batch, units].
template <typename Cell>
ValueId RunSteps(TfliteNode& n, const std::vector<ValueId>& products, bool backwards,
                 const Cell& cell) {
  std::vector<ValueId> results(products.size());
  for (size_t i = 0; i < products.size(); ++i) {
    const size_t step = backwards ? products.size() - 1 - i : i;
    results[step] = n.Emit("Unsqueeze", {cell(products[step]), n.c.Ints({0})});
  }
  return Joined(n, results, 0);
}

// The layer's results, and behind them what its variables keep: `states` by their inputs.
absl::Status FinishLayer(TfliteNode& n, std::vector<ValueId> results,
                         const std::map<int64_t, ValueId>& states) {
  for (const int64_t input : n.c.node().Ints("states")) {
    const auto state = states.find(input);
    if (state == states.end())
      return n.c.Error(fmt::format("input {} is a variable, which it does not set", input));
    results.push_back(state->second);
  }
  return n.FinishAll(results);
}

absl::Status FinishBothWays(TfliteNode& n, const Sequence& sequence, ValueId forward,
                            ValueId backward, const std::map<int64_t, ValueId>& states) {
  std::vector<ValueId> results = {InModelOrder(n, sequence, forward),
                                  InModelOrder(n, sequence, backward)};
  if (n.Flag("merge_outputs")) results = {Joined(n, results, 2)};
  return FinishLayer(n, results, states);
}

absl::Status RequireAll(const Converter& c, std::initializer_list<int> inputs) {
  for (const int input : inputs) {
    if (!c.has(input)) return c.Error(fmt::format("input {} is missing", input));
  }
  return absl::OkStatus();
}

// ---- Long short-term memory ----

// Indices of the inputs of an LSTM layer. Those for gates are in the order input, forget, cell,
// output; peepholes leave the cell out. Weights are [units, depth] and [units, width of the
// output], those of the projection [width, units].
struct LstmInputs {
  int weights = 1, recurrent = 5, peepholes = 9, bias = 12, projection = 16;
  int output_state = 18, cell_state = 19;
  int layer_norm = 20;  // kNone: has none
};

enum Gate { kInputGate, kForgetGate, kCellGate, kOutputGate, kGates };

// One direction of an LSTM layer, step by step, as LiteRT's kernels compute it.
class Lstm {
 public:
  Lstm(TfliteNode& n, const LstmInputs& at) : n_(n), c_(n.c), at_(at) {}

  // kNone is the layer without an input gate: what it does not forget it takes in.
  absl::Status Prepare() {
    QUENCH_RETURN_IF_ERROR(RequireAll(c_, {at_.output_state, at_.cell_state}));
    first_ = c_.has(at_.weights) ? kInputGate : kForgetGate;
    for (int gate = first_; gate < kGates; ++gate)
      QUENCH_RETURN_IF_ERROR(RequireAll(c_, {at_.weights + gate, at_.recurrent + gate}));
    const int norm = at_.layer_norm;
    has_norm_ = norm != kNone && c_.has(norm + kForgetGate);
    for (int gate = first_; has_norm_ && gate < kGates; ++gate)
      QUENCH_RETURN_IF_ERROR(RequireAll(c_, {norm + gate, at_.bias + gate}));
    std::vector<ValueId> columns;
    for (int gate = first_; gate < kGates; ++gate)
      columns.push_back(n_.Real(at_.recurrent + gate, {1, 0}));
    recurrent_ = Joined(n_, columns, 1);
    hidden_ = n_.Real(at_.output_state);
    cell_ = n_.Real(at_.cell_state);
    return absl::OkStatus();
  }

  // [steps, batch, width], and into `states` what the variables keep.
  ValueId Run(const Sequence& sequence, bool backwards, std::map<int64_t, ValueId>& states) {
    std::vector<ValueId> columns, biases;
    for (int gate = first_; gate < kGates; ++gate) {
      columns.push_back(n_.Real(at_.weights + gate, {1, 0}));
      if (c_.has(at_.bias + gate) && !has_norm_) biases.push_back(n_.Real(at_.bias + gate));
    }
    const bool biased = biases.size() == columns.size();
    const std::vector<ValueId> products =
        ProductsOf(n_, sequence, Joined(n_, columns, 1), biased ? Joined(n_, biases, 0) : kNone);
    State hidden, cell;
    const ValueId y = RunSteps(n_, products, backwards, [&](ValueId product) {
      const ValueId output = Step(product, cell);
      hidden = StateOf(n_, at_.output_state, output);
      return hidden_ = hidden.real;
    });
    states[at_.output_state] = hidden.stored;
    states[at_.cell_state] = cell.stored;
    return y;
  }

 private:
  ValueId Step(ValueId product, State& cell) {
    const ValueId sums = n_.Emit("Add", {product, n_.Emit("MatMul", {hidden_, recurrent_})});
    const std::vector<ValueId> gates = Split(n_, sums, 1, kGates - first_);
    const auto gate = [&](Gate which, ValueId memory) {
      return GateOf(which, gates[static_cast<size_t>(which - first_)], memory);
    };
    const ValueId forget = gate(kForgetGate, cell_);
    const ValueId input = first_ == kInputGate
                              ? gate(kInputGate, cell_)
                              : n_.Emit("Sub", {c_.Scalar(DataType::kF32, 1), forget});
    const ValueId taken = n_.Emit("Mul", {input, gate(kCellGate, kNone)});
    const ValueId sum = n_.Emit("Add", {n_.Emit("Mul", {forget, cell_}), taken});
    cell = StateOf(n_, at_.cell_state, Clamped(n_, sum, n_.Float("cell_clip")));
    cell_ = cell.real;
    const ValueId output = n_.Emit("Mul", {gate(kOutputGate, cell_), n_.Activate(cell_)});
    if (!c_.has(at_.projection)) return output;
    ValueId projected = n_.Emit("MatMul", {output, n_.Real(at_.projection, {1, 0})});
    if (c_.has(at_.projection + 1))
      projected = n_.Emit("Add", {projected, n_.Real(at_.projection + 1)});
    return Clamped(n_, projected, n_.Float("proj_clip"));
  }

  // `memory`: the cell's state that the gate sees through its peephole.
  ValueId GateOf(Gate gate, ValueId sum, ValueId memory) {
    const int peephole = at_.peepholes + (gate == kOutputGate ? 2 : gate);
    if (memory != kNone && c_.has(peephole))
      sum = n_.Emit("Add", {sum, n_.Emit("Mul", {memory, n_.Real(peephole)})});
    if (has_norm_) sum = Normalised(gate, sum);
    return gate == kCellGate ? n_.Activate(sum) : n_.Emit("Sigmoid", {sum});
  }

  ValueId Normalised(Gate gate, ValueId x) {
    constexpr double kEpsilon = 1e-8;  // as in MeanStddevNormalization of LiteRT
    const auto mean = [&](ValueId of) {
      return n_.Emit("ReduceMean", {of, c_.Ints({1})}, {{"keepdims", int64_t{1}}});
    };
    const ValueId offset = n_.Emit("Sub", {x, mean(x)});
    const ValueId variance = mean(n_.Emit("Mul", {offset, offset}));
    const ValueId deviation =
        n_.Emit("Sqrt", {n_.Emit("Add", {variance, c_.Scalar(DataType::kF32, kEpsilon)})});
    const ValueId normal = n_.Emit("Div", {offset, deviation});
    return n_.Emit("Add", {n_.Emit("Mul", {normal, n_.Real(at_.layer_norm + gate)}),
                           n_.Real(at_.bias + gate)});
  }

  TfliteNode& n_;
  Converter& c_;
  const LstmInputs at_;
  int first_ = kInputGate;
  bool has_norm_ = false;
  ValueId recurrent_ = kNone, hidden_ = kNone, cell_ = kNone;
};

// Whether the catalogue's LSTM computes the layer, which takes any number of steps.
bool IsPlain(const TfliteNode& n, const LstmInputs& at) {
  const Converter& c = n.c;
  for (int gate = 0; gate < kGates; ++gate) {
    if (!c.has(at.weights + gate) || !c.has(at.recurrent + gate) || c.has(at.layer_norm + gate))
      return false;
  }
  const bool peepholes[] = {c.has(at.peepholes), c.has(at.peepholes + 1), c.has(at.peepholes + 2)};
  return !c.has(at.projection) && n.Float("cell_clip") == 0 && peepholes[0] == peepholes[1] &&
         peepholes[1] == peepholes[2] && IsFloat(c.type(c.in(at.output_state)).dtype) &&
         IsFloat(c.type(c.in(at.cell_state)).dtype) &&
         n.Int("fused_activation_function") == tflite::ActivationFunctionType_TANH;
}

absl::Status PlainLstm(TfliteNode& n, const LstmInputs& at) {
  Converter& c = n.c;
  const Type cell = c.type(c.in(at.cell_state));
  if (!cell.ranked || cell.rank() != 2 || !cell.dims[1].is_static())
    return c.Error("its cell state has no known width");
  const int64_t hidden = cell.dims[1].value();
  if (hidden <= 0 || hidden > kMaxUnits)
    return c.Error(fmt::format("has {} units, 1 to {} are read", hidden, kMaxUnits));
  // LSTM has its gates in the order input, output, forget, cell.
  constexpr int kOrder[] = {0, 3, 1, 2};
  const auto stacked = [&](int first, bool missing_is_zero) {
    std::vector<ValueId> parts;
    for (const int gate : kOrder) {
      const int input = first + gate;
      parts.push_back(c.has(input) || !missing_is_zero
                          ? n.Real(input)
                          : c.AddConstant(Tensor::Zeros(DataType::kF32, {hidden})));
    }
    return n.Emit("Concat", parts, {{"axis", int64_t{0}}});
  };
  const auto leading = [&](ValueId id) { return n.Emit("Unsqueeze", {id, c.Ints({0})}); };
  const ValueId zeros = c.AddConstant(Tensor::Zeros(DataType::kF32, {4 * hidden}));
  const ValueId bias = n.Emit("Concat", {stacked(at.bias, true), zeros}, {{"axis", int64_t{0}}});
  ValueId peepholes = kNone;
  if (c.has(at.peepholes + 1)) {
    peepholes = leading(
        n.Emit("Concat", {n.Real(at.peepholes), n.Real(at.peepholes + 2), n.Real(at.peepholes + 1)},
               {{"axis", int64_t{0}}}));
  }
  const bool time_major = n.Flag("time_major");
  const ValueId x = n.Real(0, time_major ? std::vector<int64_t>() : std::vector<int64_t>{1, 0, 2});
  const std::vector<ValueId> results = c.EmitMany(
      "LSTM",
      {x, leading(stacked(at.weights, false)), leading(stacked(at.recurrent, false)), leading(bias),
       kNone, leading(n.Real(at.output_state)), leading(n.Real(at.cell_state)), peepholes},
      3, {{"hidden_size", hidden}});
  ValueId y = n.Emit("Squeeze", {results[0], c.Ints({1})});
  if (!time_major) y = n.Transpose(y, {1, 0, 2});
  return FinishLayer(n, {y},
                     {{at.output_state, n.Emit("Squeeze", {results[1], c.Ints({0})})},
                      {at.cell_state, n.Emit("Squeeze", {results[2], c.Ints({0})})}});
}

// A cell of which the first input and what it gave before are one: inputs x, the output before,
// weights of both, bias, the cell before; gates in the order input, cell, forget, output.
absl::Status BasicLstm(TfliteNode& n) {
  Converter& c = n.c;
  QUENCH_RETURN_IF_ERROR(RequireAll(c, {0, 1, 2, 3, 4}));
  const ValueId both = Joined(n, {n.Real(0), n.Real(1)}, 1);
  const ValueId sums = n.Emit("Gemm", {both, n.Real(2), n.Real(3)}, {{"transB", int64_t{1}}});
  const std::vector<ValueId> gates = Split(n, sums, 1, kGates);
  const ValueId taken = n.Emit("Mul", {n.Emit("Sigmoid", {gates[0]}), n.Emit("Tanh", {gates[1]})});
  const ValueId kept = n.Emit("Mul", {n.Emit("Sigmoid", {gates[2]}), n.Real(4)});
  const ValueId cell = n.Emit("Add", {taken, kept});
  const ValueId output = n.Emit("Mul", {n.Emit("Sigmoid", {gates[3]}), n.Emit("Tanh", {cell})});
  std::vector<ValueId> results = {output, cell, both, sums};
  results.resize(std::min<size_t>(results.size(), static_cast<size_t>(c.num_outputs())));
  return n.FinishAll(results);
}

absl::Status UnrolledLstm(TfliteNode& n, bool timed, bool time_major) {
  QUENCH_ASSIGN_OR_RETURN(const Sequence sequence, SequenceOf(n, timed, time_major));
  Lstm lstm(n, {});
  QUENCH_RETURN_IF_ERROR(lstm.Prepare());
  std::map<int64_t, ValueId> states;
  const ValueId y = lstm.Run(sequence, false, states);
  return FinishLayer(n, {InModelOrder(n, sequence, y)}, states);
}

// ---- Plain recurrent layers ----

// Where such a layer has weights of x, of the state, a bias and the state.
struct RnnInputs {
  int weights = 1, recurrent = 2, bias = 3, state = 4;
};

absl::StatusOr<ValueId> RunRnn(TfliteNode& n, const Sequence& sequence, const RnnInputs& at,
                               bool backwards, std::map<int64_t, ValueId>& states) {
  QUENCH_RETURN_IF_ERROR(RequireAll(n.c, {at.weights, at.recurrent, at.bias, at.state}));
  const ValueId recurrent = n.Real(at.recurrent, {1, 0});
  ValueId hidden = n.Real(at.state);
  const std::vector<ValueId> products =
      ProductsOf(n, sequence, n.Real(at.weights, {1, 0}), n.Real(at.bias));
  const ValueId y = RunSteps(n, products, backwards, [&](ValueId product) {
    return hidden = n.Activate(n.Emit("Add", {product, n.Emit("MatMul", {hidden, recurrent})}));
  });
  states[at.state] = hidden;
  return y;
}

absl::Status OneWayRnn(Converter& c, bool timed) {
  TfliteNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const Sequence sequence, SequenceOf(n, timed, n.Flag("time_major")));
  std::map<int64_t, ValueId> states;
  QUENCH_ASSIGN_OR_RETURN(const ValueId y, RunRnn(n, sequence, {}, false, states));
  return FinishLayer(n, {InModelOrder(n, sequence, y)}, states);
}

absl::Status RefuseAuxiliaryInput(const Converter& c, int input) {
  return c.has(input) ? c.Unsupported("a second input, of stacked layers") : absl::OkStatus();
}

}  // namespace

// A layer of filters of rank `rank` along time: features of this run join those of the runs before,
// which are the state [batch, filters, memory], and each filter weighs its memory.
absl::Status Svdf(Converter& c) {
  TfliteNode n(c);
  const int64_t rank = n.Int("rank", 1);
  if (!c.has(4)) return c.Error("input 4 (its state) is missing");
  const Type memory = c.type(c.in(2));
  if (!memory.ranked || memory.rank() != 2 || !memory.is_static() || rank <= 0)
    return c.Error("its weights in time are not a matrix of known sizes");
  const int64_t filters = memory.dims[0].value(), steps = memory.dims[1].value();
  if (filters % rank != 0)
    return c.Error(fmt::format("{} filters are not units of {}", filters, rank));
  const ValueId features = n.Emit("Gemm", {n.Real(0), n.Real(1)}, {{"transB", int64_t{1}}});
  ValueId state = n.Emit("Reshape", {n.Real(4), c.Ints({-1, filters, steps})});
  // An integer layer keeps its features in the state's steps.
  const ValueId shifted = n.Emit("Slice", {state, c.Ints({1}), c.Ints({kEnd}), c.Ints({2})});
  const ValueId next = n.Emit("Concat", {shifted, n.Emit("Unsqueeze", {features, c.Ints({2})})},
                              {{"axis", int64_t{2}}});
  const State kept = StateOf(n, 4, next);
  const ValueId weighed = n.Emit("Mul", {kept.real, n.Real(2)});
  const ValueId units = n.Emit("Reshape", {weighed, c.Ints({-1, filters / rank, rank * steps})});
  ValueId sum = n.Emit("ReduceSum", {units, c.Ints({2})}, {{"keepdims", int64_t{0}}});
  if (c.has(3)) sum = n.Emit("Add", {sum, n.Real(3)});
  const ValueId flat = n.Emit("Reshape", {kept.stored, c.Ints({-1, filters * steps})});
  std::vector<ValueId> results = {n.Activate(sum)};
  if (c.num_outputs() > 1) results.push_back(flat);
  return n.FinishAll(results);
}

absl::Status LstmCell(Converter& c) {
  TfliteNode n(c);
  if (n.Int("kernel_type") == tflite::LSTMKernelType_BASIC) return BasicLstm(n);
  return UnrolledLstm(n, false, true);
}

absl::Status SequenceLstm(Converter& c) {
  TfliteNode n(c);
  const LstmInputs at;
  if (n.Flag("diagonal_recurrent_tensors"))
    return c.Unsupported("recurrent weights that are diagonals (diagonal_recurrent_tensors)");
  if (IsPlain(n, at)) return PlainLstm(n, at);
  return UnrolledLstm(n, true, n.Flag("time_major"));
}

absl::Status BidirectionalLstm(Converter& c) {
  TfliteNode n(c);
  QUENCH_RETURN_IF_ERROR(RefuseAuxiliaryInput(c, 39));
  QUENCH_ASSIGN_OR_RETURN(const Sequence sequence,
                          SequenceOf(n, true, n.Int("time_major", 1) != 0));
  Lstm forward(n, {.output_state = 35, .cell_state = 36, .layer_norm = kNone});
  Lstm backward(n, {.weights = 18,
                    .recurrent = 22,
                    .peepholes = 26,
                    .bias = 29,
                    .projection = 33,
                    .output_state = 37,
                    .cell_state = 38,
                    .layer_norm = kNone});
  QUENCH_RETURN_IF_ERROR(forward.Prepare());
  QUENCH_RETURN_IF_ERROR(backward.Prepare());
  std::map<int64_t, ValueId> states;
  const ValueId y = forward.Run(sequence, false, states);
  return FinishBothWays(n, sequence, y, backward.Run(sequence, true, states), states);
}

absl::Status Rnn(Converter& c) { return OneWayRnn(c, false); }
absl::Status SequenceRnn(Converter& c) { return OneWayRnn(c, true); }

absl::Status BidirectionalRnn(Converter& c) {
  TfliteNode n(c);
  QUENCH_RETURN_IF_ERROR(RefuseAuxiliaryInput(c, 9));
  QUENCH_ASSIGN_OR_RETURN(const Sequence sequence, SequenceOf(n, true, n.Flag("time_major")));
  std::map<int64_t, ValueId> states;
  QUENCH_ASSIGN_OR_RETURN(const ValueId forward, RunRnn(n, sequence, {}, false, states));
  const RnnInputs behind = {.weights = 5, .recurrent = 6, .bias = 7, .state = 8};
  QUENCH_ASSIGN_OR_RETURN(const ValueId backward, RunRnn(n, sequence, behind, true, states));
  return FinishBothWays(n, sequence, forward, backward, states);
}

}  // namespace quench::importer::tflite_ops
