// Runs an operator whose inputs are not known when it is lowered, as compiled code runs it: types
// are inferred from shapes alone, then the loops that compute runtime sizes run, then the node's
// own.
#pragma once

#include <cstring>

#include "common/loops/interpreter.h"
#include "tests/unit/common/ops/run_op.h"

namespace quench::ops {

// One node with symbolic input dims: every dim of an operand that is not constant is a symbol of
// its own.
inline Graph SymbolicNode(const std::string& op, const Operands& operands,
                          const Attributes& attributes = {}, int outputs = 1,
                          const std::vector<size_t>& constant = {}) {
  Graph graph = OneNode(op, operands, attributes, outputs, constant);
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    Type& type = graph.value(graph.inputs[i]).type;
    for (int axis = 0; axis < type.rank(); ++axis) {
      const std::string name = "d" + std::to_string(i) + "_" + std::to_string(axis);
      const InputAxis source{static_cast<int>(i), axis};
      type.dims[static_cast<size_t>(axis)] =
          Dim::OfSymbol(graph.symbols->AddInput(name, source, {0, 4096}));
    }
  }
  return graph;
}

// Runs the only node of `graph` on the operands of its graph inputs, in order.
inline absl::StatusOr<std::vector<Tensor>> TryLowered(Graph graph,
                                                      const std::vector<Tensor>& inputs) {
  if (const absl::Status status = InferGraph(graph); !status.ok()) return status;
  const OpContext context = ContextOf(graph, graph.nodes[0]);
  std::vector<Tensor> operands;
  size_t next = 0;
  for (const ValueId id : graph.nodes[0].inputs) {
    if (id == kNone) continue;
    const Value& value = graph.value(id);
    operands.push_back(value.constant != nullptr ? value.constant->tensor : inputs[next++]);
  }
  std::vector<loops::BufferView> views;
  for (Tensor& operand : operands) views.push_back({operand.mutable_bytes(), operand.dims()});

  std::vector<int64_t> slots(static_cast<size_t>(graph.symbols->size()), -1);
  for (SymbolId id = 0; id < graph.symbols->size(); ++id) {
    if (const auto* axis = std::get_if<InputAxis>(&graph.symbols->at(id).definition)) {
      slots[static_cast<size_t>(id)] =
          inputs[static_cast<size_t>(axis->input)].dims()[static_cast<size_t>(axis->axis)];
    }
  }
  const auto resolve = [&]() -> absl::Status {
    slots.resize(static_cast<size_t>(graph.symbols->size()), -1);
    absl::StatusOr<std::vector<int64_t>> all = graph.symbols->Evaluate(slots);
    if (all.ok()) slots = *std::move(all);
    return all.status();
  };
  if (const absl::Status status = resolve(); !status.ok()) return status;
  const auto sizes = LowerSizes(context);
  if (!sizes.ok()) return sizes.status();
  if (*sizes) {
    if (const absl::Status status = loops::Interpret(**sizes, views, slots); !status.ok())
      return status;
    if (const absl::Status status = resolve(); !status.ok()) return status;
  }
  const auto function = LowerNode(context);
  if (!function.ok()) return function.status();
  if (const absl::Status status = resolve(); !status.ok()) return status;
  std::vector<Tensor> outputs;
  for (int i = 0; i < context.num_outputs(); ++i) {
    std::vector<int64_t> dims;
    for (const Dim dim : context.output(i).dims) dims.push_back(SymbolTable::ValueOf(dim, slots));
    outputs.push_back(Tensor::Zeros(context.output(i).dtype, dims));
  }
  if (FindOp(graph.nodes[0].op)->updates) {
    std::memcpy(outputs[0].mutable_bytes(), operands[0].bytes().data(), outputs[0].bytes().size());
  }
  for (Tensor& output : outputs) views.push_back({output.mutable_bytes(), output.dims()});
  const absl::Status status = loops::Interpret(*function, views, slots);
  if (!status.ok()) return status;
  return outputs;
}

// The outputs with nothing but shapes (and the operands in `constant`) known beforehand; a failure
// is a test failure.
inline std::vector<Tensor> RunUnknown(const std::string& op, const Operands& operands,
                                      const Attributes& attributes = {}, int outputs = 1,
                                      const std::vector<size_t>& constant = {}) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i] && std::find(constant.begin(), constant.end(), i) == constant.end())
      inputs.push_back(*operands[i]);
  }
  auto results = TryLowered(OneNode(op, operands, attributes, outputs, constant), inputs);
  EXPECT_TRUE(results.ok()) << results.status();
  if (!results.ok()) return std::vector<Tensor>(static_cast<size_t>(outputs));
  return *std::move(results);
}

// The same with symbolic dims.
inline std::vector<Tensor> RunSymbolic(const std::string& op, const Operands& operands,
                                       const Attributes& attributes = {}, int outputs = 1,
                                       const std::vector<size_t>& constant = {}) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i] && std::find(constant.begin(), constant.end(), i) == constant.end())
      inputs.push_back(*operands[i]);
  }
  auto results = TryLowered(SymbolicNode(op, operands, attributes, outputs, constant), inputs);
  EXPECT_TRUE(results.ok()) << results.status();
  if (!results.ok()) return std::vector<Tensor>(static_cast<size_t>(outputs));
  return *std::move(results);
}

}  // namespace quench::ops
