// Runs single operators on small tensors, and compares what comes out.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "common/ops/evaluate.h"
#include "common/ops/op.h"

namespace quench::ops {

using Attributes = std::map<std::string, Attribute>;
using Dims = std::vector<int64_t>;
using Operands = std::vector<std::optional<Tensor>>;  // nullopt: omitted

inline Tensor F32(Dims dims, const std::vector<float>& values) {
  return Tensor::Of(DataType::kF32, std::move(dims), values);
}
inline Tensor F64(Dims dims, const std::vector<double>& values) {
  return Tensor::Of(DataType::kF64, std::move(dims), values);
}
inline Tensor I32(Dims dims, const std::vector<int32_t>& values) {
  return Tensor::Of(DataType::kI32, std::move(dims), values);
}
inline Tensor I64(Dims dims, const std::vector<int64_t>& values) {
  return Tensor::Of(DataType::kI64, std::move(dims), values);
}
inline Tensor U8(Dims dims, const std::vector<uint8_t>& values) {
  return Tensor::Of(DataType::kU8, std::move(dims), values);
}
inline Tensor I8(Dims dims, const std::vector<int8_t>& values) {
  return Tensor::Of(DataType::kI8, std::move(dims), values);
}
inline Tensor Bool(Dims dims, const std::vector<uint8_t>& values) {
  return Tensor::Of(DataType::kBool, std::move(dims), values);
}
// 0, 1, 2, ...
inline Tensor Iota(Dims dims, float start = 0) {
  std::vector<float> values(static_cast<size_t>(*ElementCount(dims)));
  for (float& value : values) value = start++;
  return F32(std::move(dims), values);
}
inline std::vector<double> Doubles(const Tensor& tensor) {
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.size(); ++i) values.push_back(tensor.FloatAt(i));
  return values;
}

// A graph with one node: operands are inputs, or constants where `constant` holds their index.
inline Graph OneNode(const std::string& op, const Operands& operands,
                     const Attributes& attributes = {}, int outputs = 1,
                     const std::vector<size_t>& constant = {}) {
  Graph graph;
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i]) {
      inputs.push_back(kNone);
    } else if (std::find(constant.begin(), constant.end(), i) != constant.end()) {
      inputs.push_back(graph.AddConstant("c" + std::to_string(i), *operands[i]));
    } else {
      const std::vector<int64_t>& dims = operands[i]->dims();
      inputs.push_back(graph.AddInput(
          "x" + std::to_string(i), Type::Tensor(operands[i]->dtype(), {dims.begin(), dims.end()})));
    }
  }
  const NodeId node = graph.AddNode(op, "n", inputs, outputs, attributes);
  graph.outputs = graph.node(node).outputs;
  return graph;
}

inline absl::StatusOr<std::vector<Tensor>> TryOp(const std::string& op, const Operands& operands,
                                                 const Attributes& attributes = {},
                                                 int outputs = 1) {
  const Graph graph = OneNode(op, operands, attributes, outputs);
  std::vector<const Tensor*> inputs;
  for (const auto& operand : operands) inputs.push_back(operand ? &*operand : nullptr);
  return EvaluateNode(graph.nodes[0], inputs);
}

// The outputs; a failure is a test failure and gives empty tensors.
inline std::vector<Tensor> RunOp(const std::string& op, const Operands& operands,
                                 const Attributes& attributes = {}, int outputs = 1) {
  absl::StatusOr<std::vector<Tensor>> results = TryOp(op, operands, attributes, outputs);
  EXPECT_TRUE(results.ok()) << results.status();
  if (!results.ok()) return std::vector<Tensor>(static_cast<size_t>(outputs));
  return *std::move(results);
}

inline void ExpectTensor(const Tensor& actual, const Dims& dims, const std::vector<double>& values,
                         double tolerance = 1e-6) {
  EXPECT_EQ(actual.dims(), dims);
  ASSERT_EQ(static_cast<size_t>(actual.size()), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const double got = actual.FloatAt(static_cast<int64_t>(i));
    if (std::isnan(values[i])) {
      EXPECT_TRUE(std::isnan(got)) << "element " << i;
    } else if (std::isinf(values[i])) {
      EXPECT_EQ(got, values[i]) << "element " << i;
    } else {
      EXPECT_NEAR(got, values[i], tolerance * std::max(1.0, std::fabs(values[i])))
          << "element " << i;
    }
  }
}

// The operator fails with a text that contains `part`.
inline void ExpectError(const absl::StatusOr<std::vector<Tensor>>& results,
                        const std::string& part) {
  ASSERT_FALSE(results.ok());
  EXPECT_NE(std::string(results.status().message()).find(part), std::string::npos)
      << results.status();
}

}  // namespace quench::ops
