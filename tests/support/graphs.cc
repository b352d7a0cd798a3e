#include "tests/support/graphs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/ops/evaluate.h"
#include "common/ops/op.h"

namespace quench::testing {

Tensor RandomTensor(const std::vector<int64_t>& dims, uint64_t seed) {
  Tensor tensor = Tensor::Zeros(DataType::kF32, dims);
  float* data = reinterpret_cast<float*>(tensor.mutable_bytes());
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    data[i] =
        static_cast<float>(static_cast<double>(state >> 40) / static_cast<double>(1 << 23) - 1.0);
  }
  return tensor;
}

std::vector<Tensor> RandomInputsFor(const Graph& graph, uint64_t seed, int64_t symbol_size) {
  std::vector<Tensor> inputs;
  for (const ValueId id : graph.inputs) {
    std::vector<int64_t> dims;
    for (const Dim dim : graph.value(id).type.dims)
      dims.push_back(dim.is_static() ? dim.value() : symbol_size);
    const Tensor floats = RandomTensor(dims, seed++);
    const DataType dtype = graph.value(id).type.dtype;
    if (dtype != DataType::kI8 && dtype != DataType::kU8) {
      inputs.push_back(floats);
      continue;
    }
    Tensor bytes = Tensor::Zeros(dtype, dims);
    for (int64_t i = 0; i < bytes.size(); ++i) {
      const double byte = std::floor((floats.FloatAt(i) + 1) * 128);
      bytes.mutable_bytes()[i] = static_cast<std::byte>(static_cast<uint8_t>(byte));
    }
    inputs.push_back(std::move(bytes));
  }
  return inputs;
}

ValueId Add(Graph& graph, const std::string& op, std::vector<ValueId> inputs,
            std::map<std::string, Attribute> attributes, const std::string& name) {
  const NodeId id =
      graph.AddNode(op, name.empty() ? op : name, std::move(inputs), 1, std::move(attributes));
  const absl::Status status = ops::InferNode(graph, graph.node(id));
  EXPECT_TRUE(status.ok()) << status;
  return graph.node(id).outputs[0];
}

int CountOps(const Graph& graph, const std::string& op) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [&](const Node& node) { return node.op == op; }));
}

double Difference(const Graph& a, const Graph& b, uint64_t seed) {
  const std::vector<Tensor> inputs = RandomInputsFor(a, seed);
  const auto first = ops::Evaluate(a, inputs);
  const auto second = ops::Evaluate(b, inputs);
  EXPECT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(second.ok()) << second.status();
  if (!first.ok() || !second.ok() || first->size() != second->size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < first->size(); ++i)
    worst = std::max(worst, RelativeError((*second)[i], (*first)[i]));
  return worst;
}

}  // namespace quench::testing
