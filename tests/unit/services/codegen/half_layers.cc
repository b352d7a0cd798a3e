#include "tests/unit/services/codegen/half_layers.h"

#include <algorithm>

namespace quench::codegen {

double HalfEpsilon(DataType type) { return type == DataType::kF16 ? 0x1p-11 : 0x1p-8; }

int64_t HalfSums(const Compiled& compiled) {
  return std::ranges::count_if(compiled.report.kernels, [](const KernelReport& kernel) {
    return kernel.reason.find("f16 in pairs") == 0;
  });
}

double HalfTolerance(const Compiled& compiled, DataType type) {
  return (HalfSums(compiled) > 0 ? 12 : 3) * HalfEpsilon(type);
}

Tensor HalfValues(DataType type, const std::vector<int64_t>& dims, uint64_t seed) {
  const Tensor values = Values(dims, seed);
  return Tensor::Floats(type, dims, values.as<float>());
}

const std::vector<HalfLayer>& HalfLayers() {
  using Ints = std::vector<int64_t>;
  static const auto* const kLayers = new std::vector<HalfLayer>{
      {"first layer",
       "conv",
       {1, 3, 11, 9},
       {20, 3, 3, 3},
       {{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}}},
      {"1x1", "conv", {2, 24, 7, 5}, {37, 24, 1, 1}, {}},
      {"1x1 with residual", "conv", {1, 40, 6, 6}, {40, 40, 1, 1}, {}, "Conv", true, true},
      {"3x3 padded",
       "conv",
       {1, 33, 9, 10},
       {18, 33, 3, 3},
       {{"pads", Ints{1, 1, 1, 1}}},
       "Conv",
       false},
      {"grouped", "conv", {1, 32, 5, 5}, {32, 16, 3, 3}, {{"group", int64_t{2}}}},
      {"deep, small map", "conv", {1, 96, 3, 3}, {130, 96, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}}},
      {"depthwise",
       "depthwise",
       {1, 35, 9, 8},
       {35, 1, 3, 3},
       {{"group", int64_t{35}}, {"pads", Ints{1, 1, 1, 1}}}},
      {"depthwise, valid, strided",
       "depthwise",
       {2, 32, 9, 9},
       {32, 1, 3, 3},
       {{"group", int64_t{32}}, {"strides", Ints{2, 2}}}},
      {"depthwise, in parts",
       "depthwise",
       {2, 48, 50, 47},
       {48, 1, 3, 3},
       {{"group", int64_t{48}}, {"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 1}}}},
      {"product", "matmul", {13, 70}, {70, 50}, {}, "MatMul", false},
      {"one row", "matmul", {1, 131}, {131, 40}, {}, "MatMul", false, true},
      {"many rows", "matmul", {150, 20}, {20, 17}, {}, "MatMul", false, true},
      {"batched", "matmul", {3, 5, 19}, {}, {}, "MatMul", false, false, {3, 19, 23}},
      {"gemm", "matmul", {6, 30}, {44, 30}, {{"transB", int64_t{1}}}, "Gemm"},
      {"scaled gemm", "matmul", {6, 30}, {30, 44}, {{"alpha", 0.25}, {"beta", 2.0}}, "Gemm"},
      // Beyond what fits a cache: rows become f32 a tile at a time.
      {"long rows", "matmul", {64, 5000}, {5000, 33}, {}, "MatMul", false}};
  return *kLayers;
}

Graph HalfGraph(const HalfLayer& layer, DataType type) {
  Graph graph;
  graph.name = layer.name;
  const ValueId x = graph.AddInput("x", Type::Tensor(type, {layer.x.begin(), layer.x.end()}));
  const std::vector<int64_t>& right = layer.computed_w;
  std::vector<ValueId> inputs = {
      x, right.empty() ? graph.AddConstant("w", HalfValues(type, layer.w, 5))
                       : graph.AddInput("w", Type::Tensor(type, {right.begin(), right.end()}))};
  if (layer.bias) {
    const bool columns = layer.op == "Gemm" && !layer.attributes.contains("transB");
    inputs.push_back(graph.AddConstant("b", HalfValues(type, {layer.w[columns ? 1 : 0]}, 7)));
  }
  ValueId y = Node1(graph, layer.op, inputs, layer.attributes);
  Infer(graph);
  if (layer.residual) {
    const ValueId r = graph.AddInput("r", graph.value(y).type);
    y = Node1(graph, "Add", {y, r});
  }
  graph.outputs = {Node1(graph, "Relu", {y})};
  Infer(graph);
  return graph;
}

void UseWholeNumbers(Graph& graph, DataType type) {
  for (Value& value : graph.values) {
    if (value.constant == nullptr) continue;
    std::vector<float> weights;
    for (int64_t i = 0; i < value.constant->tensor.size(); ++i)
      weights.push_back(i % 61 == 0 ? 1.0F : 0.0F);
    value.constant = std::make_shared<const Constant>(
        Constant{Tensor::Floats(type, value.constant->tensor.dims(), weights), "", {}});
  }
}

std::vector<Tensor> WholeInputs(const Graph& graph, DataType type) {
  std::vector<Tensor> inputs = RandomInputs(InputsOf(graph), 3).value();
  for (Tensor& input : inputs) {
    std::vector<float> values;
    for (int64_t i = 0; i < input.size(); ++i)
      values.push_back(static_cast<float>((i * 7 + i / 5) % 4));
    input = Tensor::Floats(type, input.dims(), values);
  }
  return inputs;
}

Graph LongHalfSums() {
  struct Sum {
    std::vector<int64_t> x, w;
    std::map<std::string, Attribute> attributes = {};
  };
  using Ints = std::vector<int64_t>;
  // Reductions that are cut by steps, several blocks of channels, single ones, rows of taps and within
  // these, with rests.
  static const auto* const kSums =
      new std::vector<Sum>{{{3, 4096}, {4096, 20}},
                           {{2, 1026}, {1026, 33}},
                           {{2, 3, 1400}, {2, 1400, 24}},
                           {{1, 1024, 3, 3}, {20, 1024, 1, 1}},
                           {{2, 264, 4, 4}, {20, 264, 1, 1}},
                           {{1, 256, 5, 5}, {20, 256, 3, 3}},
                           {{1, 256, 5, 5}, {32, 128, 3, 3}, {{"group", int64_t{2}}}},
                           {{1, 32, 9, 9}, {20, 32, 7, 7}},
                           {{1, 40, 1, 60}, {20, 40, 1, 51}},
                           {{1, 32, 1, 60}, {20, 32, 1, 19}, {{"dilations", Ints{1, 3}}}},
                           {{1, 32, 60, 2}, {20, 32, 33, 1}}};
  Graph graph;
  for (const Sum& sum : *kSums) {
    int64_t size = 1;
    for (const int64_t dim : sum.w) size *= dim;
    // Weights are whole numbers that differ from one channel, tap and column to the next.
    std::vector<float> weights;
    for (int64_t i = 0; i < size; ++i) weights.push_back(static_cast<float>((i + i / 7) % 3));
    const std::string name = std::to_string(graph.inputs.size());
    const ValueId x =
        graph.AddInput("x" + name, Type::Tensor(DataType::kF16, {sum.x.begin(), sum.x.end()}));
    const ValueId w = graph.AddConstant("w" + name, Tensor::Floats(DataType::kF16, sum.w, weights));
    const bool conv = sum.x.size() == 4;
    graph.outputs.push_back(Node1(graph, conv ? "Conv" : "MatMul", {x, w}, sum.attributes));
  }
  Infer(graph);
  return graph;
}

std::vector<Tensor> LongHalfInputs(const Graph& graph) {
  std::vector<Tensor> inputs = RandomInputs(InputsOf(graph), 3).value();
  for (Tensor& input : inputs) {
    std::vector<float> values;
    for (int64_t i = 0; i < input.size(); ++i) values.push_back(i % 16 == 3 ? 15.0F : 1.0F);
    input = Tensor::Floats(DataType::kF16, input.dims(), values);
  }
  return inputs;
}

}  // namespace quench::codegen
