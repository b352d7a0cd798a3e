#include "tests/support/networks.h"

#include <cmath>
#include <cstdlib>
#include <string>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "tests/support/graphs.h"

namespace quench::testing {
namespace {

using Ints = std::vector<int64_t>;
using Attributes = std::map<std::string, Attribute>;

// Zeros of any size without memory: pages of one allocation that nobody has touched.
Tensor Untouched(const Ints& dims) {
  constexpr size_t kBytes = size_t{128} << 20;
  static const std::shared_ptr<void> zeros(std::calloc(kBytes, 1), &std::free);
  const size_t bytes = static_cast<size_t>(*ElementCount(dims)) * sizeof(float);
  QUENCH_CHECK(bytes <= kBytes);
  return Tensor::View(DataType::kF32, dims, {static_cast<const std::byte*>(zeros.get()), bytes},
                      zeros);
}

Tensor Filled(const Ints& dims, float value) {
  return Tensor::Of(DataType::kF32, dims,
                    std::vector<float>(static_cast<size_t>(*ElementCount(dims)), value));
}

class Net {
 public:
  explicit Net(const std::string& name) { graph_.name = name; }

  ValueId Input(const std::string& name, DataType dtype, const std::vector<Dim>& dims) {
    return graph_.AddInput(name, Type::Tensor(dtype, dims));
  }
  ValueId Image(int64_t side) { return Input("image", DataType::kF32, {1, 3, side, side}); }

  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return Add(graph_, op, std::move(inputs), std::move(attributes));
  }
  ValueId Constant(Tensor tensor) { return graph_.AddConstant("c", std::move(tensor)); }
  ValueId Ints64(const Ints& values) { return Constant(Tensor::I64(values)); }
  ValueId Number(float value) { return Constant(Tensor::ScalarF32(value)); }
  // Weights that are equal to no others.
  ValueId Weight(const Ints& dims) {
    const ValueId id = Constant(Untouched(dims));
    auto constant = std::make_shared<quench::Constant>(*graph_.value(id).constant);
    constant->digest = fmt::format("{:064x}", ++weights_);
    graph_.value(id).constant = std::move(constant);
    return id;
  }

  int64_t DimOf(ValueId x, size_t axis) const { return graph_.value(x).type.dims[axis].value(); }

  // `padding` -1: as much as keeps the size at stride 1.
  ValueId Conv(ValueId x, int64_t channels, int64_t kernel, int64_t stride = 1,
               int64_t padding = -1) {
    const int64_t p = padding < 0 ? (kernel - 1) / 2 : padding;
    return Op("Conv",
              {x, Weight({channels, DimOf(x, 1), kernel, kernel}), Constant(Filled({channels}, 1))},
              {{"kernel_shape", Ints{kernel, kernel}},
               {"strides", Ints{stride, stride}},
               {"pads", Ints{p, p, p, p}}});
  }
  ValueId ConvRelu(ValueId x, int64_t channels, int64_t kernel, int64_t stride = 1) {
    return Op("Relu", {Conv(x, channels, kernel, stride)});
  }
  ValueId ConvSilu(ValueId x, int64_t channels, int64_t kernel = 1, int64_t stride = 1,
                   int64_t padding = -1) {
    const ValueId y = Conv(x, channels, kernel, stride, padding);
    return Op("Mul", {y, Op("Sigmoid", {y})});
  }
  ValueId BatchNorm(ValueId x) {
    const ValueId ones = Constant(Filled({DimOf(x, 1)}, 1));
    return Op("BatchNormalization", {x, ones, ones, ones, ones});
  }
  ValueId Pool(const std::string& op, ValueId x, int64_t kernel, int64_t stride,
               int64_t padding = 0, int64_t ceil = 0) {
    return Op(op, {x},
              {{"kernel_shape", Ints{kernel, kernel}},
               {"strides", Ints{stride, stride}},
               {"pads", Ints{padding, padding, padding, padding}},
               {"ceil_mode", ceil}});
  }
  ValueId Concat(std::vector<ValueId> parts, int64_t axis = 1) {
    return Op("Concat", std::move(parts), {{"axis", axis}});
  }
  ValueId Dense(ValueId x, int64_t outputs) {
    return Op("Gemm", {x, Weight({outputs, DimOf(x, 1)}), Constant(Filled({outputs}, 1))},
              {{"transB", int64_t{1}}});
  }
  ValueId Head(ValueId x) { return Dense(Op("Flatten", {Op("GlobalAveragePool", {x})}), 1000); }

  Graph Finish(std::vector<ValueId> outputs) {
    graph_.outputs = std::move(outputs);
    return std::move(graph_);
  }
  Graph& graph() { return graph_; }

 private:
  Graph graph_;
  int weights_ = 0;
};

// ---- googlenet ----

struct Inception {
  int64_t one, reduce3, three, reduce5, five, pooled;
};

ValueId AddInception(Net& n, ValueId x, const Inception& c) {
  return n.Concat({n.ConvRelu(x, c.one, 1), n.ConvRelu(n.ConvRelu(x, c.reduce3, 1), c.three, 3),
                   n.ConvRelu(n.ConvRelu(x, c.reduce5, 1), c.five, 3),
                   n.ConvRelu(n.Pool("MaxPool", x, 3, 1, 1), c.pooled, 1)});
}

// ---- yolov5n ----

ValueId C3(Net& n, ValueId x, int64_t channels, int count = 1, bool shortcut = true) {
  const int64_t half = channels / 2;
  ValueId y = n.ConvSilu(x, half);
  for (int i = 0; i < count; ++i) {
    const ValueId z = n.ConvSilu(n.ConvSilu(y, half), half, 3);
    y = shortcut ? n.Op("Add", {y, z}) : z;
  }
  return n.ConvSilu(n.Concat({y, n.ConvSilu(x, half)}), channels);
}

ValueId Upsample(Net& n, ValueId x) {
  return n.Op(
      "Resize",
      {x, kNone, n.Constant(Tensor::Of(DataType::kF32, {4}, std::vector<float>{1, 1, 2, 2}))},
      {{"mode", std::string("nearest")},
       {"nearest_mode", std::string("floor")},
       {"coordinate_transformation_mode", std::string("asymmetric")}});
}

// Boxes of one scale: [1, 255, size, size] -> [1, 3 * size * size, 85].
ValueId Detect(Net& n, ValueId x) {
  const int64_t size = n.DimOf(x, 2);
  const ValueId cells =
      n.Op("Transpose", {n.Op("Reshape", {n.Conv(x, 255, 1), n.Ints64({-1, 3, 85, size, size})})},
           {{"perm", Ints{0, 1, 3, 4, 2}}});
  Graph& graph = n.graph();
  const NodeId split =
      graph.AddNode("Split", "split", {n.Op("Sigmoid", {cells}), n.Ints64({2, 2, 81})}, 3,
                    {{"axis", int64_t{4}}});
  QUENCH_CHECK(ops::InferNode(graph, graph.node(split)).ok());
  const std::vector<ValueId> parts = graph.node(split).outputs;
  const ValueId grid = n.Constant(Filled({1, 1, size, size, 2}, 0.5f));
  const ValueId anchors = n.Constant(Filled({1, 3, size, size, 2}, 10));
  const ValueId two = n.Number(2);
  const ValueId xy = n.Op("Mul", {n.Op("Add", {n.Op("Mul", {parts[0], two}), grid}), n.Number(8)});
  const ValueId wh = n.Op("Mul", {n.Op("Pow", {n.Op("Mul", {parts[1], two}), two}), anchors});
  return n.Op("Reshape", {n.Concat({xy, wh, parts[2]}, 4), n.Ints64({-1, 3 * size * size, 85})});
}

// ---- bert ----

constexpr int64_t kTokens = 128, kWidth = 768, kHeads = 12;

ValueId Linear(Net& n, ValueId x, int64_t in, int64_t out) {
  return n.Op("Add", {n.Op("MatMul", {x, n.Weight({in, out})}), n.Constant(Filled({out}, 1))});
}

ValueId Norm(Net& n, ValueId x) {
  const ValueId ones = n.Constant(Filled({kWidth}, 1));
  return n.Op("LayerNormalization", {x, ones, ones}, {{"axis", int64_t{-1}}, {"epsilon", 1e-5}});
}

ValueId SelfAttention(Net& n, ValueId x) {
  const auto heads = [&](Ints perm) {
    const ValueId split = n.Op(
        "Reshape", {Linear(n, x, kWidth, kWidth), n.Ints64({0, kTokens, kHeads, kWidth / kHeads})});
    return n.Op("Transpose", {split}, {{"perm", std::move(perm)}});
  };
  const ValueId q = heads({0, 2, 1, 3}), k = heads({0, 2, 3, 1}), v = heads({0, 2, 1, 3});
  const ValueId scores = n.Op("Mul", {n.Op("MatMul", {q, k}), n.Number(0.125f)});
  const ValueId mixed =
      n.Op("Transpose", {n.Op("MatMul", {n.Op("Softmax", {scores}, {{"axis", int64_t{-1}}}), v})},
           {{"perm", Ints{0, 2, 1, 3}}});
  return Linear(n, n.Op("Reshape", {mixed, n.Ints64({0, kTokens, kWidth})}), kWidth, kWidth);
}

ValueId Gelu(Net& n, ValueId x) {
  const ValueId erf = n.Op("Erf", {n.Op("Div", {x, n.Number(std::sqrt(2.0f))})});
  return n.Op("Mul", {n.Op("Mul", {x, n.Op("Add", {erf, n.Number(1)})}), n.Number(0.5f)});
}

}  // namespace

Graph Resnet50() {
  Net n("resnet50");
  ValueId x = n.Pool("MaxPool", n.ConvRelu(n.Image(224), 64, 7, 2), 3, 2, 1);
  const int counts[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t width = int64_t{64} << stage;
    for (int i = 0; i < counts[stage]; ++i) {
      const int64_t stride = i == 0 && stage > 0 ? 2 : 1;
      const ValueId shortcut = i == 0 ? n.Conv(x, 4 * width, 1, stride) : x;
      const ValueId y = n.ConvRelu(n.ConvRelu(x, width, 1), width, 3, stride);
      x = n.Op("Relu", {n.Op("Add", {n.Conv(y, 4 * width, 1), shortcut})});
    }
  }
  return n.Finish({n.Head(x)});
}

Graph Densenet121() {
  Net n("densenet121");
  ValueId x = n.Pool("MaxPool", n.ConvRelu(n.Image(224), 64, 7, 2), 3, 2, 1);
  const auto activated = [&](ValueId y) { return n.Op("Relu", {n.BatchNorm(y)}); };
  const int counts[] = {6, 12, 24, 16};
  for (int block = 0; block < 4; ++block) {
    for (int i = 0; i < counts[block]; ++i) {
      const ValueId y = n.ConvRelu(activated(x), 128, 1);  // with its batch norm folded
      x = n.Concat({x, n.Conv(y, 32, 3)});
    }
    if (block < 3) x = n.Pool("AveragePool", n.Conv(activated(x), n.DimOf(x, 1) / 2, 1), 2, 2);
  }
  return n.Finish({n.Head(activated(x))});
}

Graph Googlenet() {
  Net n("googlenet");
  ValueId x = n.Pool("MaxPool", n.ConvRelu(n.Image(224), 64, 7, 2), 3, 2, 0, 1);
  x = n.Pool("MaxPool", n.ConvRelu(n.ConvRelu(x, 64, 1), 192, 3), 3, 2, 0, 1);
  const std::vector<std::vector<Inception>> stages = {
      {{64, 96, 128, 16, 32, 32}, {128, 128, 192, 32, 96, 64}},
      {{192, 96, 208, 16, 48, 64},
       {160, 112, 224, 24, 64, 64},
       {128, 128, 256, 24, 64, 64},
       {112, 144, 288, 32, 64, 64},
       {256, 160, 320, 32, 128, 128}},
      {{256, 160, 320, 32, 128, 128}, {384, 192, 384, 48, 128, 128}},
  };
  for (size_t i = 0; i < stages.size(); ++i) {
    for (const Inception& widths : stages[i]) x = AddInception(n, x, widths);
    if (i < 2) x = n.Pool("MaxPool", x, i == 0 ? 3 : 2, 2, 0, 1);
  }
  return n.Finish({n.Head(x)});
}

Graph Yolov5n() {
  Net n("yolov5n");
  ValueId x = n.ConvSilu(n.ConvSilu(n.Image(640), 16, 6, 2, 2), 32, 3, 2);
  x = n.ConvSilu(C3(n, x, 32), 64, 3, 2);
  const ValueId small = C3(n, x, 64, 2);
  const ValueId middle = C3(n, n.ConvSilu(small, 128, 3, 2), 128, 3);
  x = n.ConvSilu(C3(n, n.ConvSilu(middle, 256, 3, 2), 256), 128);
  std::vector<ValueId> pools = {x};
  for (int i = 0; i < 3; ++i) pools.push_back(n.Pool("MaxPool", pools.back(), 5, 1, 2));
  const ValueId deep = n.ConvSilu(n.ConvSilu(n.Concat(pools), 256), 128);
  const ValueId up = n.ConvSilu(C3(n, n.Concat({Upsample(n, deep), middle}), 128, 1, false), 64);
  const ValueId p3 = C3(n, n.Concat({Upsample(n, up), small}), 64, 1, false);
  const ValueId p4 = C3(n, n.Concat({n.ConvSilu(p3, 64, 3, 2), up}), 128, 1, false);
  const ValueId p5 = C3(n, n.Concat({n.ConvSilu(p4, 128, 3, 2), deep}), 256, 1, false);
  std::vector<ValueId> levels;
  for (const ValueId level : {p3, p4, p5}) levels.push_back(Detect(n, level));
  return n.Finish({n.Concat(levels)});
}

Graph BertBase() {
  Net n("bert_base");
  const ValueId ids = n.Input("ids", DataType::kI64, {1, kTokens});
  const ValueId types = n.Input("types", DataType::kI64, {1, kTokens});
  const ValueId words = n.Op("Gather", {n.Weight({30522, kWidth}), ids});
  const ValueId kinds = n.Op("Gather", {n.Weight({2, kWidth}), types});
  ValueId x = Norm(n, n.Op("Add", {n.Op("Add", {words, kinds}), n.Weight({kTokens, kWidth})}));
  for (int layer = 0; layer < 12; ++layer) {
    x = Norm(n, n.Op("Add", {x, SelfAttention(n, x)}));
    const ValueId hidden = Gelu(n, Linear(n, x, kWidth, 4 * kWidth));
    x = Norm(n, n.Op("Add", {x, Linear(n, hidden, 4 * kWidth, kWidth)}));
  }
  const ValueId first = n.Op("Gather", {x, n.Constant(Tensor::Of(DataType::kI64, {}, Ints{0}))},
                             {{"axis", int64_t{1}}});
  return n.Finish({x, n.Op("Tanh", {n.Dense(first, kWidth)})});
}

}  // namespace quench::testing
