#include "tests/unit/services/codegen/half_layers.h"

#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen {

double HalfEpsilon(DataType type) { return type == DataType::kF16 ? 0x1p-11 : 0x1p-8; }

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

}  // namespace quench::codegen
