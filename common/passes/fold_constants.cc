// Computes what depends on constants only.
//   pre: types inferred, topological order
//   c1 -> Transpose -> t; x, t -> MatMul   ==>   x, c1' -> MatMul
//   c -> If {capture c; x, Transpose(c) -> MatMul}   ==>   If {x, c' -> MatMul}
//   A result may not be much larger than what it is computed from: a 4 KB Expand that gives 4 GB
//   stays a node.
//   case: FoldConstantsTest
#include <algorithm>

#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "common/ops/op.h"
#include "common/passes/dequantized.h"
#include "common/passes/fold.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

constexpr int64_t kAlwaysFoldBytes = int64_t{1} << 20;
constexpr int64_t kGrowth = 4;
constexpr int64_t kMaxMacs = 200'000'000;

int64_t BytesOf(const Type& type) {
  if (!type.is_static()) return kUnbounded;
  std::vector<int64_t> dims;
  for (const Dim dim : type.dims) dims.push_back(dim.value());
  const std::optional<int64_t> count = ElementCount(dims);
  return count && *count < (int64_t{1} << 50) ? DataTypeBytes(type.dtype, *count) : kUnbounded;
}

bool IsTensor(const Type& type) {
  return type.kind == ValueKind::kTensor && type.dtype != DataType::kString &&
         type.dtype != DataType::kUndefined;
}

bool ShouldFold(const Graph& graph, const Node& node) {
  if (node.inputs.empty()) return false;
  const ops::OpDef* op = ops::FindOp(node.op);
  if (op == nullptr || op->kind == ops::OpKind::kControl) return false;
  int64_t input_bytes = 0;
  for (const ValueId id : node.inputs) {
    if (id == kNone) continue;
    if (ConstantOf(graph, id) == nullptr || !IsTensor(graph.value(id).type)) return false;
    const Type& type = graph.value(id).type;
    const int64_t bytes = BytesOf(type);  // several numbers of a byte count as a byte each
    input_bytes += DataTypeBits(type.dtype) > 0 && DataTypeBits(type.dtype) < 8
                       ? bytes * (8 / DataTypeBits(type.dtype))
                       : bytes;
  }
  int64_t output_bytes = 0;
  for (const ValueId id : node.outputs) {
    if (id == kNone) continue;
    if (!IsTensor(graph.value(id).type)) return false;
    const int64_t bytes = BytesOf(graph.value(id).type);
    if (bytes == kUnbounded) return false;
    output_bytes += bytes;
  }
  if (output_bytes > std::max(kAlwaysFoldBytes, kGrowth * input_bytes)) return false;
  if (op->macs == nullptr) return true;
  const Dim macs = op->macs(ops::ContextOf(graph, node));
  return macs.is_static() && macs.value() <= kMaxMacs;
}

bool IsDequantized(const Graph& graph, ValueId id) {
  const NodeId producer = id == kNone ? kNone : graph.value(id).producer;
  return producer != kNone && graph.node(producer).op == "DequantizeLinear";
}

// Nodes that dequantize (and transpose) constants for a product whose other side is quantized too, or
// that can read them as they are: codegen's passes on integers compute that.
std::vector<bool> KeptForIntegers(const Graph& graph) {
  std::vector<bool> kept(graph.nodes.size(), false);
  for (const Node& node : graph.nodes) {
    const bool product = node.op == "Conv" || node.op == "Gemm" || node.op == "MatMul";
    if (product && HasStoredMatrix(graph, node))
      kept[static_cast<size_t>(graph.value(node.inputs[1]).producer)] = true;
    const bool recurrent = node.op == "LSTM" || node.op == "GRU" || node.op == "RNN";
    for (const size_t i : {1U, 2U}) {
      if (recurrent && ReadRecurrentKernel(graph, node.inputs[i]))
        kept[static_cast<size_t>(graph.value(node.inputs[i]).producer)] = true;
    }
    if (HasStoredTable(graph, node))
      kept[static_cast<size_t>(graph.value(node.inputs[0]).producer)] = true;
    const bool transposed = node.op == "ConvTranspose";  // a convolution later
    if ((!product && !transposed) || !IsDequantized(graph, node.inputs[0])) continue;
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      ValueId id = node.inputs[i];
      while (id != kNone && graph.value(id).producer != kNone) {
        const NodeId producer = graph.value(id).producer;
        const std::string& op = graph.node(producer).op;
        if (op != "DequantizeLinear" && (op != "Transpose" || transposed)) break;
        kept[static_cast<size_t>(producer)] = true;
        id = op == "Transpose" ? graph.node(producer).inputs[0] : kNone;
      }
    }
  }
  return kept;
}

absl::StatusOr<std::vector<Tensor>> Evaluate(const Graph& graph, const Node& node,
                                             const StepContext& context) {
  std::vector<const Tensor*> inputs;
  for (const ValueId id : node.inputs) inputs.push_back(ConstantOf(graph, id));
  absl::StatusOr<std::vector<Tensor>> results = ops::EvaluateNode(node, inputs, context);
  if (!results.ok()) return Annotate(results.status(), fmt::format("node `{}`", node.name));
  return results;
}

}  // namespace

absl::Status FoldNode(Graph& graph, const Node& node, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(std::vector<Tensor> results, Evaluate(graph, node, context));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId id = node.outputs[i];
    if (id == kNone || graph.IsOutput(id)) continue;  // an output keeps its producer
    const std::string name = graph.value(id).name;
    const ValueId constant = graph.AddConstant(name, std::move(results[i]));
    graph.ReplaceUses(id, constant);
  }
  return absl::OkStatus();
}

absl::Status FoldIfConstant(Graph& graph, NodeId id, const StepContext& context) {
  const Node node = graph.node(id);
  return ShouldFold(graph, node) ? FoldNode(graph, node, context) : absl::OkStatus();
}

absl::Status FoldDequantized(Graph& graph, const StepContext& context) {
  const size_t nodes = graph.nodes.size();
  for (size_t i = 0; i < nodes; ++i)
    QUENCH_RETURN_IF_ERROR(FoldIfConstant(graph, static_cast<NodeId>(i), context));
  graph.Compact();
  return absl::OkStatus();
}

absl::StatusOr<Graph> FoldDequantizedConstants(Graph graph, const PassOptions& options,
                                               const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(FoldDequantized(graph, context));
  QUENCH_RETURN_IF_ERROR(ForEachBody(graph, [&](Graph body) {
    return FoldDequantizedConstants(std::move(body), options, context);
  }));
  return graph;
}

absl::StatusOr<Tensor> EvaluateConstant(const Graph& graph, const Node& node,
                                        const StepContext& context) {
  for (const ValueId input : node.inputs) {
    if (input != kNone && ConstantOf(graph, input) == nullptr)
      return InvalidArgument("node `{}`: an input is not a constant", node.name);
  }
  QUENCH_ASSIGN_OR_RETURN(std::vector<Tensor> results, Evaluate(graph, node, context));
  return std::move(results[0]);
}

absl::StatusOr<Graph> FoldConstants(Graph graph, const PassOptions& options,
                                    const StepContext& context) {
  const std::vector<bool> kept = KeptForIntegers(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    if (!kept[i] && ShouldFold(graph, graph.nodes[i]))
      QUENCH_RETURN_IF_ERROR(FoldNode(graph, Node(graph.nodes[i]), context));
  }
  MoveConstantsIntoBodies(graph);  // what was computed here may be what a body waits for
  graph.Compact();
  QUENCH_RETURN_IF_ERROR(ForEachBody(
      graph, [&](Graph body) { return FoldConstants(std::move(body), options, context); }));
  return graph;
}

}  // namespace quench::passes
