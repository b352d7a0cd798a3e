// Takes the products by W out of recurrent layers: those of all steps are one product.
//   pre: types inferred; W and R constants, or dequantized ones; B a constant
//   x, W, R, B -> LSTM -> y   ==>   MatMul(x, W^T) -> Add(biases) -> q.lstm(R^T) -> y
//   GRU, RNN                  ==>   the same with q.gru, q.rnn
//   with lengths, time first: q.sequence_matmul(x, W^T, lengths), which skips the steps after all
//   with store_as bf16: Cast(MatMul(Cast(x), W^T)) in bf16, whose range is that of f32
//   W dequantized: MatMul(x, DequantizeLinear(W^T)), which integer_products and weight_only_products read as integers; R
//   dequantized: q.lstm(R^T as i8, scales)
//   R is stored so that what one element of the state counts for in up to 64 units lies side by side.
//   case: RecurrentProductsTest
#include <algorithm>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "common/passes/dequantized.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

// [directions, rows, columns]; scales for integers, one or one for each row, none for f32.
struct RecurrentWeights {
  Tensor tensor;
  std::vector<float> scales;
};

std::optional<RecurrentWeights> ReadRecurrentWeights(const Graph& graph, ValueId id) {
  if (const Tensor* constant = ConstantOf(graph, id)) {
    if (constant->dtype() != DataType::kF32 || constant->rank() != 3) return std::nullopt;
    return RecurrentWeights{*constant, {}};
  }
  const std::optional<Kernel> kernel = ReadRecurrentKernel(graph, id);
  if (!kernel) return std::nullopt;
  return RecurrentWeights{kernel->integers, {kernel->scales.begin(), kernel->scales.end()}};
}

// The largest power of two that divides `hidden`, up to what registers hold with some to spare.
int64_t BlockOf(int64_t hidden) {
  int64_t block = 1;
  while (block < 64 && hidden % (2 * block) == 0) block *= 2;
  return block;
}

// [directions, rows, columns] as [columns, directions * rows] (block 0), or as [directions, rows /
// block, columns, block].
Tensor ColumnsFirst(const Tensor& weights, int64_t block) {
  const int64_t directions = weights.dims()[0], rows = weights.dims()[1],
                columns = weights.dims()[2];
  const bool joined = block == 0;
  const std::vector<int64_t> dims =
      joined ? std::vector<int64_t>{columns, directions * rows}
             : std::vector<int64_t>{directions, rows / block, columns, block};
  Tensor result = Tensor::Zeros(weights.dtype(), dims);
  const auto width = static_cast<size_t>(DataTypeBits(weights.dtype()) / 8);
  std::byte* const out = result.mutable_bytes();
  const std::byte* in = weights.bytes().data();
  for (int64_t d = 0; d < directions; ++d) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c, in += width) {
        const int64_t at = joined ? (c * directions + d) * rows + r
                                  : ((d * rows + r - r % block) * columns + c * block) + r % block;
        std::copy_n(in, width, out + static_cast<size_t>(at) * width);
      }
    }
  }
  return result;
}

Tensor FloatsOf(const std::vector<float>& values) {
  return Tensor::Of(DataType::kF32, {static_cast<int64_t>(values.size())}, values);
}

struct Cell {
  std::string op;
  int64_t gates;
};
std::optional<Cell> CellOf(const Node& node) {
  if (node.op == "LSTM") return Cell{"q.lstm", 4};
  if (node.op == "GRU") return Cell{"q.gru", 3};
  if (node.op == "RNN") return Cell{"q.rnn", 1};
  return std::nullopt;
}

class Projector {
 public:
  Projector(Graph& graph, const PassOptions& options)
      : graph_(graph),
        whole_(options.whole_values),
        bfloats_(options.store_as == DataType::kBF16 && options.node_types.empty()) {}

  void Rewrite(NodeId id, const Cell& cell) {
    const Node node = graph_.node(id);  // adding nodes moves them
    const auto input = [&](size_t i) { return i < node.inputs.size() ? node.inputs[i] : kNone; };
    const std::optional<RecurrentWeights> w = ReadRecurrentWeights(graph_, input(1));
    const std::optional<RecurrentWeights> r = ReadRecurrentWeights(graph_, input(2));
    const ValueId bias = input(3);
    const Type type = graph_.value(input(0)).type;
    if (!w || !r || (bias != kNone && ConstantOf(graph_, bias) == nullptr) || !type.ranked ||
        type.dtype != DataType::kF32)
      return;
    const bool linear = node.op == "GRU" && node.Int("linear_before_reset", 0) != 0;
    std::vector<ValueId> inputs(9, kNone);
    inputs[0] = Project(node, *w, type);
    if (bias != kNone) {
      inputs[0] = AddBiases(node, *ConstantOf(graph_, bias), cell.gates, linear, inputs[0]);
      if (linear) inputs[3] = bias;
    }
    inputs[2] =
        graph_.AddConstant(node.name + ".r", ColumnsFirst(r->tensor, BlockOf(r->tensor.dims()[2])));
    for (const size_t same : {4U, 5U, 6U, 7U}) inputs[same] = input(same);
    if (!r->scales.empty())
      inputs[8] = graph_.AddConstant(node.name + ".r.scale", FloatsOf(r->scales));
    while (inputs.back() == kNone) inputs.pop_back();
    Node& changed = graph_.node(id);
    changed.op = cell.op;
    changed.inputs = std::move(inputs);
  }

 private:
  ValueId Project(const Node& node, const RecurrentWeights& w, Type type) {
    const std::string name = node.name + ".inputs";
    const int64_t directions = w.tensor.dims()[0], rows = w.tensor.dims()[1];
    ValueId weights = graph_.AddConstant(node.name + ".w", ColumnsFirst(w.tensor, 0));
    if (!w.scales.empty()) {
      std::vector<float> scales;
      for (int64_t d = 0; d < directions; ++d)
        scales.insert(scales.end(), w.scales.begin(), w.scales.end());
      const bool one = w.scales.size() == 1;
      const ValueId scale = graph_.AddConstant(
          node.name + ".w.scale", one ? Tensor::ScalarF32(w.scales[0]) : FloatsOf(scales));
      const Type matrix = Type::Tensor(DataType::kF32, {w.tensor.dims()[2], directions * rows});
      weights = AddTyped(graph_, "DequantizeLinear", node.name + ".w.real", {weights, scale},
                         matrix, {{"axis", int64_t{1}}});
    }
    type.dims[2] = directions * rows;
    const bool bfloats = bfloats_ && w.scales.empty();
    const ValueId x = bfloats ? AsBfloats(node.inputs[0]) : node.inputs[0];
    if (bfloats) {
      const Tensor real = graph_.value(weights).constant->tensor;
      weights = graph_.AddConstant(node.name + ".w.bf16",
                                   Tensor::Floats(DataType::kBF16, real.dims(), real.as<float>()));
      type.dtype = DataType::kBF16;
    }
    const bool padded = node.inputs.size() > 4 && node.inputs[4] != kNone;
    if (padded && !whole_ && w.scales.empty() && node.Int("layout", 0) == 0) {
      return AsFloats(
          AddTyped(graph_, "q.sequence_matmul", name, {x, weights, node.inputs[4]}, type));
    }
    return AsFloats(AddTyped(graph_, "MatMul", name, {x, weights}, type));
  }

  ValueId Cast(ValueId id, DataType to, const std::string& name) {
    Type type = graph_.value(id).type;
    type.dtype = to;
    return AddTyped(graph_, "Cast", name, {id}, type, {{"to", static_cast<int64_t>(to)}});
  }
  ValueId AsFloats(ValueId id) {
    if (graph_.value(id).type.dtype == DataType::kF32) return id;
    return Cast(id, DataType::kF32, graph_.value(id).name + ".cast");
  }
  // Reads in front of a Cast that has widened it.
  ValueId AsBfloats(ValueId id) {
    const Value& value = graph_.value(id);
    if (value.producer != kNone && graph_.node(value.producer).op == "Cast") {
      const ValueId from = graph_.node(value.producer).inputs[0];
      if (graph_.value(from).type.dtype == DataType::kBF16) return from;
    }
    return Cast(id, DataType::kBF16, value.name + ".bf16");
  }

  // B: for each direction those of W, then those of R; what `linear` GRUs add within stays out.
  ValueId AddBiases(const Node& node, const Tensor& biases, int64_t gates, bool linear,
                    ValueId projected) {
    const int64_t rows = biases.dims()[1] / 2, hidden = rows / gates;
    std::vector<float> sums;
    for (int64_t d = 0; d < biases.dims()[0]; ++d) {
      for (int64_t g = 0; g < rows; ++g) {
        const double own = biases.FloatAt(d * 2 * rows + g);
        const bool within = linear && g >= (gates - 1) * hidden;
        const double other = within ? 0 : biases.FloatAt((d * 2 + 1) * rows + g);
        sums.push_back(static_cast<float>(own) + static_cast<float>(other));
      }
    }
    const ValueId constant = graph_.AddConstant(node.name + ".biases", FloatsOf(sums));
    const Type type = graph_.value(projected).type;
    return AddTyped(graph_, "Add", node.name + ".biased", {projected, constant}, type);
  }

  Graph& graph_;
  const bool whole_;    // PassOptions::whole_values
  const bool bfloats_;  // products are stored, and multiplied, in bf16
};

}  // namespace

absl::StatusOr<Graph> MakeRecurrentProducts(Graph graph, const PassOptions& options,
                                            const StepContext& context) {
  const size_t nodes = graph.nodes.size();
  Projector projector(graph, options);
  for (size_t i = 0; i < nodes; ++i) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    if (const std::optional<Cell> cell = CellOf(graph.nodes[i]))
      projector.Rewrite(static_cast<NodeId>(i), *cell);
  }
  if (graph.nodes.size() > nodes) {
    graph.Compact();
    QUENCH_RETURN_IF_ERROR(ops::InferGraph(graph));
  }
  QUENCH_RETURN_IF_ERROR(ForEachBody(
      graph, [&](Graph body) { return MakeRecurrentProducts(std::move(body), options, context); }));
  return graph;
}

}  // namespace quench::passes
