#include <algorithm>
#include <set>

#include "common/base/status.h"
#include "common/ir/hash.h"
#include "common/ops/op.h"
#include "services/analyser/analyser.h"

namespace quench::analyser {
namespace {

constexpr int64_t kLargestCount = int64_t{1} << 62;

int64_t SaturatingMul(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) || result > kLargestCount ? kLargestCount : result;
}

// Sizes at which symbolic dims are counted.
class Sizes {
 public:
  static absl::StatusOr<Sizes> Of(const Graph& graph,
                                  const std::map<std::string, int64_t>& chosen) {
    const SymbolTable& symbols = *graph.symbols;
    StatusCollector problems;
    for (const auto& [name, size] : chosen) {
      if (!symbols.Find(name))
        problems.Add(InvalidArgument("--size: the model has no symbolic dim `{}`", name));
    }
    QUENCH_RETURN_IF_ERROR(problems.Finish());
    std::vector<int64_t> base(static_cast<size_t>(symbols.size()), -1);
    Sizes sizes;
    for (SymbolId id = 0; id < symbols.size(); ++id) {
      const Symbol& symbol = symbols.at(id);
      if (symbol.is_expression()) continue;
      const auto found = chosen.find(symbol.name);
      // A size that only a run can tell counts as 1: the rule is printed with the report.
      base[static_cast<size_t>(id)] =
          found != chosen.end() ? found->second : std::max<int64_t>(symbol.min, 1);
      sizes.used_[symbol.name] = base[static_cast<size_t>(id)];
    }
    sizes.symbols_ = graph.symbols;
    sizes.base_ = std::move(base);
    QUENCH_RETURN_IF_ERROR(sizes.Evaluate());
    return sizes;
  }

  // Counting makes new expressions: values of those are computed when they are first asked for.
  absl::StatusOr<int64_t> Of(Dim dim) {
    if (dim.is_static()) return dim.value();
    if (static_cast<size_t>(dim.symbol()) >= slots_.size()) QUENCH_RETURN_IF_ERROR(Evaluate());
    return SymbolTable::ValueOf(dim, slots_);
  }
  int64_t Elements(const Type& type) const {
    if (type.kind != ValueKind::kTensor || !type.ranked) return 0;
    int64_t count = 1;
    for (const Dim dim : type.dims) {
      count = SaturatingMul(count, std::max<int64_t>(SymbolTable::ValueOf(dim, slots_), 0));
    }
    return count;
  }
  int64_t Bytes(const Type& type) const {
    const int64_t elements = Elements(type);
    return elements > kLargestCount / 16 ? kLargestCount : DataTypeBytes(type.dtype, elements);
  }
  const std::map<std::string, int64_t>& used() const { return used_; }

 private:
  absl::Status Evaluate() {
    base_.resize(static_cast<size_t>(symbols_->size()), -1);
    QUENCH_ASSIGN_OR_RETURN(slots_, symbols_->Evaluate(base_));
    return absl::OkStatus();
  }

  std::shared_ptr<const SymbolTable> symbols_;
  std::vector<int64_t> base_;   // of inputs and runtime sizes
  std::vector<int64_t> slots_;  // of all symbols
  std::map<std::string, int64_t> used_;
};

std::string TypeText(const Type& type, const SymbolTable& symbols) {
  if (type.kind != ValueKind::kTensor) return "non-tensor";
  std::string text(DataTypeName(type.dtype));
  if (!type.ranked) return text + "[?]";
  text += "[";
  for (size_t i = 0; i < type.dims.size(); ++i)
    text += (i > 0 ? ", " : "") + symbols.ToString(type.dims[i]);
  return text + "]";
}

// Elements of the bias that an operator adds to its result: one addition per output element.
int64_t BiasAdds(const Graph& graph, const Node& node, const Sizes& sizes) {
  const bool biased =
      ((node.op == "Conv" || node.op == "ConvTranspose" || node.op == "Gemm") &&
       node.inputs.size() > 2 && node.inputs[2] != kNone) ||
      (node.op == "QLinearConv" && node.inputs.size() > 8 && node.inputs[8] != kNone);
  return biased ? sizes.Elements(graph.value(node.outputs[0]).type) : 0;
}

// The inputs of an operator that may be parameters, where the others are settings: scales and zero
// points, means and variances that were gathered, sizes, bounds.
const std::set<size_t>* ParameterInputs(const std::string& op) {
  static const auto* const inputs = new std::map<std::string, std::set<size_t>>{
      {"BatchNormalization", {0, 1, 2}},
      {"Clip", {0}},
      {"ConvInteger", {0, 1}},
      {"DequantizeLinear", {0}},
      {"MatMulInteger", {0, 1}},
      {"NonMaxSuppression", {0, 1}},
      {"Pad", {0}},
      {"QLinearConv", {0, 3, 8}},
      {"QLinearMatMul", {0, 3}},
      {"QuantizeLinear", {0}},
      {"Resize", {0}},
  };
  const auto found = inputs->find(op);
  return found == inputs->end() ? nullptr : &found->second;
}

bool MayBeParameter(const Node& node, size_t input) {
  const std::set<size_t>* inputs = ParameterInputs(node.op);
  return inputs == nullptr || inputs->contains(input);
}

// Values that no input of the model has a part in: constants, and what is computed from them alone,
// as weights from integers. They are no activations, and what computes them is no layer.
std::vector<bool> FixedValues(const Graph& graph) {
  std::vector<bool> fixed(graph.values.size());
  for (size_t i = 0; i < graph.values.size(); ++i) fixed[i] = graph.values[i].constant != nullptr;
  for (const Node& node : graph.nodes) {
    bool given = false, all = true;
    for (const ValueId id : node.inputs) {
      if (id == kNone) continue;
      given = true;
      all = all && fixed[static_cast<size_t>(id)];
    }
    if (node.op != "Constant" && (!given || !all)) continue;
    for (const ValueId id : node.outputs) {
      if (id != kNone) fixed[static_cast<size_t>(id)] = true;
    }
  }
  return fixed;
}

bool IsLayer(const Node& node, const std::vector<bool>& fixed) {
  return std::any_of(node.outputs.begin(), node.outputs.end(),
                     [&](ValueId id) { return id != kNone && !fixed[static_cast<size_t>(id)]; });
}

// Parameters, counted where layers read them, each once.
class Parameters {
 public:
  void AddLayer(const Graph& graph, const std::vector<bool>& fixed, const Node& node,
                LayerReport& layer) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id != kNone && fixed[static_cast<size_t>(id)] && MayBeParameter(node, i))
        AddValue(graph, id, node.op == "QLinearConv", layer);
    }
    for (const auto& [name, attribute] : node.attributes) {
      const GraphPtr* body = std::get_if<GraphPtr>(&attribute);
      if (body == nullptr) continue;
      const std::vector<bool> inside = FixedValues(**body);
      for (const Node& inner : (*body)->nodes) {
        if (IsLayer(inner, inside)) AddLayer(**body, inside, inner, layer);
      }
    }
  }
  const std::map<std::string, int64_t>& by_type() const { return by_type_; }

 private:
  // `quantized`: integers of 32 bits are biases.
  void AddValue(const Graph& graph, ValueId id, bool quantized, LayerReport& layer) {
    const Value& value = graph.value(id);
    if (value.constant == nullptr) {
      if (value.producer == kNone) return;
      const Node& node = graph.node(value.producer);
      const bool dequantizes = node.op == "DequantizeLinear";
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] != kNone && MayBeParameter(node, i))
          AddValue(graph, node.inputs[i], quantized || dequantizes, layer);
      }
      return;
    }
    const DataType dtype = value.type.dtype;
    const bool number =
        IsFloat(dtype) ||
        (DataTypeBits(dtype) <= 8 && dtype != DataType::kString && dtype != DataType::kBool) ||
        (quantized && dtype == DataType::kI32);
    if (!number || value.type.rank() == 0 || !counted_.insert(&value.constant->tensor).second)
      return;
    const Tensor& tensor = value.constant->tensor;
    layer.parameters += tensor.size();
    layer.weight_bytes += static_cast<int64_t>(tensor.bytes().size());
    by_type_[std::string(DataTypeName(dtype))] += tensor.size();
  }

  std::set<const Tensor*> counted_;
  std::map<std::string, int64_t> by_type_;
};

absl::StatusOr<int64_t> MacsOf(const Graph& graph, const Node& node, Sizes& sizes) {
  const ops::OpDef* op = ops::FindOp(node.op);
  if (op == nullptr) return 0;
  if (op->macs != nullptr) {
    QUENCH_ASSIGN_OR_RETURN(const int64_t macs, sizes.Of(op->macs(ops::ContextOf(graph, node))));
    return std::max<int64_t>(macs, 0);
  }
  int64_t most = 0;  // of the branches of an If; once for the body of a loop
  for (const auto& [name, attribute] : node.attributes) {
    const GraphPtr* body = std::get_if<GraphPtr>(&attribute);
    if (body == nullptr) continue;
    int64_t sum = 0;
    for (const Node& inner : (*body)->nodes) {
      QUENCH_ASSIGN_OR_RETURN(const int64_t macs, MacsOf(**body, inner, sizes));
      sum += macs;
    }
    most = std::max(most, sum);
  }
  return most;
}

absl::StatusOr<LayerReport> Layer(const Graph& graph, const Node& node, Sizes& sizes) {
  LayerReport layer;
  layer.node = node.origin.empty() ? node.name : node.origin;
  layer.op = node.op;
  for (const ValueId id : node.outputs) {
    if (id == kNone) continue;
    layer.output_shapes.push_back(TypeText(graph.value(id).type, *graph.symbols));
    layer.activation_bytes += sizes.Bytes(graph.value(id).type);
  }
  QUENCH_ASSIGN_OR_RETURN(layer.macs, MacsOf(graph, node, sizes));
  layer.macs_with_bias = layer.macs + BiasAdds(graph, node, sizes);
  return layer;
}

// Largest sum of the sizes of values alive at once, in node order, inputs included.
int64_t PeakActivationBytes(const Graph& graph, const std::vector<bool>& fixed,
                            const Sizes& sizes) {
  std::vector<int> uses = graph.UseCounts();
  int64_t live = 0;
  for (const ValueId id : graph.inputs) live += sizes.Bytes(graph.value(id).type);
  int64_t peak = live;
  const auto is_activation = [&](ValueId id) {
    return id != kNone && !fixed[static_cast<size_t>(id)];
  };
  for (const Node& node : graph.nodes) {
    for (const ValueId id : node.outputs) {
      if (is_activation(id)) live += sizes.Bytes(graph.value(id).type);
    }
    peak = std::max(peak, live);
    for (const ValueId id : node.outputs) {
      if (is_activation(id) && uses[static_cast<size_t>(id)] == 0)
        live -= sizes.Bytes(graph.value(id).type);
    }
    for (const ValueId id : node.inputs) {
      if (!is_activation(id)) continue;
      if (--uses[static_cast<size_t>(id)] == 0) live -= sizes.Bytes(graph.value(id).type);
    }
  }
  return peak;
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

}  // namespace

absl::StatusOr<ModelReport> Analyse(const Graph& imported, const Graph& canonical,
                                    const std::map<std::string, int64_t>& sizes,
                                    const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(Sizes counted_at, Sizes::Of(canonical, sizes));
  ModelReport report;
  report.name = imported.name;
  report.fingerprint = Fingerprint(canonical);
  report.structure_hash = StructureHash(canonical);
  for (const ValueId id : canonical.inputs) {
    report.inputs.emplace_back(canonical.value(id).name,
                               TypeText(canonical.value(id).type, *canonical.symbols));
  }
  for (const ValueId id : canonical.outputs) {
    report.outputs.emplace_back(canonical.value(id).name,
                                TypeText(canonical.value(id).type, *canonical.symbols));
  }
  report.operators = OperatorsOf(imported);
  const std::vector<bool> fixed = FixedValues(canonical);
  Parameters parameters;
  for (const Node& node : canonical.nodes) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    if (!IsLayer(node, fixed)) continue;
    QUENCH_ASSIGN_OR_RETURN(LayerReport layer, Layer(canonical, node, counted_at));
    parameters.AddLayer(canonical, fixed, node, layer);
    report.parameters += layer.parameters;
    report.weight_bytes += layer.weight_bytes;
    report.macs += layer.macs;
    report.macs_with_bias += layer.macs_with_bias;
    if (layer.macs > 0) report.macs_by_op[node.op] += layer.macs;
    report.activation_bytes += layer.activation_bytes;
    report.layers.push_back(std::move(layer));
  }
  report.parameters_by_type = parameters.by_type();
  report.peak_activation_bytes = PeakActivationBytes(canonical, fixed, counted_at);
  report.symbol_sizes = counted_at.used();
  report.rules = {
      "parameters and weights: floating-point and 8-bit constants that layers read, also through "
      "DequantizeLinear, there with 32-bit biases; shared ones once, for the first layer. Scales, "
      "zero points, means and variances of batch norms, settings and numbers of rank 0 are not "
      "counted",
      "what is computed from constants alone is no layer and no activation",
      "macs: multiply-accumulates of convolutions and matrix products; bias, batch norm, pooling "
      "and activations are not counted",
      "macs_with_bias: macs plus one addition per output element of a biased layer",
      "If counts its dearest branch, Loop and Scan one iteration; counted on the model as "
      "imported, before any optimisation",
  };
  return report;
}

}  // namespace quench::analyser
