#include "tests/unit/services/codegen/every_operator.h"

#include <optional>

#include "tests/unit/services/codegen/byte_layers.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen {
namespace {

using Ints = std::vector<int64_t>;
using Strings = std::vector<std::string>;
using Attributes = std::map<std::string, Attribute>;

// An operand: an input of the graph, a constant, or (dtype kUndefined) one that is left out.
struct Operand {
  DataType dtype = DataType::kF32;
  Ints dims;
  std::optional<Tensor> constant = std::nullopt;
};

struct OneNode {
  std::string op;
  std::vector<Operand> operands;
  Attributes attributes = {};
  int outputs = 1;
};

Operand F(Ints dims) { return {DataType::kF32, std::move(dims)}; }
Operand Of(DataType dtype, Ints dims) { return {dtype, std::move(dims)}; }
Operand Weights(Ints dims) {
  Tensor tensor = Values(dims);
  return {DataType::kF32, std::move(dims), std::move(tensor)};
}
Operand I64s(const Ints& values) { return {DataType::kI64, {}, Tensor::I64(values)}; }
Operand Scalar(int64_t value) { return {DataType::kI64, {}, Tensor::I64({value}).Reshaped({})}; }
Operand Number(float value) { return {DataType::kF32, {}, Tensor::ScalarF32(value)}; }
Operand Byte(DataType dtype, Ints dims = {}) {
  Tensor tensor = Tensor::Zeros(dtype, dims);
  return {dtype, std::move(dims), std::move(tensor)};
}
Operand Absent() { return {DataType::kUndefined, {}}; }

constexpr DataType kI8 = DataType::kI8, kU8 = DataType::kU8, kI32 = DataType::kI32,
                   kI64 = DataType::kI64, kBool = DataType::kBool;

// One or more operators that take the same.
struct Alike {
  Strings ops;
  std::vector<Operand> operands;
  Attributes attributes = {};
};

std::vector<Alike> Families() {
  const Attributes window = {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}};
  return {
      {{"Abs",
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Ceil",
        "Celu",
        "Cos",
        "Cosh",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "Hardmax",
        "HardSigmoid",
        "HardSwish",
        "Identity",
        "IsInf",
        "IsNaN",
        "LeakyRelu",
        "Log",
        "LogSoftmax",
        "LpNormalization",
        "Mish",
        "Neg",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Shape",
        "Shrink",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Size",
        "Softmax",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Swish",
        "Tan",
        "Tanh",
        "ThresholdedRelu",
        "Flatten",
        "NonZero",
        "Transpose",
        "Trilu",
        "ArgMax",
        "ArgMin",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
        "Dropout",
        "EyeLike"},
       {F({5, 37})}},
      {{"Add", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean",
        "Min", "Mul", "Pow", "PRelu", "Sub", "Sum"},
       {F({5, 37}), F({37})}},
      {{"And", "Or", "Xor"}, {Of(kBool, {5, 37}), Of(kBool, {37})}},
      {{"BitwiseAnd", "BitwiseOr", "BitwiseXor", "Mod"}, {Of(kI32, {5, 37}), Of(kI32, {37})}},
      {{"Not"}, {Of(kBool, {37})}},
      {{"BitwiseNot"}, {Of(kI32, {37})}},
      {{"AveragePool", "LpPool", "MaxPool"}, {F({1, 20, 9, 11})}, window},
      {{"GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "MeanVarianceNormalization"},
       {F({1, 20, 9, 11})}},
      {{"BlackmanWindow", "HammingWindow", "HannWindow"}, {Scalar(19)}},
      {{"CumProd", "CumSum"}, {F({5, 37}), Scalar(1)}},
      {{"GatherElements"}, {F({5, 37}), Of(kI64, {2, 37})}},
      {{"SpaceToDepth"}, {F({1, 4, 6, 8})}, {{"blocksize", int64_t{2}}}},
      {{"DepthToSpace"}, {F({1, 4, 6, 8})}, {{"blocksize", int64_t{2}}}},
      {{"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}, {F({3, 5}), Of(kI64, {3})}},
      {{"LSTM"},
       {F({4, 2, 5}), Weights({1, 12, 5}), Weights({1, 12, 3})},
       {{"hidden_size", int64_t{3}}}},
      {{"GRU"},
       {F({4, 2, 5}), Weights({1, 9, 5}), Weights({1, 9, 3})},
       {{"hidden_size", int64_t{3}}}},
      {{"RNN"},
       {F({4, 2, 5}), Weights({1, 3, 5}), Weights({1, 3, 3}), Weights({1, 6}), Of(kI64, {2})},
       {{"hidden_size", int64_t{3}}}},
  };
}

std::vector<OneNode> Singles() {
  const Attributes one = {{"axis", int64_t{1}}};
  const Operand bytes_scale = Number(0.1F);
  return {
      {"AffineGrid", {F({1, 2, 3}), I64s({1, 3, 4, 5})}},
      {"Attention", {F({1, 2, 7, 8}), F({1, 2, 9, 8}), F({1, 2, 9, 8})}},
      {"BatchNormalization",
       {F({1, 4, 5, 5}), Weights({4}), Weights({4}), Weights({4}), Weights({4})}},
      {"BitShift", {Of(kU8, {37}), Of(kU8, {37})}, {{"direction", std::string("LEFT")}}},
      {"Cast", {F({37})}, {{"to", static_cast<int64_t>(DataType::kF16)}}},
      {"CenterCropPad", {F({5, 37}), I64s({7, 11})}},
      {"Clip", {F({37}), Number(-1), Number(1)}},
      {"Col2Im", {F({1, 9, 25}), I64s({5, 5}), I64s({3, 3})}, {{"pads", Ints{1, 1, 1, 1}}}},
      {"Compress", {F({5, 37}), Of(kBool, {37})}, one},
      {"Concat", {F({5, 3}), F({5, 4})}, one},
      {"ConstantOfShape", {Of(kI64, {2})}},
      {"Conv", {F({1, 16, 9, 11}), Weights({24, 16, 3, 3})}, {{"pads", Ints{1, 1, 1, 1}}}},
      {"Conv", {F({1, 16, 9, 11}), Weights({16, 1, 3, 3})}, {{"group", int64_t{16}}}},
      {"ConvInteger", {Of(kU8, {1, 4, 9, 9}), Of(kI8, {6, 4, 3, 3})}},
      {"ConvTranspose", {F({1, 4, 5, 6}), Weights({4, 6, 3, 3})}, {{"strides", Ints{2, 2}}}},
      {"DFT", {F({1, 8, 1})}},
      {"DequantizeLinear", {Of(kU8, {37}), bytes_scale, Byte(kU8)}},
      {"Det", {F({2, 4, 4})}},
      {"DynamicQuantizeLinear", {F({37})}, {}, 3},
      {"Einsum", {F({3, 4}), F({4, 5})}, {{"equation", std::string("ij,jk->ik")}}},
      {"Expand", {F({1, 37}), I64s({5, 37})}},
      {"Gather", {F({5, 37}), Of(kI64, {3})}},
      {"GatherND", {F({5, 37}), Of(kI64, {3, 1})}},
      {"Gemm", {F({5, 37}), Weights({37, 19})}},
      {"GridSample", {F({1, 3, 5, 7}), F({1, 4, 6, 2})}},
      {"GroupNormalization",
       {F({1, 8, 5, 5}), Weights({8}), Weights({8})},
       {{"num_groups", int64_t{4}}}},
      {"InstanceNormalization", {F({1, 8, 5, 5}), Weights({8}), Weights({8})}},
      {"LRN", {F({1, 8, 5, 5})}, {{"size", int64_t{3}}}},
      {"LayerNormalization", {F({5, 37}), Weights({37}), Weights({37})}},
      {"MatMul", {F({5, 37}), Weights({37, 19})}},
      {"MatMul", {F({2, 5, 37}), F({2, 37, 19})}},
      {"MatMulInteger", {Of(kU8, {5, 37}), Of(kI8, {37, 19})}},
      {"MaxUnpool",
       {F({1, 1, 2, 2}), Of(kI64, {1, 1, 2, 2})},
       {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}}},
      {"NonMaxSuppression", {F({1, 6, 4}), F({1, 2, 6}), Scalar(3)}},
      {"OneHot", {Of(kI64, {5}), Scalar(7), F({2})}},
      {"Pad", {F({5, 37}), I64s({1, 0, 2, 3})}},
      {"QLinearConv",
       {Of(kU8, {1, 4, 9, 9}), bytes_scale, Byte(kU8), Byte(kI8, {6, 4, 3, 3}), bytes_scale,
        Byte(kI8), bytes_scale, Byte(kU8)}},
      {"QLinearMatMul",
       {Of(kU8, {5, 37}), bytes_scale, Byte(kU8), Byte(kI8, {37, 19}), bytes_scale, Byte(kI8),
        bytes_scale, Byte(kU8)}},
      {"QuantizeLinear", {F({37}), bytes_scale, Byte(kU8)}},
      {"RMSNormalization", {F({5, 37}), Weights({37})}},
      {"Range", {Scalar(1), Of(kI64, {}), Scalar(3)}},
      {"Reshape", {F({4, 6}), I64s({3, 8})}},
      {"Resize",
       {F({1, 3, 5, 7}),
        Absent(),
        {DataType::kF32, {}, Tensor::Of(DataType::kF32, {4}, std::vector<float>{1, 1, 1.5F, 2})}},
       {{"mode", std::string("cubic")}}},
      {"ReverseSequence", {F({4, 3, 5}), Of(kI64, {3})}},
      {"RoiAlign",
       {F({1, 3, 8, 8}), F({2, 4}), Of(kI64, {2})},
       {{"output_height", int64_t{2}}, {"output_width", int64_t{2}}}},
      {"RotaryEmbedding", {F({1, 2, 5, 8}), F({1, 5, 4}), F({1, 5, 4})}},
      {"STFT", {F({1, 32, 1}), Scalar(8), Absent(), Scalar(16)}},
      {"ScatterElements", {F({5, 37}), Of(kI64, {2, 37}), F({2, 37})}},
      {"TensorScatter", {F({2, 3, 7, 5}), F({2, 3, 1, 5}), Of(kI64, {2})}},
      {"ScatterND", {F({5, 37}), Of(kI64, {2, 1}), F({2, 37})}},
      {"Slice", {F({5, 37}), I64s({1}), I64s({30}), I64s({1}), I64s({3})}},
      {"Split", {F({5, 36})}, {{"axis", int64_t{1}}, {"num_outputs", int64_t{2}}}, 2},
      {"Squeeze", {F({5, 1, 37})}},
      {"Tile", {F({5, 37}), I64s({2, 3})}},
      {"TopK", {F({5, 37}), I64s({3})}, {}, 2},
      {"Unique", {F({37})}, {}, 4},
      {"Unsqueeze", {F({5, 37}), I64s({1})}},
      {"Where", {Of(kBool, {37}), F({5, 37}), F({37})}},
  };
}

Graph GraphOf(const OneNode& sample) {
  Graph graph;
  graph.name = sample.op;
  std::vector<ValueId> operands;
  for (const Operand& operand : sample.operands) {
    if (operand.dtype == DataType::kUndefined) {
      operands.push_back(quench::kNone);
    } else if (operand.constant) {
      operands.push_back(graph.AddConstant("c", *operand.constant));
    } else {
      operands.push_back(graph.AddInput(
          "x",
          Type::Tensor(operand.dtype, std::vector<Dim>(operand.dims.begin(), operand.dims.end()))));
    }
  }
  const NodeId node =
      graph.AddNode(sample.op, sample.op, operands, sample.outputs, sample.attributes);
  graph.outputs = graph.node(node).outputs;
  return graph;
}

// y = if go then Exp(x) else Relu(x)
Graph IfGraph() {
  Graph graph;
  const ValueId go = graph.AddInput("go", Type::Tensor(kBool, {}));
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {37}));
  Attributes bodies;
  for (const auto& [name, op] : {std::pair{"then_branch", "Exp"}, {"else_branch", "Relu"}}) {
    Graph body;
    body.symbols = graph.symbols;
    body.outputs = {Node1(body, op, {body.AddInput("x", Type::Tensor(DataType::kF32, {37}))})};
    bodies[name] = std::make_shared<const Graph>(std::move(body));
  }
  graph.outputs = {Node1(graph, "If", {go, x}, bodies)};
  return graph;
}

// y: x, until a scalar is false; what is doubled each time.
Graph LoopGraph() {
  Graph graph;
  const ValueId trips = graph.AddConstant("trips", Tensor::I64({3}).Reshaped({}));
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {37}));
  Graph body;
  body.symbols = graph.symbols;
  body.AddInput("iteration", Type::Tensor(kI64, {}));
  const ValueId go = body.AddInput("go", Type::Tensor(kBool, {}));
  const ValueId state = body.AddInput("state", Type::Tensor(DataType::kF32, {37}));
  const ValueId sum = Node1(body, "Add", {state, state});
  body.outputs = {Node1(body, "Identity", {go}), sum, Node1(body, "Exp", {sum})};
  const NodeId node = graph.AddNode("Loop", "loop", {trips, quench::kNone, x}, 2,
                                    {{"body", std::make_shared<const Graph>(std::move(body))}});
  graph.outputs = graph.node(node).outputs;
  return graph;
}

Graph ScanGraph() {
  Graph graph;
  const ValueId start = graph.AddInput("start", Type::Tensor(DataType::kF32, {3}));
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {5, 3}));
  Graph body;
  body.symbols = graph.symbols;
  const ValueId state = body.AddInput("state", Type::Tensor(DataType::kF32, {3}));
  const ValueId slice = body.AddInput("slice", Type::Tensor(DataType::kF32, {3}));
  const ValueId sum = Node1(body, "Add", {state, slice});
  body.outputs = {sum, Node1(body, "Exp", {sum})};
  const NodeId node = graph.AddNode(
      "Scan", "scan", {start, x}, 2,
      {{"body", std::make_shared<const Graph>(std::move(body))}, {"num_scan_inputs", int64_t{1}}});
  graph.outputs = graph.node(node).outputs;
  return graph;
}

// The size of the run as a value, and a node that no run may come to.
Graph RunTimeGraph() {
  Graph graph;
  const Dim n = Dim::OfSymbol(graph.symbols->AddInput("n", {0, 0}));
  graph.AddInput("x", Type::Tensor(DataType::kF32, {n, 4}));
  const NodeId dims = graph.AddNode("q.dims", "dims", {}, 1, {{"dims", Strings{"n", "2 * n"}}});
  const NodeId fail = graph.AddNode(
      "q.fail", "fail", {}, 1,
      {{"message", std::string("never")}, {"dtypes", Strings{"f32"}}, {"ranks", Ints{1}}});
  graph.outputs = {graph.node(dims).outputs[0], graph.node(fail).outputs[0]};
  return graph;
}

// A product by weights of four bits, large enough to stay so.
Graph WeightOnlyGraph() {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 96}));
  const ValueId w = graph.AddConstant("w", Tensor::Zeros(DataType::kI4, {96, 70}));
  const ValueId real =
      Node1(graph, "DequantizeLinear", {w, graph.AddConstant("scale", Values({3, 70}))},
            {{"axis", int64_t{0}}, {"block_size", int64_t{32}}});
  graph.outputs = {Node1(graph, "MatMul", {x, real})};
  return graph;
}

}  // namespace

std::vector<Graph> GraphsOfAllOperators() {
  std::vector<Graph> graphs = {IfGraph(), LoopGraph(), ScanGraph(), RunTimeGraph(),
                               WeightOnlyGraph()};
  for (const Alike& family : Families()) {
    for (const std::string& op : family.ops)
      graphs.push_back(GraphOf({op, family.operands, family.attributes}));
  }
  for (const OneNode& node : Singles()) graphs.push_back(GraphOf(node));
  for (Graph& graph : graphs) Infer(graph);
  for (Graph& graph : ByteFunctions()) graphs.push_back(std::move(graph));
  for (const ByteLayer& layer : ByteLayers()) graphs.push_back(ByteGraph(layer));
  return graphs;
}

const std::map<std::string, std::string>& NotAlone() {
  static const std::map<std::string, std::string> reasons = {
      {"Constant", "the importer makes it a constant value"},
      {"q.partition", "its nodes are put back before anything is compiled"},
  };
  return reasons;
}

}  // namespace quench::codegen
