// Stores weights and activations as f16 or bf16; sums are still f32.
//   pre: options.store_as, or a type among options.node_types, is one of them, types inferred; else
//   nothing happens
//   x: f32 -> Conv(W: f32) -> y: f32 -> Softmax -> z: f32
//     ==>   x: f32 -> Cast -> Conv(W: f16) -> y: f16 -> Cast -> Softmax -> z: f32
//   Inputs and outputs of the graph keep their types. The operators that compute in 16 bits (kStored
//   below) only move numbers, or are computed by kernels in f32 registers and rounded once; the rest
//   stays f32: sums and variances, whose rounding 16 bits do not bear; in f16, exponentials, powers and
//   operators that read or make values that f16 may not hold; in bf16, constants near the end of f32's
//   range and their readers (float16_ranges.cc). KeptInFloat32 names those that stay, with the reason.
//   Where node_types give neighbours different types, a value is cast for each type that reads it.
//   cases: tests/cases/passes/store_float16*.ir.txt, store_bfloat16.ir.txt, store_mixed.ir.txt
#include <algorithm>
#include <map>
#include <set>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "common/ops/pointwise.h"
#include "common/passes/float16.h"
#include "common/passes/float16_ranges.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

struct Reason {
  std::string_view op, text;
};
// Operators that stay f32, with the reason that the report gives: the first two for f16 alone.
constexpr Reason kBeyondF16[] = {{"Exp", "exp overflows f16 from 11.09 on"},
                                 {"Pow", "powers leave the range of f16"}};
constexpr Reason kKept[] = {
    {"Softmax", "sums of exponentials"},
    {"LogSoftmax", "sums of exponentials"},
    {"BatchNormalization", "a variance"},
    {"InstanceNormalization", "a variance"},
    {"GroupNormalization", "a variance"},
    {"LayerNormalization", "a variance"},
    {"RMSNormalization", "a mean of squares"},
    {"MeanVarianceNormalization", "a variance"},
    {"LpNormalization", "a sum"},
    {"LRN", "a sum of squares"},
    {"LSTM", "a recurrence; the products of its inputs are in bf16 with --bfloat16"},
    {"GRU", "a recurrence; the products of its inputs are in bf16 with --bfloat16"},
    {"RNN", "a recurrence; the products of its inputs are in bf16 with --bfloat16"},
    {"CumSum", "a sum"},
    {"CumProd", "a product of many factors"},
};

// Operators beside pointwise ones that work on f16 and bf16 as well as on f32.
constexpr std::string_view kStored[] = {"Conv",          "ConvTranspose",
                                        "MatMul",        "Gemm",
                                        "Concat",        "Split",
                                        "Slice",         "Transpose",
                                        "Reshape",       "Flatten",
                                        "Squeeze",       "Unsqueeze",
                                        "Identity",      "Expand",
                                        "Pad",           "Gather",
                                        "Tile",          "DepthToSpace",
                                        "MaxPool",       "AveragePool",
                                        "GlobalMaxPool", "SpaceToDepth",
                                        "Resize",        "GatherElements",
                                        "ScatterND",     "GlobalAveragePool",
                                        "GatherND",      "CenterCropPad"};

bool IsF32(const Graph& graph, ValueId id) {
  if (id == kNone) return false;
  const Type& type = graph.value(id).type;
  return type.kind == ValueKind::kTensor && type.dtype == DataType::kF32;
}

// Whether input `i` of a node is of the type that its result has.
bool IsData(const Graph& graph, const Node& node, size_t i) {
  return IsF32(graph, node.inputs[i]) && (node.op != "Resize" || i == 0);
}

// Why a node that gives f32 does not give f16 or bf16: `range` if nothing else forbids it; empty
// where it may.
std::string WhyNodeFloat32(const Graph& graph, const Node& node, const PassOptions& options,
                           const std::string& range) {
  const bool f16 = options.store_as == DataType::kF16;
  for (const std::span<const Reason> reasons :
       {std::span<const Reason>(kBeyondF16), std::span<const Reason>(kKept)}) {
    if (reasons.data() == kBeyondF16 && !f16) continue;
    for (const Reason& reason : reasons) {
      if (node.op == reason.op) return std::string(reason.text);
    }
  }
  for (const auto& [name, attribute] : node.attributes) {
    if (std::holds_alternative<GraphPtr>(attribute)) return "what its bodies compute stays f32";
  }
  if (node.op.starts_with("Reduce") && node.op != "ReduceMax" && node.op != "ReduceMin")
    return "a sum";
  const bool stored =
      std::find(std::begin(kStored), std::end(kStored), node.op) != std::end(kStored) ||
      node.op == "ReduceMax" || node.op == "ReduceMin";
  const bool quantizes = node.op.starts_with("q.") || node.op.ends_with("Linear");
  if ((!stored && !ops::IsPointwise(node)) || quantizes || node.op == "Cast")
    return fmt::format("there is no {} form of it here", DataTypeName(options.store_as));
  const bool all = std::all_of(node.outputs.begin(), node.outputs.end(),
                               [&](ValueId id) { return id == kNone || IsF32(graph, id); });
  if (!all) return "its results have several types";
  return range;
}

// For each node why it does not give f16 or bf16; empty where it may.
std::vector<std::string> AllWhyFloat32(const Graph& graph, const PassOptions& options) {
  std::vector<std::string> reasons = WhyBeyondRange(graph, options);
  for (size_t i = 0; i < reasons.size(); ++i)
    reasons[i] = WhyNodeFloat32(graph, graph.nodes[i], options, reasons[i]);
  return reasons;
}

const std::string& NameInModel(const Node& node) {
  return node.origin.empty() ? node.name : node.origin;
}

// The type that each node stores: that of the options, or f32 where a reason is against it.
std::vector<DataType> StoredTypes(const Graph& graph, const PassOptions& options) {
  std::map<DataType, std::vector<std::string>> reasons;  // by type, why nodes do not give it
  std::vector<DataType> types;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto own = options.node_types.find(NameInModel(graph.nodes[i]));
    DataType type = own == options.node_types.end() ? options.store_as : own->second;
    if (IsHalf(type)) {
      const auto [known, fresh] = reasons.try_emplace(type);
      if (fresh) {
        PassOptions of_type = options;
        of_type.store_as = type;
        known->second = AllWhyFloat32(graph, of_type);
      }
      if (!known->second[i].empty()) type = DataType::kF32;
    }
    types.push_back(type);
  }
  return types;
}

bool GivesFloats(const Graph& graph, const Node& node) {
  return std::any_of(node.outputs.begin(), node.outputs.end(),
                     [&](ValueId id) { return IsF32(graph, id); });
}

class Storer {
 public:
  Storer(Graph graph, const PassOptions& options) : graph_(std::move(graph)), options_(options) {}

  Graph Run() {
    const std::vector<DataType> types = StoredTypes(graph_, options_);
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (size_t index = 0; index < nodes.size(); ++index) {
      Node& node = nodes[index];
      const DataType type = types[index];
      const bool narrow = IsHalf(type) && GivesFloats(graph_, node);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueId id = node.inputs[i];
        node.inputs[i] = narrow && IsData(graph_, node, i) ? Half(id, type) : Full(id);
      }
      for (size_t i = 0; narrow && i < node.outputs.size(); ++i) {
        if (node.outputs[i] == kNone) continue;
        const ValueId half = NewHalf(node.outputs[i], type);
        missing_[node.outputs[i]] = half;
        node.outputs[i] = half;
      }
      Append(std::move(node));
    }
    for (const ValueId id : graph_.outputs) Full(id);
    graph_.Compact();
    return std::move(graph_);
  }

 private:
  void Append(Node node) {
    for (const ValueId id : node.outputs) {
      if (id != kNone) graph_.value(id).producer = static_cast<NodeId>(graph_.nodes.size());
    }
    graph_.nodes.push_back(std::move(node));
  }

  void AppendCast(ValueId from, ValueId to) {
    Node cast;
    cast.op = "Cast";
    cast.name = graph_.value(to).name + ".cast";
    cast.inputs = {from};
    cast.outputs = {to};
    cast.attributes["to"] = static_cast<int64_t>(graph_.value(to).type.dtype);
    Append(std::move(cast));
  }

  ValueId NewHalf(ValueId id, DataType half) {
    Type type = graph_.value(id).type;
    type.dtype = half;
    return halves_[{id, half}] = graph_.AddValue(NameOf(graph_.value(id), half), type);
  }

  static std::string NameOf(const Value& value, DataType half) {
    return fmt::format("{}.{}", value.name, DataTypeName(half));
  }

  // An f32 value in 16 bits: what a node stored, or made here.
  ValueId Half(ValueId id, DataType half) {
    if (const auto found = halves_.find({id, half}); found != halves_.end()) return found->second;
    const Value value = graph_.value(id);
    if (value.constant == nullptr) {
      // The value may be there in the other 16 bits alone.
      const auto other = missing_.find(id);
      AppendCast(other == missing_.end() ? id : other->second, NewHalf(id, half));
      return halves_[{id, half}];
    }
    const Tensor& tensor = value.constant->tensor;
    Tensor stored = Tensor::Floats(half, tensor.dims(), tensor.as<float>());
    return halves_[{id, half}] = graph_.AddConstant(NameOf(value, half), std::move(stored));
  }

  // A value as what stays f32 reads it.
  ValueId Full(ValueId id) {
    if (const auto found = missing_.find(id); found != missing_.end()) {
      const ValueId half = found->second;
      missing_.erase(found);
      AppendCast(half, id);
    }
    return id;
  }

  Graph graph_;
  const PassOptions& options_;
  std::map<std::pair<ValueId, DataType>, ValueId> halves_;  // f32 values -> the same in 16 bits
  std::map<ValueId, ValueId> missing_;  // f32 values that are there in 16 bits alone -> those
};

}  // namespace

absl::StatusOr<Graph> StoreFloat16(Graph graph, const PassOptions& options,
                                   const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(context.Check());
  const bool any =
      IsHalf(options.store_as) || std::any_of(options.node_types.begin(), options.node_types.end(),
                                              [](const auto& type) { return IsHalf(type.second); });
  if (!any) return graph;
  return Storer(std::move(graph), options).Run();
}

std::vector<KeptFloat32> KeptInFloat32(const Graph& graph, const PassOptions& options) {
  std::vector<KeptFloat32> kept;
  std::vector<std::string> reasons = AllWhyFloat32(graph, options);
  for (size_t i = 0; i < reasons.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.op == "Cast" || !GivesFloats(graph, node)) continue;
    kept.push_back({NameInModel(node), node.op, std::move(reasons[i])});
  }
  return kept;
}

std::vector<std::string> WhyFloat32(const Graph& graph, const PassOptions& options) {
  std::vector<std::string> reasons = AllWhyFloat32(graph, options);
  for (size_t i = 0; i < reasons.size(); ++i) {
    if (!GivesFloats(graph, graph.nodes[i])) reasons[i].clear();
  }
  return reasons;
}

}  // namespace quench::passes
