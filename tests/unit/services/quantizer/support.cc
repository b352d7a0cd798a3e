#include "tests/unit/services/quantizer/support.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/ir/hash.h"
#include "common/ops/evaluate.h"
#include "services/quantizer/calibrate.h"
#include "tests/support/graphs.h"

namespace quench::quantizer {
namespace {

using ::quench::testing::Add;
using ::quench::testing::RandomInputsFor;
using ::quench::testing::RandomTensor;

// Output channel c of a kernel (or a bias) times 1000^(c / (channels - 1)): a spread of a thousand.
Tensor Uneven(Tensor tensor) {
  const int64_t channels = tensor.dims()[0], run = tensor.size() / channels;
  auto* values = reinterpret_cast<float*>(tensor.mutable_bytes());
  for (int64_t i = 0; i < tensor.size(); ++i) {
    values[i] *= static_cast<float>(
        std::pow(1000.0, static_cast<double>(i / run) / static_cast<double>(channels - 1)));
  }
  return tensor;
}

}  // namespace

Graph ResidualNetwork() {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 3, 8, 8}));
  const Tensor w1 = RandomTensor({4, 3, 3, 3}, 1);
  ValueId y = Add(graph, "Conv",
                  {x, graph.AddConstant("w1", w1), graph.AddConstant("b1", RandomTensor({4}, 2))},
                  {{"pads", std::vector<int64_t>{1, 1, 1, 1}}}, "c1");
  const ValueId r1 = Add(graph, "Relu", {y}, {}, "r1");
  y = Add(graph, "Conv", {r1, graph.AddConstant("w2", RandomTensor({4, 4, 3, 3}, 3))},
          {{"pads", std::vector<int64_t>{1, 1, 1, 1}}}, "c2");
  y = Add(graph, "Add", {y, r1}, {}, "sum");
  y = Add(graph, "Relu", {y}, {}, "r2");
  y = Add(graph, "MaxPool", {y},
          {{"kernel_shape", std::vector<int64_t>{2, 2}}, {"strides", std::vector<int64_t>{2, 2}}},
          "pool");
  y = Add(graph, "Flatten", {y}, {}, "flat");
  y = Add(graph, "Gemm",
          {y, graph.AddConstant("w3", RandomTensor({5, 64}, 4)),
           graph.AddConstant("b3", RandomTensor({5}, 5))},
          {{"transB", int64_t{1}}}, "fc");
  graph.outputs = {y};
  return graph;
}

ValueId UnevenConv(Graph& graph, ValueId x, const std::string& name, std::vector<int64_t> kernel,
                   int64_t group, uint64_t seed, bool uneven) {
  const int64_t outputs = kernel[0];
  Tensor w = RandomTensor(kernel, seed), b = RandomTensor({outputs}, seed + 100);
  if (uneven) {
    w = Uneven(w);
    b = Uneven(b);
  }
  return Add(graph, "Conv",
             {x, graph.AddConstant(name + ".w", w), graph.AddConstant(name + ".b", b)},
             {{"group", group}, {"pads", std::vector<int64_t>{1, 1, 1, 1}}}, name);
}

Graph UnevenBlock(const Activation& activation) {
  Graph graph;
  ValueId y = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 3, 6, 6}));
  y = UnevenConv(graph, y, "expand", {8, 3, 1, 1}, 1, 1);
  y = activation(graph, y, "a1");
  y = UnevenConv(graph, y, "depthwise", {8, 1, 3, 3}, 8, 2, false);
  y = activation(graph, y, "a2");
  y = UnevenConv(graph, y, "project", {4, 8, 1, 1}, 1, 3, false);
  graph.outputs = {y};
  return graph;
}

Statistics Seen(const Graph& graph, int samples) {
  Statistics statistics;
  statistics.fingerprint = Fingerprint(graph);
  const std::map<std::string, int> axes = ChannelAxes(graph);
  const auto take = [&](const std::string& name, const Tensor& tensor) {
    if (!axes.contains(name)) return;
    EXPECT_TRUE(statistics.values[name].Add(tensor, axes.at(name)).ok());
  };
  for (int i = 0; i < samples; ++i) {
    const std::vector<Tensor> inputs = RandomInputsFor(graph, static_cast<uint64_t>(i) + 1);
    for (size_t k = 0; k < inputs.size(); ++k) take(graph.value(graph.inputs[k]).name, inputs[k]);
    ops::EvaluateOptions options;
    options.on_value = take;
    EXPECT_TRUE(ops::Evaluate(graph, inputs, {}, options).ok());
    ++statistics.samples;
  }
  return statistics;
}

}  // namespace quench::quantizer
