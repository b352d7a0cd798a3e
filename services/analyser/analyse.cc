#include <algorithm>

#include "common/base/status.h"
#include "common/ir/hash.h"
#include "common/ir/symbols_spelling.h"
#include "common/ops/work.h"
#include "common/runner/inputs.h"
#include "common/runner/open_sizes.h"
#include "services/analyser/analyser.h"
#include "services/analyser/lifetimes.h"
#include "services/analyser/parameters.h"
#include "services/analyser/roofline.h"
#include "services/analyser/sizes.h"

namespace quench::analyser {
namespace {

std::string TypeText(const Type& type, const SymbolTable& symbols) {
  if (type.kind != ValueKind::kTensor) return "non-tensor";
  std::string text(DataTypeName(type.dtype));
  if (!type.ranked) return text + "[?]";
  text += "[";
  for (size_t i = 0; i < type.dims.size(); ++i)
    text += (i > 0 ? ", " : "") + SpelledOut(symbols, type.dims[i]);
  return text + "]";
}

// 2 per MAC, 1 per addition of a bias and per operation.
int64_t FlopsOf(const Work& work) { return work.macs + work.macs_with_bias + work.operations; }

absl::StatusOr<Work> WorkOfNode(const Graph& graph, const Node& node, Sizes& sizes);

// The dearest branch of an If; the body of a loop once.
absl::StatusOr<Work> WorkOfBodies(const Node& node, Sizes& sizes) {
  Work most;
  for (const auto& [name, attribute] : node.attributes) {
    const GraphPtr* body = std::get_if<GraphPtr>(&attribute);
    if (body == nullptr) continue;
    Work sum;
    for (const Node& inner : (*body)->nodes) {
      QUENCH_ASSIGN_OR_RETURN(const Work work, WorkOfNode(**body, inner, sizes));
      sum += work;
    }
    if (sum.flops > most.flops) most = sum;
  }
  return most;
}

// MACs and operations; nothing of parameters and activations.
absl::StatusOr<Work> WorkOfNode(const Graph& graph, const Node& node, Sizes& sizes) {
  const ops::OpDef* op = ops::FindOp(node.op);
  if (op == nullptr) return Work{};
  if (op->kind == ops::OpKind::kControl) return WorkOfBodies(node, sizes);
  const ops::OpContext context = ops::ContextOf(graph, node);
  const auto count = [&](Dim dim) -> absl::StatusOr<int64_t> {
    QUENCH_ASSIGN_OR_RETURN(const int64_t value, sizes.Of(dim));
    return std::max<int64_t>(value, 0);
  };
  Work work;
  if (op->macs != nullptr) {
    QUENCH_ASSIGN_OR_RETURN(work.macs, count(op->macs(context)));
  }
  QUENCH_ASSIGN_OR_RETURN(const int64_t bias, count(ops::BiasAdditions(*op, context)));
  QUENCH_ASSIGN_OR_RETURN(work.operations, count(ops::Operations(*op, context)));
  const ops::DimValue value = [&](Dim dim) { return sizes.Of(dim).value_or(0); };
  work.macs_with_bias = work.macs + bias;
  work.macs_without_padding = ops::MacsInsideInput(*op, context, value).value_or(work.macs);
  work.operations_with_padding =
      ops::UnevenlyPaddedElements(*op, context, value).value_or(work.operations);
  work.flops = FlopsOf(work);
  return work;
}

// Bytes of the padded input and once more of the output of a pool that pads unevenly.
int64_t NestedBytes(const Graph& graph, const Node& node, Sizes& sizes) {
  const ops::OpDef* op = ops::FindOp(node.op);
  if (op == nullptr) return 0;
  const std::optional<int64_t> padded = ops::UnevenlyPaddedElements(
      *op, ops::ContextOf(graph, node), [&](Dim dim) { return sizes.Of(dim).value_or(0); });
  if (!padded) return 0;
  return DataTypeBytes(graph.value(node.inputs[0]).type.dtype, *padded) +
         sizes.Bytes(graph.value(node.outputs[0]).type);
}

absl::StatusOr<LayerReport> Layer(const Graph& graph, const std::vector<bool>& fixed,
                                  const Node& node, Sizes& sizes) {
  LayerReport layer;
  layer.node = node.origin.empty() ? node.name : node.origin;
  layer.op = node.op;
  if (const ops::OpDef* op = ops::FindOp(node.op); op != nullptr) {
    layer.kind = ops::WorkKindName(ops::WorkOf(*op));
    layer.kernel = ops::KernelText(*op, ops::ContextOf(graph, node));
  }
  QUENCH_ASSIGN_OR_RETURN(layer.work, WorkOfNode(graph, node, sizes));
  for (const ValueId id : node.inputs) {
    if (id == kNone || fixed[static_cast<size_t>(id)]) continue;
    layer.inputs.push_back(TypeText(graph.value(id).type, *graph.symbols));
    layer.input_bytes += sizes.Bytes(graph.value(id).type);
  }
  for (const ValueId id : node.outputs) {
    if (id == kNone) continue;
    layer.outputs.push_back(TypeText(graph.value(id).type, *graph.symbols));
    layer.work.activation_bytes += sizes.Bytes(graph.value(id).type);
  }
  const auto first_of = [&](const std::vector<ValueId>& ids) -> int64_t {
    return ids.empty() || ids[0] == kNone ? 0 : sizes.Bytes(graph.value(ids[0]).type);
  };
  layer.first_input_bytes = first_of(node.inputs);
  layer.first_output_bytes = first_of(node.outputs);
  layer.nested_bytes = NestedBytes(graph, node, sizes);
  return layer;
}

// Nodes by operator, without what only makes constants.
std::map<std::string, int64_t> OperatorsOf(const Graph& graph) {
  std::map<std::string, int64_t> operators;
  ForEachGraph(graph, [&](const Graph& part) {
    const std::vector<bool> fixed = FixedValues(part);
    for (const Node& node : part.nodes) {
      if (IsLayer(node, fixed))
        ++operators[node.domain.empty() ? node.op : node.domain + "." + node.op];
    }
  });
  return operators;
}

// Sums over `layers`.
void AddTotals(ModelReport& report) {
  std::map<std::string, OperatorReport> by_operator;
  for (const LayerReport& layer : report.layers) {
    report.work += layer.work;
    report.shared_parameters += layer.shared_parameters;
    report.nested_activation_bytes += layer.work.activation_bytes + layer.nested_bytes;
    report.moved_bytes += layer.moved_bytes;
    if (layer.work.parameters + layer.shared_parameters > 0)
      report.forward_backward_bytes += 2 * layer.work.activation_bytes;
    if (layer.work.macs > 0) report.macs_by_op[layer.op] += layer.work.macs;
    OperatorReport& same = by_operator[layer.op];
    same.op = layer.op;
    same.kind = layer.kind;
    ++same.layers;
    same.work += layer.work;
  }
  for (const auto& [name, each] : by_operator) {
    report.by_operator.push_back(each);
    if (each.work.flops == 0) report.uncounted[name] = each.layers;
  }
  std::stable_sort(
      report.by_operator.begin(), report.by_operator.end(),
      [](const OperatorReport& a, const OperatorReport& b) { return a.work.flops > b.work.flops; });
}

// Notes the values that each layer reads.
void AddReads(const Graph& graph, const std::vector<bool>& fixed,
              const std::vector<Lifetime>& lives, ModelReport& report) {
  std::vector<int> place(graph.values.size(), -1);
  for (size_t i = 0; i < lives.size(); ++i)
    place[static_cast<size_t>(lives[i].value)] = static_cast<int>(i);
  size_t layer = 0;
  for (const Node& node : graph.nodes) {
    if (!IsLayer(node, fixed)) continue;
    for (const ValueId id : node.inputs) {
      if (id != kNone && place[static_cast<size_t>(id)] >= 0)
        report.layers[layer].reads.push_back(place[static_cast<size_t>(id)]);
    }
    ++layer;
  }
}

absl::Status AddParameters(const ParameterList& parameters, bool statistics,
                           const StepContext& context, ModelReport& report) {
  for (const ParameterList::Parameter& each : parameters.found()) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    const DataType dtype = each.tensor->dtype();
    const std::string type(DataTypeName(dtype));
    report.parameters_by_type[type] += each.tensor->size();
    report.weight_bytes_by_type[type] += static_cast<int64_t>(each.tensor->bytes().size());
    if (IsFloat(dtype)) report.trainable_parameters += each.tensor->size();
    if (statistics) report.weights.push_back(StatisticsOf(each));
  }
  report.buffers = parameters.buffers();
  return absl::OkStatus();
}

// Held to the tools themselves by tests/peers/tool_counts.py.
constexpr char kTorchinfo[] =
    "torchinfo 1.8 differs: its mult-adds are macs_with_bias for convolutions, but transposed ones "
    "with a full window at each output; for other layers their parameters times the batch, norms "
    "included and however long a sequence is; products of two computed matrices count nothing";
constexpr char kPtflops[] =
    "ptflops 0.7 differs: its MACs are macs_with_bias and the operations of norms, pools and "
    "rectifiers; pools and ReLU that are modules count once more, as the functions they call";
constexpr char kFvcore[] =
    "fvcore 0.1 differs: its flops are macs, one for each multiply-add, and the operations of "
    "BatchNormalization and of global average pools; biases, other pools and activations count "
    "nothing";
constexpr char kOnnxTool[] =
    "onnx-tool 1.0 differs: its MACs are macs_with_bias and instructions per element for the rest "
    "(comparison 1, division 4, square root 24, exponential 32: 31 for BatchNormalization, 36 for "
    "Softmax); pools count their windows, transposed convolutions their full windows over the "
    "strides";

std::vector<std::string> Rules() {
  return {
      "parameters and weights: floating-point and 8-bit constants that layers read, also through "
      "DequantizeLinear, there with 32-bit biases; shared ones once, for the first layer. Scales, "
      "zero points, means and variances of batch norms, settings and numbers of rank 0 are not "
      "counted; floating-point ones are trainable",
      "what is computed from constants alone is neither a layer nor an activation",
      "macs: multiply-accumulates of convolutions, matrix products and recurrent layers, padding "
      "included; bias, batch norm, pooling and activations are not counted",
      "macs_with_bias: macs plus one addition per output element of a biased layer",
      "macs_without_padding: macs whose input element lies inside the input",
      "operations: one per output element of elementwise layers, one per input element of pools "
      "and "
      "reductions, two per input element of normalisations",
      "operations_with_padding: pools that pad unevenly count their padded input",
      "flops: two per MAC, one per addition of a bias, one per operation",
      "moved bytes: inputs, weights and outputs of a layer, once each; layers that only move "
      "values "
      "read no more than they write, and those that only change dims move nothing. The time that "
      "is predicted is the longer of operations over the ceiling of f32 and bytes over that of "
      "memory: no layer shares what is in a cache",
      "If counts its dearest branch, Loop and Scan one iteration; counted on the model as "
      "imported, before any optimisation",
      kTorchinfo,
      kPtflops,
      kFvcore,
      kOnnxTool,
  };
}

}  // namespace

Work& Work::operator+=(const Work& other) {
  macs += other.macs;
  macs_with_bias += other.macs_with_bias;
  macs_without_padding += other.macs_without_padding;
  operations += other.operations;
  operations_with_padding += other.operations_with_padding;
  flops += other.flops;
  parameters += other.parameters;
  weight_bytes += other.weight_bytes;
  activation_bytes += other.activation_bytes;
  return *this;
}

absl::StatusOr<ModelReport> Analyse(const Graph& imported, const Graph& canonical,
                                    const AnalyseOptions& options, const StepContext& context) {
  std::map<std::string, int64_t> of_inputs, chosen = options.sizes;
  for (const auto& [name, size] : chosen) {
    const std::optional<SymbolId> symbol = canonical.symbols->Find(name);
    if (symbol && canonical.symbols->at(*symbol).is_input()) of_inputs[name] = size;
  }
  QUENCH_ASSIGN_OR_RETURN(of_inputs, ChooseSizes(InputsOf(canonical), of_inputs));
  chosen.merge(of_inputs);
  QUENCH_ASSIGN_OR_RETURN(Sizes sizes, Sizes::Of(canonical, chosen));
  ModelReport report;
  report.name = imported.name;
  report.fingerprint = Fingerprint(canonical);
  report.structure_hash = StructureHash(canonical);
  const auto described = [&](ValueId id) {
    const Value& value = canonical.value(id);
    return std::pair{value.name, TypeText(value.type, *canonical.symbols)};
  };
  for (const ValueId id : canonical.inputs) {
    report.inputs.push_back(described(id));
    report.input_bytes += sizes.Bytes(canonical.value(id).type);
  }
  for (const ValueId id : canonical.outputs) report.outputs.push_back(described(id));
  report.operators = OperatorsOf(imported);
  const std::vector<bool> fixed = FixedValues(canonical);
  ParameterList parameters;
  for (const Node& node : canonical.nodes) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    if (!IsLayer(node, fixed)) continue;
    QUENCH_ASSIGN_OR_RETURN(LayerReport layer, Layer(canonical, fixed, node, sizes));
    parameters.AddLayer(canonical, fixed, node, layer);
    layer.moved_bytes = MovedBytes(node.op, layer);
    report.layers.push_back(std::move(layer));
  }
  AddTotals(report);
  QUENCH_RETURN_IF_ERROR(AddParameters(parameters, options.weight_statistics, context, report));
  const std::vector<Lifetime> lives = LifetimesOf(canonical, fixed);
  for (const Lifetime& life : lives) {
    const auto [name, type] = described(life.value);
    report.values.push_back(
        {name, type, sizes.Bytes(canonical.value(life.value).type), life.first, life.last});
  }
  AddReads(canonical, fixed, lives, report);
  AddLiveBytes(report);
  if (options.ceilings) AddPredictions(*options.ceilings, report);
  report.symbol_sizes = sizes.used();
  report.rules = Rules();
  return report;
}

}  // namespace quench::analyser
