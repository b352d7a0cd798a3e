// Reductions along axes, layers with states.
#include <algorithm>

#include "common/base/status.h"
#include "services/importer/tflite/attributes.h"
#include "services/importer/tflite/converters.h"

namespace quench::importer::tflite_ops {
namespace {

const char* ReductionOf(const std::string& op) {
  if (op == "MEAN") return "ReduceMean";
  if (op == "SUM") return "ReduceSum";
  if (op == "REDUCE_PROD") return "ReduceProd";
  if (op == "REDUCE_MAX" || op == "REDUCE_ANY") return "ReduceMax";
  return "ReduceMin";
}

constexpr int64_t kMaxUnits = 1 << 20;  // of a recurrent layer

// Without axes there is nothing to reduce.
ValueId ReduceAlong(TfliteNode& n, const char* op, ValueId x) {
  const std::optional<std::vector<int64_t>> axes = n.KnownInts(1);
  if (axes && axes->empty()) return x;
  ValueId list = axes ? n.c.Ints(*axes) : n.Sizes(1);
  if (!axes && n.c.Rank(list) == 0) list = n.Emit("Unsqueeze", {list, n.c.Ints({0})});
  return n.Emit(op, {x, list}, {{"keepdims", int64_t{n.Flag("keep_dims")}}});
}

}  // namespace

absl::Status Reduce(Converter& c) {
  TfliteNode n(c);
  return n.Finish(ReduceAlong(n, ReductionOf(c.node().op), n.Real(0)));
}

absl::Status ReduceBool(Converter& c) {
  TfliteNode n(c);
  const ValueId numbers = n.Cast(n.Raw(0), DataType::kI32);
  return n.FinishRaw(n.Cast(ReduceAlong(n, ReductionOf(c.node().op), numbers), DataType::kBool));
}

absl::Status ArgMinMax(Converter& c) {
  TfliteNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.RequireInt(1, "the axis"));
  const char* op = c.node().op == "ARG_MAX" ? "ArgMax" : "ArgMin";
  const ValueId place = n.Emit(op, {n.Raw(0)}, {{"axis", axis}, {"keepdims", int64_t{0}}});
  return n.Finish(place);
}

absl::Status CumSum(Converter& c) {
  TfliteNode n(c);
  return n.Finish(n.Emit("CumSum", {n.Real(0), n.Raw(1)},
                         {{"exclusive", n.Int("exclusive")}, {"reverse", n.Int("reverse")}}));
}

// Boxes that overlap none better, padded to as many as were asked for, and how many there are.
absl::Status NonMaxSuppression(Converter& c) {
  TfliteNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const int64_t most, n.RequireInt(2, "the number of boxes"));
  const bool scores_too = c.node().op == "NON_MAX_SUPPRESSION_V5";
  if (scores_too && c.has(5)) {
    const Tensor* sigma = c.constant(c.in(5));
    if (sigma == nullptr || sigma->size() != 1 || sigma->FloatAt(0) != 0)
      return c.Unsupported("soft suppression (soft_nms_sigma is not 0)");
  }
  const ValueId boxes = n.Emit("Unsqueeze", {n.Real(0), c.Ints({0})});
  const ValueId scores = n.Emit("Unsqueeze", {n.Real(1), c.Ints({0, 1})});
  const auto single = [&](int input) { return n.Emit("Reshape", {n.Real(input), c.Ints({1})}); };
  const ValueId found =
      n.Emit("NonMaxSuppression", {boxes, scores, c.Ints({most}), single(3), single(4)});
  // Rows are (batch, class, box).
  const ValueId places = n.Emit(
      "Squeeze", {n.Emit("Slice", {found, c.Ints({2}), c.Ints({3}), c.Ints({1})}), c.Ints({1})});
  const ValueId count = n.Emit("Size", {places});
  const ValueId missing = n.Emit("Sub", {c.Ints({most}), n.Emit("Reshape", {count, c.Ints({1})})});
  const ValueId pads = n.Emit("Concat", {c.Ints({0}), missing}, {{"axis", int64_t{0}}});
  const auto padded = [&](ValueId list) {
    return n.Emit("Reshape", {n.Emit("Pad", {list, pads}), c.Ints({most})});
  };
  std::vector<ValueId> results = {n.Cast(padded(places), DataType::kI32)};
  if (scores_too) results.push_back(padded(n.Emit("Gather", {n.Real(1), places})));
  results.push_back(n.Cast(count, DataType::kI32));
  return c.FinalValues(results);
}

// A layer of filters of rank `rank` along time: features of this run join those of the runs before,
// which are the state [batch, filters, memory], and each filter weighs its memory.
absl::Status Svdf(Converter& c) {
  TfliteNode n(c);
  const int64_t rank = n.Int("rank", 1);
  if (!c.has(4)) return c.Error("input 4 (its state) is missing");
  const Type memory = c.type(c.in(2));
  if (!memory.ranked || memory.rank() != 2 || !memory.is_static() || rank <= 0)
    return c.Error("its weights in time are no matrix of known sizes");
  const int64_t filters = memory.dims[0].value(), steps = memory.dims[1].value();
  if (filters % rank != 0)
    return c.Error(fmt::format("{} filters are no units of {}", filters, rank));
  const ValueId features = n.Emit("Gemm", {n.Real(0), n.Real(1)}, {{"transB", int64_t{1}}});
  ValueId state = n.Emit("Reshape", {n.Real(4), c.Ints({-1, filters, steps})});
  // An integer layer keeps its features in the state's steps.
  const ValueId shifted = n.Emit("Slice", {state, c.Ints({1}), c.Ints({kEnd}), c.Ints({2})});
  const ValueId next = n.Emit("Concat", {shifted, n.Emit("Unsqueeze", {features, c.Ints({2})})},
                              {{"axis", int64_t{2}}});
  ValueId next_state = next, kept = next;
  const TensorScale scale = ScaleOf(c.node(), "input", 4);
  const DataType dtype = c.type(c.in(4)).dtype;
  if (!scale.scale.empty() && !IsFloat(dtype)) {
    const ValueId step = c.AddConstant(Tensor::ScalarF32(static_cast<float>(scale.scale[0])));
    const ValueId zero = c.Scalar(dtype, static_cast<double>(scale.zero[0]));
    next_state = n.Emit("QuantizeLinear", {next, step, zero});
    kept = n.Emit("DequantizeLinear", {next_state, step, zero});
  }
  const ValueId weighed = n.Emit("Mul", {kept, n.Real(2)});
  const ValueId units = n.Emit("Reshape", {weighed, c.Ints({-1, filters / rank, rank * steps})});
  ValueId sum = n.Emit("ReduceSum", {units, c.Ints({2})}, {{"keepdims", int64_t{0}}});
  if (c.has(3)) sum = n.Emit("Add", {sum, n.Real(3)});
  const ValueId flat = n.Emit("Reshape", {next_state, c.Ints({-1, filters * steps})});
  std::vector<ValueId> results = {n.Activate(sum)};
  if (c.num_outputs() > 1) results.push_back(flat);
  return n.FinishAll(results);
}

// Inputs: x, weights of x (input, forget, cell, output gate), weights of the output, peepholes (input,
// forget, output), biases, projection, then the states.
absl::Status SequenceLstm(Converter& c) {
  TfliteNode n(c);
  enum {
    kX = 0,
    kWeights = 1,
    kRecurrent = 5,
    kPeepholes = 9,
    kBias = 12,
    kProjection = 16,
    kOutputState = 18,
    kCellState = 19,
    kLayerNorm = 20
  };
  for (int gate = 0; gate < 4; ++gate) {
    if (c.has(kLayerNorm + gate)) return c.Unsupported("layer normalization of gates");
  }
  if (c.has(kProjection)) return c.Unsupported("a projection of the output");
  if (n.Float("cell_clip") != 0) return c.Unsupported("a bound for the cell state (cell_clip)");
  if (n.Int("fused_activation_function") != tflite::ActivationFunctionType_TANH)
    return c.Unsupported("an activation other than tanh");
  if (!c.has(kWeights) || !c.has(kPeepholes + 2) != !c.has(kPeepholes + 1))
    return c.Unsupported("an input gate that is coupled to the forget gate");
  const Type cell = c.type(c.in(kCellState));
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
  const ValueId bias = n.Emit("Concat", {stacked(kBias, true), zeros}, {{"axis", int64_t{0}}});
  ValueId peepholes = kNone;
  if (c.has(kPeepholes + 1)) {
    peepholes = leading(n.Emit("Concat",
                               {n.Real(kPeepholes), n.Real(kPeepholes + 2), n.Real(kPeepholes + 1)},
                               {{"axis", int64_t{0}}}));
  }
  const bool time_major = n.Flag("time_major");
  const ValueId x = n.Real(kX, time_major ? std::vector<int64_t>() : std::vector<int64_t>{1, 0, 2});
  const std::vector<ValueId> results = c.EmitMany(
      "LSTM",
      {x, leading(stacked(kWeights, false)), leading(stacked(kRecurrent, false)), leading(bias),
       kNone, leading(n.Real(kOutputState)), leading(n.Real(kCellState)), peepholes},
      3, {{"hidden_size", hidden}});
  ValueId y = n.Emit("Squeeze", {results[0], c.Ints({1})});
  if (!time_major) y = n.Transpose(y, {1, 0, 2});
  std::vector<ValueId> outputs = {y};
  if (c.num_outputs() > 1) {
    outputs.push_back(n.Emit("Squeeze", {results[1], c.Ints({0})}));
    outputs.push_back(n.Emit("Squeeze", {results[2], c.Ints({0})}));
  }
  return n.FinishAll(outputs);
}

}  // namespace quench::importer::tflite_ops
