#include "tests/unit/services/codegen/byte_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "tests/unit/common/passes/pass_test_util.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen {
namespace {

Tensor Bytes(DataType dtype, const std::vector<int64_t>& dims, uint32_t seed, Weights kind) {
  std::mt19937 random(seed);
  Tensor tensor = Tensor::Zeros(dtype, dims);
  std::byte* out = tensor.mutable_bytes();
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const auto draw = static_cast<int>(random() >> 8);
    int value = draw % 255 - 127;
    if (kind == Weights::kLargest) value = draw % 2 == 0 ? 127 : -127;
    if (kind == Weights::kSmall) value = draw % 121 - 60;
    if (kind == Weights::kLowest) value = draw % 4 == 0 ? -128 : draw % 256 - 128;
    if (kind == Weights::kPeaked) {
      value = draw / 16 % 81 - 40;
      if (draw % 12 == 0)
        value = std::min(90 + draw / 16 % 39, 127) * (draw / 1024 % 2 == 0 ? 1 : -1);
    }
    out[i] = static_cast<std::byte>(value);
  }
  return tensor;
}

// Within 40 steps of `zero` but for the sixth and the last one.
Tensor FarBytes(const std::vector<int64_t>& dims, int64_t zero) {
  Tensor tensor = Tensor::Zeros(DataType::kU8, dims);
  std::byte* out = tensor.mutable_bytes();
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const bool far = i == 5 || i == tensor.size() - 1;
    const int64_t near = std::clamp<int64_t>(zero + i * 37 % 81 - 40, 0, 255);
    const bool single = dims[1] == 1;
    out[i] = static_cast<std::byte>(far ? (zero < 128 ? 255 : 0) : single ? i * 89 % 256 : near);
  }
  return tensor;
}

// Zero points and scales as quantization writes them.
class Builder {
 public:
  explicit Builder(Graph& graph) : graph_(graph) {}

  ValueId Zero(DataType dtype, int64_t value) {
    Tensor zero = Tensor::Zeros(dtype, {});
    *zero.mutable_bytes() = static_cast<std::byte>(value);
    return graph_.AddConstant("zero", zero);
  }
  ValueId Scale(float value) { return graph_.AddConstant("scale", Tensor::ScalarF32(value)); }
  ValueId Real(ValueId integers, float scale, DataType dtype, int64_t zero) {
    return Node1(graph_, "DequantizeLinear", {integers, Scale(scale), Zero(dtype, zero)});
  }
  ValueId RealOfRun(ValueId integers, DataType dtype, const char* name) {
    const ValueId zero = graph_.AddInput(name, Type::Tensor(dtype, {}));
    const ValueId number =
        Node1(graph_, "Cast", {zero}, {{"to", static_cast<int64_t>(DataType::kF32)}});
    const ValueId scale =
        Node1(graph_, "Add", {Node1(graph_, "Mul", {number, Scale(1e-5F)}), Scale(0.02F)});
    return Node1(graph_, "DequantizeLinear", {integers, scale, zero});
  }
  // `zeros`: one for each scale, or none.
  ValueId Real(const Tensor& integers, const std::vector<float>& scales, int64_t axis,
               const std::vector<uint8_t>& zeros = {}) {
    const auto count = static_cast<int64_t>(scales.size());
    const ValueId scale = graph_.AddConstant(
        "scales",
        Tensor::Of(DataType::kF32,
                   count == 1 ? std::vector<int64_t>{} : std::vector<int64_t>{count}, scales));
    std::vector<ValueId> operands = {graph_.AddConstant("w", integers), scale};
    if (!zeros.empty()) {
      const std::vector<int64_t> dims = graph_.value(scale).constant->tensor.dims();
      operands.push_back(graph_.AddConstant("wz", Tensor::Of(DataType::kU8, dims, zeros)));
    }
    return Node1(graph_, "DequantizeLinear", operands, {{"axis", axis}});
  }

 private:
  Graph& graph_;
};

ValueId Silu(Graph& graph, Builder&, ValueId real) {
  return Node1(graph, "Mul", {real, Node1(graph, "Sigmoid", {real})});
}

}  // namespace

Graph ByteGraph(const ByteLayer& layer) {
  Graph graph;
  graph.name = layer.name;
  Builder add(graph);
  std::vector<Dim> dims(layer.x.begin(), layer.x.end());
  const ValueId x = graph.AddInput("x", Type::Tensor(layer.input, dims));
  const bool conv = layer.op == "Conv";
  const bool transposed = layer.op == "Gemm";
  const int64_t axis = conv || transposed ? 0 : 1;
  const int64_t channels = layer.w[static_cast<size_t>(axis)];
  constexpr float kInput = 0.02F, kKernel = 0.005F;
  std::vector<float> scales = {kKernel};
  for (int64_t c = 1; layer.per_channel && c < channels; ++c)
    scales.push_back(kKernel * static_cast<float>(1 + c % 7));
  std::vector<ValueId> operands = {layer.of_run ? add.RealOfRun(x, layer.input, "z")
                                                : add.Real(x, kInput, layer.input, layer.zero)};
  if (layer.computed != DataType::kUndefined) {
    const ValueId w = graph.AddInput(
        "w", Type::Tensor(layer.computed, std::vector<Dim>(layer.w.begin(), layer.w.end())));
    operands.push_back(layer.w_of_run ? add.RealOfRun(w, layer.computed, "wz")
                                      : add.Real(w, kKernel, layer.computed, layer.w_zero));
  } else if (layer.weights == Weights::kFar) {
    const std::vector<uint8_t> zeros(scales.size(), static_cast<uint8_t>(layer.w_zero));
    operands.push_back(add.Real(FarBytes(layer.w, layer.w_zero), scales, axis, zeros));
  } else {
    operands.push_back(add.Real(Bytes(DataType::kI8, layer.w, 2, layer.weights), scales, axis));
  }
  if (layer.bias && layer.op != "MatMul") {
    std::vector<int32_t> values;
    for (int64_t c = 0; c < channels; ++c)
      values.push_back(static_cast<int32_t>(c * 997 % 4001) - 2000);
    std::vector<float> steps;
    for (const float scale : scales)
      steps.push_back(static_cast<float>(static_cast<double>(kInput) * scale));
    operands.push_back(add.Real(Tensor::Of(DataType::kI32, {channels}, values), steps, 0));
  }
  std::map<std::string, Attribute> attributes = layer.attributes;
  if (transposed) attributes["transB"] = int64_t{1};
  ValueId y = Node1(graph, layer.op, operands, attributes);
  Infer(graph);
  if (layer.residual) {
    const ValueId r = graph.AddInput(
        "r", Type::Tensor(DataType::kI8, std::vector<Dim>(graph.value(y).type.dims)));
    y = Node1(graph, "Add", {y, add.Real(r, 0.1F, DataType::kI8, 3)});
  }
  if (layer.activation == "Silu") {
    y = Silu(graph, add, y);
  } else if (layer.relu) {
    y = Node1(graph, layer.activation.empty() ? "Relu" : layer.activation, {y});
  }
  if (layer.output != DataType::kF32) {
    // As tools write it, the same zero point is the same value.
    const bool same =
        !layer.of_run && layer.output == layer.input && layer.output_zero == layer.zero;
    const ValueId zero = same ? graph.node(0).inputs[2] : add.Zero(layer.output, layer.output_zero);
    y = Node1(graph, "QuantizeLinear", {y, add.Scale(0.37F), zero});
  }
  graph.outputs = {y};
  Infer(graph);
  return graph;
}

namespace {

// x, and the same in other steps: the end of what a function is of.
using Function = std::function<ValueId(Graph&, Builder&, ValueId real)>;

Graph FunctionGraph(const std::string& name, std::vector<Dim> dims, DataType from, DataType to,
                    const Function& function) {
  Graph graph;
  graph.name = name;
  Builder add(graph);
  const ValueId x = graph.AddInput("x", Type::Tensor(from, std::move(dims)));
  const ValueId real = add.Real(x, 0.05F, from, from == DataType::kU8 ? 117 : -9);
  graph.outputs = {Node1(
      graph, "QuantizeLinear",
      {function(graph, add, real), add.Scale(0.03F), add.Zero(to, to == DataType::kU8 ? 40 : -3)})};
  Infer(graph);
  return graph;
}

// With the integers of the sigmoid in between, as other tools write it.
ValueId SiluOfPairs(Graph& graph, Builder& add, ValueId real) {
  const ValueId gate =
      Node1(graph, "QuantizeLinear",
            {Node1(graph, "Sigmoid", {real}), add.Scale(1 / 255.0F), add.Zero(DataType::kU8, 0)});
  return Node1(graph, "Mul", {real, add.Real(gate, 1 / 255.0F, DataType::kU8, 0)});
}

// Between two convolutions, whose layouts it takes.
Graph FunctionBetweenLayers() {
  Graph graph = ByteGraph({.name = "between_layers",
                           .x = {1, 32, 9, 7},
                           .w = {40, 32, 1, 1},
                           .relu = false,
                           .output_zero = 120});
  Builder add(graph);
  const ValueId real = add.Real(graph.outputs[0], 0.37F, DataType::kU8, 120);
  const ValueId quantized =
      Node1(graph, "QuantizeLinear",
            {Silu(graph, add, real), add.Scale(0.2F), add.Zero(DataType::kU8, 3)});
  const ValueId w = add.Real(Bytes(DataType::kI8, {24, 40, 1, 1}, 5, Weights::kAny), {0.01F}, 0);
  const ValueId y = Node1(graph, "Conv", {add.Real(quantized, 0.2F, DataType::kU8, 3), w});
  graph.outputs = {
      Node1(graph, "QuantizeLinear", {y, add.Scale(0.5F), add.Zero(DataType::kI8, 0)})};
  Infer(graph);
  return graph;
}

}  // namespace

std::vector<Graph> ByteFunctions() {
  constexpr DataType kI8 = DataType::kI8, kU8 = DataType::kU8;
  const auto unary = [](const char* op) {
    return [op](Graph& graph, Builder&, ValueId real) { return Node1(graph, op, {real}); };
  };
  std::vector<Graph> graphs = {
      FunctionGraph("sigmoid", {1, 24, 7, 9}, kI8, kU8, unary("Sigmoid")),
      FunctionGraph("hard_swish", {2, 35, 6, 5}, kU8, kI8, unary("HardSwish")),
      FunctionGraph("exp", {517}, kU8, kU8, unary("Exp")),
      FunctionGraph("few", {5}, kI8, kI8, unary("Tanh")),
      FunctionGraph("one", {}, kI8, kI8, unary("Erf")),
      FunctionGraph("silu", {3, 64}, kU8, kU8, Silu),
      FunctionGraph("silu_of_pairs", {1, 16, 12, 12}, kI8, kI8, SiluOfPairs),
      FunctionGraph("other_steps", {1, 3, 40, 40}, kU8, kI8,
                    [](Graph&, Builder&, ValueId real) { return real; }),
  };
  graphs.push_back(FunctionBetweenLayers());
  using Ints = std::vector<int64_t>;
  const auto average = [](const char* op, std::map<std::string, Attribute> attributes = {}) {
    return
        [=](Graph& graph, Builder&, ValueId real) { return Node1(graph, op, {real}, attributes); };
  };
  const std::map<std::string, Attribute> window = {
      {"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}};
  std::map<std::string, Attribute> padded = window;
  padded["count_include_pad"] = int64_t{1};
  padded["ceil_mode"] = int64_t{1};
  graphs.push_back(
      FunctionGraph("average", {1, 20, 9, 8}, kU8, kU8, average("AveragePool", window)));
  graphs.push_back(
      FunctionGraph("average_padded", {2, 16, 10, 8}, kI8, kU8, average("AveragePool", padded)));
  graphs.push_back(FunctionGraph("average_of_pairs", {1, 3, 40, 54}, kU8, kI8,
                                 average("AveragePool", {{"kernel_shape", Ints{2, 2}}})));
  graphs.push_back(
      FunctionGraph("average_of_all", {2, 37, 7, 7}, kU8, kI8, average("GlobalAveragePool")));
  graphs.push_back(
      FunctionGraph("mean", {1, 18, 5, 6}, kI8, kI8, [](Graph& graph, Builder&, ValueId real) {
        const ValueId axes = graph.AddConstant("axes", Tensor::I64({-1, 2}));
        return Node1(graph, "ReduceMean", {real, axes}, {{"keepdims", int64_t{0}}});
      }));
  return graphs;
}

Graph InIntegers(const Graph& graph) {
  const absl::StatusOr<Graph> result = passes::RunIntegerPasses(graph);
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return graph;
  for (const Node& node : result->nodes) {
    EXPECT_NE(node.op, "Conv");
    EXPECT_NE(node.op, "MatMul");
    EXPECT_NE(node.op, "Gemm");
  }
  return *result;
}

std::vector<Tensor> ByteInputs(const Graph& graph, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Tensor> inputs;
  for (const ValueId id : graph.inputs) {
    std::vector<int64_t> dims;
    for (const Dim dim : graph.value(id).type.dims) dims.push_back(dim.value());
    const DataType dtype = graph.value(id).type.dtype;
    Tensor tensor = Tensor::Zeros(dtype, dims);
    std::byte* out = tensor.mutable_bytes();
    const int low = dtype == DataType::kI8 ? -128 : 0;
    for (int64_t i = 0; i < tensor.size(); ++i) {
      const uint32_t draw = random() >> 8;
      const int value = draw % 4 == 0 ? 255 : draw % 4 == 1 ? 0 : static_cast<int>(draw >> 2) % 256;
      out[i] = static_cast<std::byte>(low + value);
    }
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

std::vector<ValueId> AppendGraph(Graph& graph, const Graph& part, const std::string& prefix) {
  std::vector<ValueId> values;
  for (const Value& value : part.values) {
    const std::string name = prefix + "." + value.name;
    values.push_back(value.constant == nullptr ? graph.AddValue(name, value.type)
                                               : graph.AddConstant(name, value.constant->tensor));
  }
  const auto here = [&](std::vector<ValueId> ids) {
    for (ValueId& id : ids) id = id == kNone ? kNone : values[static_cast<size_t>(id)];
    return ids;
  };
  for (Node node : part.nodes) {
    node.name = prefix + "." + node.name;
    node.inputs = here(node.inputs);
    node.outputs = here(node.outputs);
    for (const ValueId id : node.outputs)
      graph.value(id).producer = static_cast<NodeId>(graph.nodes.size());
    graph.nodes.push_back(std::move(node));
  }
  return values;
}

namespace {

std::map<std::string, Attribute> Window(int64_t kernel, int64_t stride, int64_t group = 1,
                                        int64_t dilation = 1) {
  using Ints = std::vector<int64_t>;
  const int64_t pad = kernel / 2 * dilation;
  return {{"strides", Ints{stride, stride}},
          {"pads", Ints{pad, pad, pad, pad}},
          {"dilations", Ints{dilation, dilation}},
          {"group", group}};
}

std::vector<ByteLayer> PointwiseLayers() {
  return {
      {.name = "pointwise"},
      {.name = "pointwise_i8",
       .input = DataType::kI8,
       .zero = -7,
       .output = DataType::kI8,
       .output_zero = -128},
      {.name = "largest", .w = {24, 16, 1, 1}, .zero = 3, .weights = Weights::kLargest},
      {.name = "largest_i8",
       .input = DataType::kI8,
       .weights = Weights::kLargest,
       .output = DataType::kI8},
      {.name = "small", .zero = 128, .weights = Weights::kSmall},
      {.name = "small_i8", .input = DataType::kI8, .zero = 1, .weights = Weights::kSmall},
      {.name = "lowest", .zero = 200, .weights = Weights::kLowest},
      {.name = "lowest_i8", .input = DataType::kI8, .weights = Weights::kLowest},
      {.name = "no_bias", .bias = false, .relu = false, .output_zero = 100},
  };
}

std::vector<ByteLayer> WindowLayers() {
  return {
      {.name = "odd_channels",
       .x = {2, 13, 6, 5},
       .w = {17, 13, 3, 3},
       .attributes = Window(3, 1),
       .zero = 9,
       .output_zero = 5},
      {.name = "first_layer",
       .x = {1, 3, 21, 20},
       .w = {20, 3, 7, 7},
       .attributes = Window(7, 2),
       .zero = 120,
       .weights = Weights::kLargest,
       .per_channel = false},
      {.name = "first_layer_i8",
       .x = {1, 3, 12, 12},
       .w = {16, 3, 3, 3},
       .attributes = Window(3, 2),
       .input = DataType::kI8,
       .zero = -3},
      {.name = "three_by_three",
       .x = {1, 32, 14, 14},
       .w = {32, 32, 3, 3},
       .attributes = Window(3, 1),
       .zero = 2,
       .output = DataType::kI8,
       .output_zero = 11},
      {.name = "residual",
       .x = {1, 32, 7, 7},
       .w = {40, 32, 1, 1},
       .residual = true,
       .output = DataType::kI8},
      {.name = "residual_odd",
       .x = {1, 8, 5, 7},
       .w = {11, 8, 3, 3},
       .attributes = Window(3, 1),
       .relu = false,
       .residual = true,
       .output_zero = 77},
      {.name = "dilated",
       .x = {1, 16, 9, 9},
       .w = {8, 16, 3, 3},
       .attributes = Window(3, 1, 1, 2),
       .zero = 4},
      {.name = "groups",
       .x = {1, 32, 8, 8},
       .w = {32, 8, 3, 3},
       .attributes = Window(3, 1, 4),
       .zero = 255},
      {.name = "depthwise",
       .x = {1, 24, 10, 9},
       .w = {24, 1, 3, 3},
       .attributes = Window(3, 1, 24),
       .zero = 31,
       .weights = Weights::kLargest},
      {.name = "depthwise_in_parts",
       .x = {2, 40, 50, 47},
       .w = {40, 1, 3, 3},
       .attributes = Window(3, 1, 40),
       .zero = 31},
      {.name = "depthwise_i8",
       .x = {1, 19, 9, 9},
       .w = {19, 1, 5, 5},
       .attributes = Window(5, 2, 19),
       .input = DataType::kI8,
       .zero = -128,
       .weights = Weights::kLowest,
       .output = DataType::kI8,
       .output_zero = -100},
      {.name = "to_floats",
       .x = {1, 16, 6, 6},
       .w = {16, 16, 3, 3},
       .attributes = Window(3, 1),
       .zero = 17,
       .relu = false,
       .output = DataType::kF32},
  };
}

// Weights of u8 that are not around 128.
std::vector<ByteLayer> FarLayers() {
  return {
      {.name = "far", .zero = 7, .w_zero = 157, .weights = Weights::kFar},
      {.name = "far_i8",
       .input = DataType::kI8,
       .zero = -7,
       .w_zero = 61,
       .weights = Weights::kFar,
       .per_channel = false,
       .output = DataType::kI8},
      {.name = "far_first",
       .x = {1, 3, 21, 20},
       .w = {16, 3, 3, 3},
       .attributes = Window(3, 2),
       .zero = 128,
       .w_zero = 254,
       .weights = Weights::kFar},
      {.name = "far_three",
       .x = {2, 36, 9, 8},
       .w = {40, 36, 3, 3},
       .attributes = Window(3, 1),
       .zero = 9,
       .w_zero = 94,
       .weights = Weights::kFar,
       .residual = true},
      {.name = "far_dilated",
       .x = {1, 16, 9, 9},
       .w = {8, 16, 3, 3},
       .attributes = Window(3, 1, 1, 2),
       .w_zero = 1,
       .weights = Weights::kFar},
      {.name = "far_panels",
       .x = {1, 64, 1, 1},
       .w = {200, 64, 1, 1},
       .zero = 3,
       .w_zero = 94,
       .weights = Weights::kFar},
      {.name = "far_of_run",
       .x = {1, 16, 6, 6},
       .w = {24, 16, 3, 3},
       .attributes = Window(3, 1),
       .of_run = true,
       .w_zero = 140,
       .weights = Weights::kFar},
      {.name = "far_depthwise",
       .x = {1, 24, 10, 9},
       .w = {24, 1, 3, 3},
       .attributes = Window(3, 1, 24),
       .zero = 31,
       .w_zero = 204,
       .weights = Weights::kFar},
  };
}

std::vector<ByteLayer> LayersOfRun() {
  return {
      {.name = "run_pointwise", .of_run = true},
      {.name = "run_three",
       .x = {1, 24, 9, 9},
       .w = {20, 24, 3, 3},
       .attributes = Window(3, 1),
       .input = DataType::kI8,
       .of_run = true,
       .residual = true,
       .output = DataType::kI8},
      {.name = "run_first",
       .x = {1, 3, 13, 12},
       .w = {16, 3, 5, 5},
       .attributes = Window(5, 2),
       .of_run = true,
       .weights = Weights::kLargest},
      {.name = "run_depthwise",
       .x = {1, 24, 9, 8},
       .w = {24, 1, 3, 3},
       .attributes = Window(3, 1, 24),
       .of_run = true},
      {.name = "run_product",
       .op = "MatMul",
       .x = {5, 64},
       .w = {64, 20},
       .of_run = true,
       .relu = false,
       .output = DataType::kF32},
      {.name = "run_dense_i8",
       .op = "Gemm",
       .x = {3, 32},
       .w = {9, 32},
       .input = DataType::kI8,
       .of_run = true},
  };
}

std::vector<ByteLayer> ProductLayers() {
  return {
      {.name = "product", .op = "MatMul", .x = {5, 64}, .w = {64, 40}, .zero = 12},
      {.name = "product_i8",
       .op = "MatMul",
       .x = {2, 3, 32},
       .w = {32, 19},
       .input = DataType::kI8,
       .zero = 5,
       .weights = Weights::kLargest,
       .output = DataType::kI8},
      {.name = "product_odd", .op = "MatMul", .x = {7, 30}, .w = {30, 9}, .zero = 1},
      {.name = "product_of_one",
       .op = "MatMul",
       .x = {2, 5, 1},
       .w = {1, 18},
       .input = DataType::kI8,
       .zero = -9,
       .weights = Weights::kLowest},
      {.name = "dense_odd",
       .op = "Gemm",
       .x = {3, 131},
       .w = {20, 131},
       .zero = 255,
       .weights = Weights::kLargest},
      {.name = "run_product_odd", .op = "MatMul", .x = {6, 27}, .w = {27, 20}, .of_run = true},
  };
}

std::vector<ByteLayer> ComputedProductLayers() {
  return {
      {.name = "computed",
       .op = "MatMul",
       .x = {3, 7, 64},
       .w = {3, 64, 40},
       .zero = 12,
       .computed = DataType::kU8,
       .w_zero = 131},
      {.name = "computed_i8",
       .op = "MatMul",
       .x = {2, 3, 9, 32},
       .w = {2, 3, 32, 19},
       .input = DataType::kI8,
       .zero = -128,
       .computed = DataType::kI8,
       .output = DataType::kI8},
      {.name = "computed_odd",
       .op = "MatMul",
       .x = {13, 197},
       .w = {197, 33},
       .input = DataType::kI8,
       .zero = 5,
       .computed = DataType::kI8,
       .w_zero = -7},
      {.name = "computed_few",
       .op = "MatMul",
       .x = {2, 5, 3},
       .w = {3, 65},
       .computed = DataType::kU8,
       .output = DataType::kF32},
      {.name = "computed_for_all",
       .op = "MatMul",
       .x = {6, 66},
       .w = {4, 66, 16},
       .zero = 255,
       .computed = DataType::kI8,
       .w_zero = 127,
       .residual = true},
      {.name = "computed_long",
       .op = "MatMul",
       .x = {1, 1031},
       .w = {1031, 18},
       .computed = DataType::kU8,
       .w_zero = 255,
       .output = DataType::kF32},
      {.name = "run_computed",
       .op = "MatMul",
       .x = {2, 6, 70},
       .w = {2, 70, 35},
       .of_run = true,
       .computed = DataType::kU8,
       .w_of_run = true},
      {.name = "run_computed_i8",
       .op = "MatMul",
       .x = {6, 27},
       .w = {27, 20},
       .input = DataType::kI8,
       .of_run = true,
       .computed = DataType::kI8,
       .w_zero = 4},
  };
}

std::vector<ByteLayer> DenseLayers() {
  return {
      {.name = "dense",
       .op = "Gemm",
       .x = {1, 128},
       .w = {10, 128},
       .zero = 3,
       .relu = false,
       .output = DataType::kF32},
      {.name = "dense_largest",
       .op = "Gemm",
       .x = {9, 256},
       .w = {33, 256},
       .zero = 255,
       .weights = Weights::kLargest,
       .output = DataType::kI8},
  };
}

}  // namespace

std::vector<ByteLayer> PeakedLayers() {
  std::vector<ByteLayer> layers = {
      {.name = "peaked", .x = {1, 64, 9, 7}, .w = {24, 64, 1, 1}},
      {.name = "peaked_i8",
       .x = {1, 40, 9, 7},
       .w = {40, 40, 1, 1},
       .input = DataType::kI8,
       .zero = -5,
       .residual = true,
       .output = DataType::kI8},
      {.name = "peaked_odd_channels",
       .x = {2, 13, 6, 5},
       .w = {17, 13, 3, 3},
       .attributes = Window(3, 1),
       .zero = 9},
      {.name = "peaked_strided",
       .x = {1, 24, 13, 12},
       .w = {50, 24, 3, 3},
       .attributes = Window(3, 2),
       .zero = 3},
      {.name = "peaked_first_layer",
       .x = {1, 3, 21, 20},
       .w = {20, 3, 7, 7},
       .attributes = Window(7, 2),
       .zero = 120},
      {.name = "peaked_dilated",
       .x = {1, 16, 11, 9},
       .w = {8, 16, 3, 3},
       .attributes = Window(3, 1, 1, 2)},
      {.name = "peaked_groups",
       .x = {1, 32, 8, 8},
       .w = {48, 16, 3, 3},
       .attributes = Window(3, 1, 2)},
      {.name = "peaked_of_run", .x = {1, 32, 5, 5}, .w = {16, 32, 1, 1}, .of_run = true},
      {.name = "peaked_dense", .op = "Gemm", .x = {1, 512}, .w = {40, 512}, .zero = 7},
  };
  layers.push_back({.name = "peaked_batch", .op = "MatMul", .x = {2, 3, 40}, .w = {40, 27}});
  layers.push_back({.name = "peaked_merged_groups",
                    .x = {1, 16, 8, 8},
                    .w = {16, 4, 3, 3},
                    .attributes = Window(3, 1, 4)});
  layers.push_back(
      {.name = "peaked_wide", .op = "MatMul", .x = {1, 96}, .w = {96, 300}, .zero = 3});
  for (const int64_t k :
       {28, 61, 62, 63, 64}) {  // every rest, and groups of four, two and one words
    layers.push_back({.name = "peaked_product_" + std::to_string(k),
                      .op = "MatMul",
                      .x = {5, k},
                      .w = {k, 27},
                      .input = k % 2 == 0 ? DataType::kI8 : DataType::kU8,
                      .zero = 12});
  }
  for (ByteLayer& layer : layers) layer.weights = Weights::kPeaked;
  return layers;
}

std::vector<ByteLayer> ByteLayers() {
  std::vector<ByteLayer> all;
  for (const auto& part :
       {PointwiseLayers(), WindowLayers(), FarLayers(), LayersOfRun(), ProductLayers(),
        ComputedProductLayers(), DenseLayers(), PeakedLayers()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::vector<ByteLayer> ByteActivations() {
  std::vector<ByteLayer> layers;
  for (const char* activation : {"Silu", "Sigmoid", "Tanh", "Gelu", "Mish", "Softplus", "Elu"}) {
    layers.push_back({.name = activation,
                      .op = "MatMul",
                      .x = {64, 40},
                      .w = {40, 80},
                      .zero = 128,
                      .activation = activation,
                      .output = DataType::kF32});
  }
  layers.push_back({.name = "gated_depthwise",
                    .x = {1, 32, 14, 15},
                    .w = {32, 1, 3, 3},
                    .attributes = {{"group", int64_t{32}}},
                    .activation = "Silu",
                    .output = DataType::kF32});
  layers.push_back({.name = "gated_bytes",
                    .x = {1, 32, 20, 20},
                    .w = {64, 32, 1, 1},
                    .activation = "Silu",
                    .output = DataType::kI8});
  return layers;
}

}  // namespace quench::codegen
