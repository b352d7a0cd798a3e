#include "tests/unit/services/analyser/published_networks.h"

#include <fmt/format.h>

#include "tests/support/graphs.h"

namespace quench::testing {
namespace {

using Ints = std::vector<int64_t>;
using Attributes = std::map<std::string, Attribute>;

class Net {
 public:
  explicit Net(const std::string& name) { graph_.name = name; }

  ValueId Image() {
    return graph_.AddInput("input", Type::Tensor(DataType::kF32, {1, 3, 224, 224}));
  }
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, const std::string& name,
             Attributes attributes = {}) {
    const ValueId y = Add(graph_, op, std::move(inputs), std::move(attributes), name);
    graph_.node(graph_.value(y).producer).origin = name;
    return y;
  }
  ValueId Weight(const Ints& dims) {
    ++weights_;
    return graph_.AddConstant("w", RandomTensor(dims, static_cast<uint64_t>(weights_)));
  }
  ValueId Ints64(const Ints& values) { return graph_.AddConstant("c", Tensor::I64(values)); }
  ValueId Index(int64_t value) {
    return graph_.AddConstant("c", Tensor::Of<int64_t>(DataType::kI64, {}, {value}));
  }
  ValueId Number(float value) { return graph_.AddConstant("c", Tensor::ScalarF32(value)); }
  int64_t DimOf(ValueId x, size_t axis) const { return graph_.value(x).type.dims[axis].value(); }

  struct ConvShape {
    int64_t channels, kernel, stride = 1, group = 1;
    bool bias = false;
  };
  ValueId Conv(ValueId x, const ConvShape& shape, const std::string& name) {
    const int64_t k = shape.kernel, pad = (k - 1) / 2;
    std::vector<ValueId> inputs = {x, Weight({shape.channels, DimOf(x, 1) / shape.group, k, k})};
    if (shape.bias) inputs.push_back(Weight({shape.channels}));
    return Op("Conv", inputs, name,
              {{"kernel_shape", Ints{k, k}},
               {"strides", Ints{shape.stride, shape.stride}},
               {"group", shape.group},
               {"pads", Ints{pad, pad, pad, pad}}});
  }
  ValueId MaxPool(ValueId x, int64_t kernel, int64_t stride, const Ints& pads,
                  const std::string& name, int64_t ceil = 0) {
    return Op("MaxPool", {x}, name,
              {{"kernel_shape", Ints{kernel, kernel}},
               {"strides", Ints{stride, stride}},
               {"pads", pads},
               {"ceil_mode", ceil}});
  }
  ValueId Dense(ValueId x, int64_t outputs, const std::string& name) {
    return Op("Gemm", {x, Weight({outputs, DimOf(x, 1)}), Weight({outputs})}, name,
              {{"transB", int64_t{1}}});
  }
  Graph Finish(ValueId output) {
    graph_.outputs = {output};
    return std::move(graph_);
  }

 private:
  Graph graph_;
  int weights_ = 0;
};

struct Inception {
  const char* name;
  int64_t a, b1, b2, c1, c2, d;
};
const std::vector<std::vector<Inception>>& Stages() {
  static const auto* const stages = new std::vector<std::vector<Inception>>{
      {{"3a", 64, 96, 128, 16, 32, 32}, {"3b", 128, 128, 192, 32, 96, 64}},
      {{"4a", 192, 96, 208, 16, 48, 64},
       {"4b", 160, 112, 224, 24, 64, 64},
       {"4c", 128, 128, 256, 24, 64, 64},
       {"4d", 112, 144, 288, 32, 64, 64},
       {"4e", 256, 160, 320, 32, 128, 128}},
      {{"5a", 256, 160, 320, 32, 128, 128}, {"5b", 384, 192, 384, 48, 128, 128}}};
  return *stages;
}

ValueId BasicConv(Net& n, ValueId x, int64_t channels, int64_t kernel, const std::string& name,
                  int64_t stride = 1) {
  const ValueId y = n.Conv(x, {channels, kernel, stride}, name + "/conv/Conv");
  std::vector<ValueId> inputs = {y};
  for (int i = 0; i < 4; ++i) inputs.push_back(n.Weight({channels}));
  return n.Op("Relu", {n.Op("BatchNormalization", inputs, name + "/bn/BatchNormalization")},
              name + "/Relu");
}

// A convolution with bias and a Relu, as the zoo's file has them.
ValueId ZooConv(Net& n, ValueId x, int64_t channels, int64_t kernel, const std::string& name,
                int64_t stride = 1) {
  const ValueId y =
      n.Conv(x, {.channels = channels, .kernel = kernel, .stride = stride, .bias = true}, name);
  return n.Op("Relu", {y}, name + "_relu");
}

}  // namespace

Graph TorchvisionGoogLeNet() {
  Net n("googlenet");
  const Ints none(4, 0), ones(4, 1);
  ValueId x = BasicConv(n, n.Image(), 64, 7, "/conv1", 2);
  x = n.MaxPool(x, 3, 2, none, "/maxpool1/MaxPool", 1);
  x = BasicConv(n, BasicConv(n, x, 64, 1, "/conv2"), 192, 3, "/conv3");
  x = n.MaxPool(x, 3, 2, none, "/maxpool2/MaxPool", 1);
  for (size_t i = 0; i < Stages().size(); ++i) {
    for (const Inception& w : Stages()[i]) {
      const std::string at = fmt::format("/inception{}", w.name);
      // torch's exporter writes a scope's own name before its parts.
      const auto branch = [&](int number, int part) {
        return fmt::format("{}/branch{}/branch{}.{}", at, number, number, part);
      };
      const ValueId a = BasicConv(n, x, w.a, 1, at + "/branch1");
      const ValueId b = BasicConv(n, BasicConv(n, x, w.b1, 1, branch(2, 0)), w.b2, 3, branch(2, 1));
      const ValueId c = BasicConv(n, BasicConv(n, x, w.c1, 1, branch(3, 0)), w.c2, 3, branch(3, 1));
      const ValueId d = BasicConv(n, n.MaxPool(x, 3, 1, ones, branch(4, 0) + "/MaxPool", 1), w.d, 1,
                                  branch(4, 1));
      x = n.Op("Concat", {a, b, c, d}, at + "/Concat", {{"axis", int64_t{1}}});
    }
    if (i < 2)
      x = n.MaxPool(x, i == 0 ? 3 : 2, 2, none, fmt::format("/maxpool{}/MaxPool", i + 3), 1);
  }
  x = n.Op("GlobalAveragePool", {x}, "/avgpool/GlobalAveragePool");
  return n.Finish(n.Dense(n.Op("Flatten", {x}, "/Flatten"), 1000, "/fc/Gemm"));
}

Graph ZooGoogLeNet() {
  Net n("googlenet-12");
  const Ints ends{0, 0, 2, 2}, ones(4, 1);
  const Attributes norm = {{"size", int64_t{5}}, {"alpha", 1e-4}, {"beta", 0.75}, {"bias", 1.0}};
  ValueId x = n.MaxPool(ZooConv(n, n.Image(), 64, 7, "conv1", 2), 3, 2, ends, "pool1");
  x = ZooConv(n, n.Op("LRN", {x}, "pool1_norm1", norm), 64, 1, "conv2_reduce");
  x = n.Op("LRN", {ZooConv(n, x, 192, 3, "conv2")}, "conv2_norm2", norm);
  x = n.MaxPool(x, 3, 2, ends, "pool2");
  for (size_t i = 0; i < Stages().size(); ++i) {
    for (const Inception& w : Stages()[i]) {
      const std::string at = fmt::format("inception_{}_", w.name);
      const ValueId a = ZooConv(n, x, w.a, 1, at + "1x1");
      const ValueId b = ZooConv(n, ZooConv(n, x, w.b1, 1, at + "3x3_reduce"), w.b2, 3, at + "3x3");
      const ValueId c = ZooConv(n, ZooConv(n, x, w.c1, 1, at + "5x5_reduce"), w.c2, 5, at + "5x5");
      const ValueId d = ZooConv(n, n.MaxPool(x, 3, 1, ones, at + "pool"), w.d, 1, at + "pool_proj");
      x = n.Op("Concat", {a, b, c, d}, at + "output", {{"axis", int64_t{1}}});
    }
    if (i < 2) x = n.MaxPool(x, 3, 2, ends, fmt::format("pool{}", i + 3));
  }
  x = n.Op("AveragePool", {x}, "pool5",
           {{"kernel_shape", Ints{7, 7}}, {"strides", Ints{1, 1}}, {"pads", Ints(4, 0)}});
  x = n.Op("Reshape", {n.Op("Dropout", {x}, "dropout"), n.Ints64({1, 1024})}, "reshape");
  return n.Finish(
      n.Op("Softmax", {n.Dense(x, 1000, "classifier")}, "prob", {{"axis", int64_t{1}}}));
}

Graph ZooMobileNetV2() {
  Net n("mobilenetv2-10");
  int count = 0;
  const auto name = [&count](const char* op) { return fmt::format("{}_{}", op, count++); };
  const auto conv = [&](ValueId x, int64_t channels, int64_t kernel, int64_t stride = 1,
                        int64_t group = 1) {
    return n.Conv(x, {channels, kernel, stride, group, true}, name("Conv"));
  };
  const auto clip = [&](ValueId x) {
    const std::string own = name("Clip");
    return n.Op("Clip", {x, n.Number(0), n.Number(6)}, own);
  };
  ValueId x = clip(conv(n.Image(), 32, 3, 2));
  struct Stage {
    int64_t expand, channels, count, stride;
  };
  for (const Stage& s :
       {Stage{1, 16, 1, 1}, Stage{6, 24, 2, 2}, Stage{6, 32, 3, 2}, Stage{6, 64, 4, 2},
        Stage{6, 96, 3, 1}, Stage{6, 160, 3, 2}, Stage{6, 320, 1, 1}}) {
    for (int64_t i = 0; i < s.count; ++i) {
      const int64_t in = n.DimOf(x, 1), wide = in * s.expand;
      ValueId y = s.expand == 1 ? x : clip(conv(x, wide, 1));
      y = clip(conv(y, wide, 3, i == 0 ? s.stride : 1, wide));
      y = conv(y, s.channels, 1);
      x = i > 0 ? n.Op("Add", {x, y}, name("Add")) : y;
    }
  }
  x = clip(conv(x, 1280, 1));
  const ValueId pooled = n.Op("GlobalAveragePool", {x}, name("GlobalAveragePool"));
  const ValueId shape = n.Op("Shape", {x}, name("Shape"));
  // Constant_99 is a constant here.
  ++count;
  const ValueId batch = n.Op("Gather", {shape, n.Index(0)}, name("Gather"), {{"axis", int64_t{0}}});
  const ValueId row = n.Op("Unsqueeze", {batch, n.Ints64({0})}, name("Unsqueeze"));
  const ValueId sizes =
      n.Op("Concat", {row, n.Ints64({-1})}, name("Concat"), {{"axis", int64_t{0}}});
  const ValueId flat = n.Op("Reshape", {pooled, sizes}, name("Reshape"));
  return n.Finish(n.Dense(flat, 1000, name("Gemm")));
}

}  // namespace quench::testing
