#include "common/ops/evaluate.h"

#include <algorithm>
#include <set>

#include "common/base/status.h"
#include "common/loops/interpreter.h"
#include "common/ops/control.h"
#include "common/ops/op.h"

namespace quench::ops {
namespace {

constexpr int64_t kMaxEvaluatedBytes = int64_t{16} << 30;

std::string Where(const Node& node) { return fmt::format("node `{}` ({})", node.name, node.op); }

std::vector<Dim> ToDims(const std::vector<int64_t>& sizes) { return {sizes.begin(), sizes.end()}; }

// Concrete sizes of an output, refused when negative or larger than memory may hold.
absl::StatusOr<std::vector<int64_t>> Sizes(const Node& node, size_t output, const Type& type,
                                           std::span<const int64_t> slots) {
  std::vector<int64_t> sizes;
  for (const Dim dim : type.dims) sizes.push_back(SymbolTable::ValueOf(dim, slots));
  const auto negative = std::find_if(sizes.begin(), sizes.end(), [](int64_t s) { return s < 0; });
  if (negative != sizes.end()) {
    return InvalidArgument("{}: output {} would have a dim of {}", Where(node), output, *negative);
  }
  const std::optional<int64_t> count = ElementCount(sizes);
  if (!count || *count > kMaxEvaluatedBytes ||
      DataTypeBytes(type.dtype, *count) > kMaxEvaluatedBytes) {
    return absl::ResourceExhaustedError(
        fmt::format("{}: output {} of dims {{{}}} and type {} is over the limit of 16 GiB",
                    Where(node), output, fmt::join(sizes, ", "), DataTypeName(type.dtype)));
  }
  return sizes;
}

bool HoldsBytes(const Tensor& tensor) {
  return DataTypeBits(tensor.dtype()) > 0 && !IsComplex(tensor.dtype());
}

// A view shares the bytes, whatever they are.
Tensor View(const Tensor& input, std::vector<int64_t> dims) {
  if (input.dtype() == DataType::kString) return Tensor::Strings(std::move(dims), input.strings());
  return input.Reshaped(std::move(dims));
}

// One node on concrete operands: inference, sizes, loops.
class NodeRun {
 public:
  NodeRun(const Node& node, std::span<const Tensor* const> inputs, const StepContext& context)
      : node_(node), inputs_(inputs.begin(), inputs.end()), context_(context) {}

  absl::StatusOr<std::vector<Tensor>> Run() {
    QUENCH_RETURN_IF_ERROR(Infer());
    QUENCH_RETURN_IF_ERROR(Allocate());
    const OpContext op(node_, operands_, types_, symbols_);
    if (FindOp(node_.op)->kind == OpKind::kView) {
      if (ElementCount(sizes_[0]) != inputs_[0]->size()) {
        return InvalidArgument("{}: {} elements do not fit dims {{{}}}", Where(node_),
                               inputs_[0]->size(), fmt::join(sizes_[0], ", "));
      }
      return std::vector<Tensor>{View(*inputs_[0], sizes_[0])};
    }
    QUENCH_ASSIGN_OR_RETURN(const loops::Function function, LowerNode(op));
    std::vector<Tensor> outputs(node_.outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (node_.outputs[i] != quench::kNone) outputs[i] = Tensor::Zeros(types_[i].dtype, sizes_[i]);
    }
    if (FindOp(node_.op)->updates && node_.outputs[0] != quench::kNone) outputs[0] = *inputs_[0];
    QUENCH_RETURN_IF_ERROR(Interpret(function, outputs));
    return outputs;
  }

 private:
  // Loops have no elements that share a byte: nodes that make none read them widened.
  void Widen() {
    const auto narrow = [](DataType type) {
      return type != DataType::kUndefined && DataTypeBits(type) > 0 && DataTypeBits(type) < 8 &&
             !IsFloat(type);
    };
    const bool makes = std::any_of(types_.begin(), types_.end(),
                                   [&](const Type& type) { return narrow(type.dtype); });
    for (size_t i = 0; i < inputs_.size() && !makes; ++i) {
      if (inputs_[i] == nullptr || !narrow(inputs_[i]->dtype())) continue;
      widened_.push_back(std::make_unique<const Tensor>(inputs_[i]->Widened()));
      inputs_[i] = widened_.back().get();
      operands_[i]->type.dtype = inputs_[i]->dtype();
      operands_[i]->constant = inputs_[i];
    }
  }

  absl::Status Infer() {
    for (const Tensor* input : inputs_) {
      if (input == nullptr) {
        operands_.emplace_back();
      } else {
        operands_.push_back(OpContext::Operand{Type::Tensor(input->dtype(), ToDims(input->dims())),
                                               input, nullptr});
      }
    }
    InferContext infer(node_, operands_, std::vector<Type>(node_.outputs.size()), symbols_);
    QUENCH_RETURN_IF_ERROR(FindOp(node_.op)->infer(infer));
    types_ = std::move(infer.outputs());
    Widen();
    return absl::OkStatus();
  }

  // Runs the sizes function if there is one, and gives every output its dims.
  absl::Status Allocate() {
    slots_.assign(static_cast<size_t>(symbols_.size()), -1);
    const OpContext op(node_, operands_, types_, symbols_);
    QUENCH_ASSIGN_OR_RETURN(const std::optional<loops::Function> sizes, LowerSizes(op));
    if (sizes) {
      std::vector<Tensor> none;
      QUENCH_RETURN_IF_ERROR(Interpret(*sizes, none));
    }
    QUENCH_RETURN_IF_ERROR(EvaluateSlots());
    for (size_t i = 0; i < types_.size(); ++i) {
      sizes_.emplace_back();
      if (node_.outputs[i] == quench::kNone) continue;
      QUENCH_ASSIGN_OR_RETURN(sizes_.back(), Sizes(node_, i, types_[i], slots_));
    }
    return absl::OkStatus();
  }

  absl::Status EvaluateSlots() {
    absl::StatusOr<std::vector<int64_t>> slots = symbols_.Evaluate(slots_);
    if (!slots.ok()) return Annotate(slots.status(), Where(node_));
    slots_ = *std::move(slots);
    return absl::OkStatus();
  }

  absl::Status Interpret(const loops::Function& function, std::vector<Tensor>& outputs) {
    std::vector<loops::BufferView> views;
    for (const Tensor* input : inputs_) {
      // The interpreter does not write inputs.
      if (input != nullptr) {
        views.push_back({const_cast<std::byte*>(input->bytes().data()), input->dims()});
      }
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (node_.outputs[i] == quench::kNone) continue;
      views.push_back({outputs[i].mutable_bytes(), outputs[i].dims()});
    }
    // Lowering may have added symbols of its own (expressions over the known ones).
    slots_.resize(static_cast<size_t>(symbols_.size()), -1);
    QUENCH_RETURN_IF_ERROR(EvaluateSlots());
    return Annotate(loops::Interpret(function, views, slots_, context_), Where(node_));
  }

  const Node& node_;
  std::vector<const Tensor*> inputs_;
  std::vector<std::unique_ptr<const Tensor>> widened_;
  const StepContext& context_;
  SymbolTable symbols_;
  std::vector<std::optional<OpContext::Operand>> operands_;
  std::vector<Type> types_;
  std::vector<int64_t> slots_;
  std::vector<std::vector<int64_t>> sizes_;
};

absl::Status CheckElements(const Node& node, std::span<const Tensor* const> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr || HoldsBytes(*inputs[i])) continue;
    return Unsupported("{}: input {} is {}, which only views and If take", Where(node), i,
                       DataTypeName(inputs[i]->dtype()));
  }
  return absl::OkStatus();
}

// Values of all symbols where the inputs have these sizes.
absl::StatusOr<std::vector<int64_t>> SymbolsOf(const SymbolTable& symbols,
                                               std::span<const Tensor> inputs) {
  std::vector<int64_t> slots(static_cast<size_t>(symbols.size()), -1);
  for (SymbolId id = 0; id < symbols.size(); ++id) {
    const InputAxis* source = std::get_if<InputAxis>(&symbols.at(id).definition);
    if (source == nullptr || source->input >= static_cast<int>(inputs.size())) continue;
    const std::vector<int64_t>& sizes = inputs[static_cast<size_t>(source->input)].dims();
    if (source->axis < static_cast<int>(sizes.size())) {
      slots[static_cast<size_t>(id)] = sizes[static_cast<size_t>(source->axis)];
    }
  }
  return symbols.Evaluate(slots);
}

absl::StatusOr<std::vector<Tensor>> RunOne(const Node& node, std::span<const Tensor* const> inputs,
                                           const RunSizes& sizes, const StepContext& context) {
  Graph unused;
  QUENCH_RETURN_IF_ERROR(CheckNode(unused, node));
  if (inputs.size() != node.inputs.size()) {
    return InvalidArgument("{}: {} inputs given, the node has {}", Where(node), inputs.size(),
                           node.inputs.size());
  }
  const OpDef& op = *FindOp(node.op);
  if (op.kind == OpKind::kControl) return EvaluateControl(node, inputs, sizes, context);
  if (op.kind != OpKind::kView) QUENCH_RETURN_IF_ERROR(CheckElements(node, inputs));
  return NodeRun(node, inputs, context).Run();
}

// Evaluates the nodes of one graph in order, freeing each tensor after its last use.
class GraphRun {
 public:
  GraphRun(const Graph& graph, const RunSizes& around, const StepContext& context,
           const EvaluateOptions& options)
      : graph_(graph),
        context_(context),
        options_(options),
        sizes_(around.symbols() == graph.symbols.get() ? around : RunSizes(graph.symbols.get())),
        uses_(graph.UseCounts()) {
    tensors_.resize(graph.values.size());
  }

  absl::StatusOr<std::vector<Tensor>> Run(std::span<const Tensor> inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      At(graph_.inputs[i]) = inputs[i];
      sizes_.Note(graph_.value(graph_.inputs[i]).type, inputs[i].dims());
    }
    inputs_ = inputs;
    for (const Node& node : graph_.nodes) {
      QUENCH_RETURN_IF_ERROR(context_.Check());
      QUENCH_RETURN_IF_ERROR(RunNode(node));
    }
    std::vector<Tensor> outputs;
    for (const ValueId id : graph_.outputs) outputs.push_back(*Find(id));
    return outputs;
  }

 private:
  Tensor& At(ValueId id) { return tensors_[static_cast<size_t>(id)]; }

  const Tensor* Find(ValueId id) {
    const Value& value = graph_.value(id);
    return value.constant != nullptr ? &value.constant->tensor : &At(id);
  }

  absl::Status RunNode(const Node& node) {
    std::vector<const Tensor*> operands;
    for (const ValueId id : node.inputs)
      operands.push_back(id == quench::kNone ? nullptr : Find(id));
    QUENCH_ASSIGN_OR_RETURN(
        std::vector<Tensor> results,
        node.op == "q.dims" ? RunDims(node) : RunOne(node, operands, sizes_, context_));
    for (size_t i = 0; i < results.size(); ++i) {
      const ValueId id = node.outputs[i];
      if (id == quench::kNone) continue;
      sizes_.Note(graph_.value(id).type, results[i].dims());
      if (options_.on_value) options_.on_value(graph_.value(id).name, results[i]);
      if (uses_[static_cast<size_t>(id)] > 0) At(id) = std::move(results[i]);
    }
    for (const ValueId id : node.inputs) {
      if (id != quench::kNone && --uses_[static_cast<size_t>(id)] == 0) At(id) = Tensor();
    }
    return absl::OkStatus();
  }

  // The one operator whose result depends on the run as a whole: sizes of the graph's inputs.
  absl::StatusOr<std::vector<Tensor>> RunDims(const Node& node) {
    QUENCH_RETURN_IF_ERROR(CheckNode(graph_, node));
    SymbolTable symbols = *graph_.symbols;
    std::vector<Dim> dims;
    for (const std::string& text : std::get<std::vector<std::string>>(*node.Find("dims"))) {
      absl::StatusOr<Dim> dim = symbols.Parse(text);
      if (!dim.ok()) return Annotate(dim.status(), Where(node));
      dims.push_back(*dim);
    }
    absl::StatusOr<std::vector<int64_t>> values = SymbolsOf(symbols, inputs_);
    if (!values.ok()) return Annotate(values.status(), Where(node));
    std::vector<int64_t> elements;
    for (const Dim dim : dims) elements.push_back(SymbolTable::ValueOf(dim, *values));
    return std::vector<Tensor>{Tensor::I64(elements)};
  }

  const Graph& graph_;
  const StepContext& context_;
  const EvaluateOptions& options_;
  RunSizes sizes_;
  std::span<const Tensor> inputs_;
  std::vector<int> uses_;
  std::vector<Tensor> tensors_;
};

// Reports a symbol that got two sizes or one out of its range.
void CheckSymbol(const Graph& graph, Dim dim, int64_t size, const std::string& where,
                 std::map<SymbolId, std::pair<int64_t, std::string>>& seen,
                 StatusCollector& problems) {
  const Symbol& symbol = graph.symbols->at(dim.symbol());
  const auto [known, fresh] = seen.emplace(dim.symbol(), std::make_pair(size, where));
  if (!fresh && known->second.first != size) {
    problems.Add(InvalidArgument("{} is {}, but `{}` is {} at {}", where, size, symbol.name,
                                 known->second.first, known->second.second));
  } else if (fresh && (size < symbol.min || size > symbol.max)) {
    const std::string max = symbol.max == kUnbounded ? "" : fmt::format(" to {}", symbol.max);
    problems.Add(InvalidArgument("{} is {}, `{}` goes from {}{}", where, size, symbol.name,
                                 symbol.min, max));
  } else if (fresh && symbol.multiple_of > 1 && size % symbol.multiple_of != 0) {
    problems.Add(InvalidArgument("{} is {}, `{}` is a multiple of {}", where, size, symbol.name,
                                 symbol.multiple_of));
  }
}

// Reports sizes of inputs that are not what others make of their expressions.
void CheckExpressions(const Graph& graph, std::span<const Tensor> inputs,
                      StatusCollector& problems) {
  absl::StatusOr<std::vector<int64_t>> values = std::vector<int64_t>();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& value = graph.value(graph.inputs[i]);
    for (int axis = 0; axis < static_cast<int>(value.type.dims.size()); ++axis) {
      const Dim dim = value.type.dims[static_cast<size_t>(axis)];
      if (dim.is_static() || !graph.symbols->at(dim.symbol()).is_expression()) continue;
      if (values.ok() && values->empty()) values = SymbolsOf(*graph.symbols, inputs);
      const int64_t size = inputs[i].dims()[static_cast<size_t>(axis)];
      const std::string text = graph.symbols->ToString(dim);
      if (!values.ok()) {
        problems.Add(Annotate(values.status(), fmt::format("input `{}`", value.name)));
      } else if (const int64_t wanted = SymbolTable::ValueOf(dim, *values);
                 wanted >= 0 && wanted != size) {
        problems.Add(InvalidArgument("input `{}` axis {} is {}, `{}` is {}", value.name, axis, size,
                                     text, wanted));
      }
    }
  }
}

}  // namespace

absl::Status CheckInputs(const Graph& graph, std::span<const Tensor> inputs) {
  if (inputs.size() != graph.inputs.size()) {
    return InvalidArgument("{} inputs given, the graph has {}", inputs.size(), graph.inputs.size());
  }
  StatusCollector problems;
  std::map<SymbolId, std::pair<int64_t, std::string>> seen;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& value = graph.value(graph.inputs[i]);
    const Tensor& tensor = inputs[i];
    const std::string where = fmt::format("input `{}`", value.name);
    if (value.type.known() && tensor.dtype() != value.type.dtype) {
      problems.Add(InvalidArgument("{} is {}, the graph takes {}", where,
                                   DataTypeName(tensor.dtype()), DataTypeName(value.type.dtype)));
    }
    if (!value.type.ranked) continue;
    if (tensor.rank() != value.type.rank()) {
      problems.Add(InvalidArgument("{} has rank {}, the graph takes {}", where, tensor.rank(),
                                   value.type.rank()));
      continue;
    }
    for (int axis = 0; axis < tensor.rank(); ++axis) {
      const Dim dim = value.type.dims[static_cast<size_t>(axis)];
      const int64_t size = tensor.dims()[static_cast<size_t>(axis)];
      const std::string place = fmt::format("{} axis {}", where, axis);
      if (!dim.is_static()) {
        if (graph.symbols->at(dim.symbol()).is_expression()) continue;
        CheckSymbol(graph, dim, size, place, seen, problems);
      } else if (dim.value() != size) {
        problems.Add(InvalidArgument("{} is {}, the graph takes {}", place, size, dim.value()));
      }
    }
  }
  if (problems.ok()) CheckExpressions(graph, inputs, problems);
  return problems.Finish();
}

absl::StatusOr<std::vector<Tensor>> EvaluateNode(const Node& node,
                                                 std::span<const Tensor* const> inputs,
                                                 const StepContext& context) {
  return RunOne(node, inputs, RunSizes(nullptr), context);
}

absl::StatusOr<std::vector<Tensor>> EvaluateBody(const Graph& graph, std::span<const Tensor> inputs,
                                                 const RunSizes& around, const StepContext& context,
                                                 const EvaluateOptions& options) {
  if (inputs.size() != graph.inputs.size()) {
    return InvalidArgument("{} inputs given, the graph has {}", inputs.size(), graph.inputs.size());
  }
  return GraphRun(graph, around, context, options).Run(inputs);
}

absl::StatusOr<std::vector<Tensor>> Evaluate(const Graph& graph, std::span<const Tensor> inputs,
                                             const StepContext& context,
                                             const EvaluateOptions& options) {
  QUENCH_RETURN_IF_ERROR(CheckInputs(graph, inputs));
  return EvaluateBody(graph, inputs, RunSizes(nullptr), context, options);
}

}  // namespace quench::ops
