#include "services/importer/graph/canonicalise.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "common/base/status.h"
#include "common/ops/bodies.h"
#include "common/ops/evaluate.h"
#include "common/ops/op.h"
#include "services/importer/graph/names.h"

namespace quench::importer {
namespace {

// A canonical graph as it grows.
struct Target {
  Graph* graph = nullptr;
  NameSet names;              // of its values
  std::set<ValueId> unknown;  // values whose type could not be inferred
  bool is_body = false;
  bool is_provisional = false;  // in a Loop or Scan: types may be those of the first iteration only
};

// The conversion of one graph, the main one or a body, into a target: one of its own, or that of
// the outer level when the branch of an If is known.
struct Level {
  const Graph* source = nullptr;
  Target* into = nullptr;
  Graph* target = nullptr;                // into->graph
  std::vector<ValueId> mapped;            // source value -> target value
  std::vector<std::string> output_names;  // source value -> its name in the target
  std::vector<int> uses;                  // of source values
  std::unordered_map<std::string, ValueId> source_names;
};

constexpr int64_t kMaxFoldedBytes = 4096;

bool IsSmallIndexType(const Type& type) {
  if (!IsInteger(type.dtype) && type.dtype != DataType::kBool) return false;
  int64_t count = 1;
  for (const Dim dim : type.dims) {
    if (!dim.is_static() || dim.value() > kMaxFoldedBytes) return false;
    count *= dim.value();
    if (count > kMaxFoldedBytes) return false;
  }
  return DataTypeBytes(type.dtype, count) <= kMaxFoldedBytes;
}

std::vector<ValueId> FreeValues(const Graph& body) {
  std::vector<bool> bound(body.values.size(), false);
  for (const ValueId id : body.inputs) bound[static_cast<size_t>(id)] = true;
  std::vector<ValueId> free;
  for (size_t i = 0; i < body.values.size(); ++i) {
    const Value& value = body.values[i];
    if (!bound[i] && value.producer == kNone && value.constant == nullptr)
      free.push_back(static_cast<ValueId>(i));
  }
  return free;
}

class Canonicaliser {
 public:
  Canonicaliser(const FindConversion& find, const WeightWriter& weights, const StepContext& context)
      : find_(find), weights_(weights), context_(context) {}

  absl::StatusOr<Graph> Run(Graph& imported);

  // Converts the nodes of `level`, whose inputs and captures are mapped already.
  void ConvertNodes(Level& level);
  ValueId Map(Level& level, ValueId source);
  void Append(Level& level, Node node);
  void Problem(const absl::Status& status) { problems_.Add(status); }
  void Warn(const std::string& name, const std::string& text) {
    warnings_["warning." + name] = text;
  }
  // Problems from now on go to `problems`; gives what was reported so far.
  StatusCollector ExchangeProblems(StatusCollector problems) {
    return std::exchange(problems_, std::move(problems));
  }
  NameSet& node_names() { return node_names_; }
  const WeightWriter& weights() const { return weights_; }

 private:
  bool Fold(Target& into, NodeId id);
  void WarnOfFailingBranches(const Graph& canonical);
  void ConvertNode(Level& level, const Node& node);

  const FindConversion& find_;
  const WeightWriter& weights_;
  const StepContext& context_;
  StatusCollector problems_;
  std::map<std::string, std::string> warnings_;  // as metadata
  NameSet node_names_;  // of the whole module: runtime sizes are named after their node
};

void Prepare(Level& level, const Graph& source, Target& into) {
  level.source = &source;
  level.into = &into;
  level.target = into.graph;
  level.mapped.assign(source.values.size(), kNone);
  level.uses = source.UseCounts();
  for (size_t i = 0; i < source.values.size(); ++i) {
    const std::string& name = source.values[i].name;
    level.source_names.emplace(name, static_cast<ValueId>(i));
    level.output_names.push_back(into.names.Take(name));
  }
}

void Describe(const Graph& source, Graph& target) {
  target.name = source.name;
  target.stage = Stage::kCanonical;
  target.symbols = source.symbols;
}

// One imported node on its way into level.target.
class NodeConverter final : public Converter {
 public:
  NodeConverter(Canonicaliser& owner, Level& level, const Node& node, std::vector<ValueId> inputs)
      : Converter(node, std::move(inputs)),
        owner_(owner),
        level_(level),
        first_node_(level.target->nodes.size()) {}

  bool IsUsed(int output) const override {
    if (output >= num_outputs()) return false;
    const ValueId id = node().outputs[static_cast<size_t>(output)];
    return id != kNone && level_.uses[static_cast<size_t>(id)] > 0;
  }
  const Type& type(ValueId id) const override {
    static const Type kUnknown;
    return id == kNone ? kUnknown : level_.target->value(id).type;
  }
  bool types_are_final() const override { return !level_.into->is_provisional; }
  const Type& declared(int output) const override {
    static const Type kUnknown;
    const ValueId id = output < num_outputs() ? node().outputs[static_cast<size_t>(output)] : kNone;
    return id == kNone ? kUnknown : level_.source->value(id).type;
  }
  const Tensor* constant(ValueId id) const override {
    if (id == kNone) return nullptr;
    const auto& constant = level_.target->value(id).constant;
    return constant == nullptr ? nullptr : &constant->tensor;
  }
  std::optional<std::vector<Dim>> elements(ValueId id) const override {
    return id == kNone ? std::nullopt : ops::KnownElements(level_.target->value(id));
  }
  SymbolTable& symbols() override { return *level_.target->symbols; }
  ValueId AddConstant(Tensor tensor) override {
    return PushConstant(*level_.target, level_.into->names.Take(node().name + "/constant"),
                        std::make_shared<const Constant>(Constant{std::move(tensor), "", {}}));
  }
  ValueId Emit(const std::string& op, std::vector<ValueId> ids, Attributes attributes) override {
    return EmitMany(op, std::move(ids), 1, std::move(attributes))[0];
  }
  std::vector<ValueId> EmitMany(const std::string& op, std::vector<ValueId> ids, int outputs,
                                Attributes attributes) override;
  absl::Status Final(const std::string& op, std::vector<ValueId> ids,
                     Attributes attributes) override;
  absl::Status FinalValues(const std::vector<ValueId>& ids) override;
  absl::Status FinalConstant(Tensor tensor) override;
  absl::Status FinalControl() override;
  void Warn(const std::string& text) override {
    owner_.Warn(node().name, fmt::format("node `{}` ({}): {}", node().name, node().op, text));
  }

 private:
  Node NewNode(const std::string& op, const std::string& name, std::vector<ValueId> ids,
               Attributes attributes) const;
  const std::string& OutputName(size_t output) const {
    return level_.output_names[static_cast<size_t>(node().outputs[output])];
  }
  std::vector<std::string> Captures(const std::vector<GraphPtr>& bodies) const;
  GraphPtr ConvertBody(const Graph& body, const std::vector<Type>& types,
                       const std::vector<std::string>& captures);
  GraphPtr ConvertBranch(const std::string& attribute, const Graph& body,
                         const std::vector<std::string>& captures);
  std::vector<Type> BodyInputTypes() const;
  GraphPtr KnownBranch() const;
  absl::Status InlineBranch(const Graph& body);

  Canonicaliser& owner_;
  Level& level_;
  size_t first_node_;
};

Node NodeConverter::NewNode(const std::string& op, const std::string& name,
                            std::vector<ValueId> ids, Attributes attributes) const {
  while (!ids.empty() && ids.back() == kNone) ids.pop_back();
  Node result;
  result.name = owner_.node_names().Take(name);
  result.op = op;
  result.origin = node().origin.empty() ? node().name : node().origin;
  result.inputs = std::move(ids);
  result.attributes = std::move(attributes);
  return result;
}

std::vector<ValueId> NodeConverter::EmitMany(const std::string& op, std::vector<ValueId> ids,
                                             int outputs, Attributes attributes) {
  const std::string name = fmt::format("{}/{}", node().name, op);
  Node result = NewNode(op, name, std::move(ids), std::move(attributes));
  for (int i = 0; i < outputs; ++i)
    result.outputs.push_back(PushValue(*level_.target, level_.into->names.Take(name)));
  const std::vector<ValueId> values = result.outputs;
  owner_.Append(level_, std::move(result));
  return values;
}

absl::Status NodeConverter::Final(const std::string& op, std::vector<ValueId> ids,
                                  Attributes attributes) {
  Node result = NewNode(op, node().name, std::move(ids), std::move(attributes));
  const ops::OpDef* def = ops::FindOp(op);
  for (size_t i = 0; i < node().outputs.size(); ++i) {
    const ValueId source = node().outputs[i];
    ValueId target = kNone;
    if (source != kNone) {
      target = PushValue(*level_.target, OutputName(i));
      level_.mapped[static_cast<size_t>(source)] = target;
    } else if (def != nullptr && static_cast<int>(i) < def->min_outputs) {
      // ONNX lets a node leave any output out (the Y of an LSTM), the catalogue only optional ones.
      target = PushValue(*level_.target, level_.into->names.Take(result.name + "/unused"));
    }
    result.outputs.push_back(target);
  }
  owner_.Append(level_, std::move(result));
  return absl::OkStatus();
}

absl::Status NodeConverter::FinalValues(const std::vector<ValueId>& ids) {
  for (size_t i = 0; i < node().outputs.size(); ++i) {
    const ValueId source = node().outputs[i];
    if (source == kNone) continue;
    if (i >= ids.size() || ids[i] == kNone) {
      if (IsUsed(static_cast<int>(i))) return Unsupported(fmt::format("output {}", i));
      continue;
    }
    ValueId id = ids[i];
    const NodeId producer = level_.target->value(id).producer;
    const bool fresh = producer != kNone && static_cast<size_t>(producer) >= first_node_ &&
                       std::count(ids.begin(), ids.end(), id) == 1;
    if (!fresh) id = Emit("Identity", {id}, {});
    level_.target->value(id).name = OutputName(i);
    level_.mapped[static_cast<size_t>(source)] = id;
  }
  return absl::OkStatus();
}

absl::Status NodeConverter::FinalConstant(Tensor tensor) {
  if (node().outputs.size() != 1 || node().outputs[0] == kNone) return Error("has one output");
  std::shared_ptr<const Constant> constant = owner_.weights().FindByBytes(tensor.bytes().data());
  const bool same = constant != nullptr && constant->tensor.dims() == tensor.dims() &&
                    constant->tensor.dtype() == tensor.dtype();
  if (!same) constant = std::make_shared<const Constant>(Constant{std::move(tensor), "", {}});
  level_.mapped[static_cast<size_t>(node().outputs[0])] =
      PushConstant(*level_.target, OutputName(0), std::move(constant));
  return absl::OkStatus();
}

// ---- Bodies ----

// Outer values that the bodies use and that are not constants, by name.
std::vector<std::string> NodeConverter::Captures(const std::vector<GraphPtr>& bodies) const {
  std::set<std::string> names;
  for (const GraphPtr& body : bodies) {
    for (const ValueId id : FreeValues(*body)) {
      const std::string& name = body->value(id).name;
      const ValueId outer = owner_.Map(level_, level_.source_names.at(name));
      if (level_.target->value(outer).constant == nullptr) names.insert(name);
    }
  }
  return {names.begin(), names.end()};
}

// Types of a body's own inputs as far as they are known before inference settles them.
std::vector<Type> NodeConverter::BodyInputTypes() const {
  std::vector<Type> types;
  const auto add = [&](ValueId id) { types.push_back(id == kNone ? Type{} : type(id)); };
  if (node().op == "Loop") {
    types = {Type::Tensor(DataType::kI64, {}), Type::Tensor(DataType::kBool, {})};
    for (size_t i = 2; i < inputs().size(); ++i) add(inputs()[i]);
  } else if (node().op == "Scan") {
    const int64_t scans = node().Int("num_scan_inputs", 0);
    const std::vector<int64_t> axes = node().Ints("scan_input_axes");
    const int64_t states = static_cast<int64_t>(inputs().size()) - scans;
    for (size_t i = 0; i < inputs().size(); ++i) {
      add(inputs()[i]);
      const int64_t scan = static_cast<int64_t>(i) - states;
      Type& last = types.back();
      if (scan < 0 || !last.ranked || last.dims.empty()) continue;
      const size_t place = static_cast<size_t>(scan);
      int64_t axis = place < axes.size() ? axes[place] : 0;
      if (axis < 0) axis += last.rank();
      if (axis >= 0 && axis < last.rank()) last.dims.erase(last.dims.begin() + axis);
    }
  }
  return types;
}

GraphPtr NodeConverter::ConvertBody(const Graph& body, const std::vector<Type>& types,
                                    const std::vector<std::string>& captures) {
  auto target = std::make_shared<Graph>();
  Describe(body, *target);
  Target into;
  into.graph = target.get();
  into.is_body = true;
  into.is_provisional = level_.into->is_provisional || node().op != "If";
  Level inner;
  Prepare(inner, body, into);
  const auto add_input = [&](const std::string& name, const Type& value_type) {
    const ValueId id = PushValue(*target, name, value_type);
    if (!value_type.known() || !value_type.ranked) into.unknown.insert(id);
    target->inputs.push_back(id);
    return id;
  };
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    const Value& input = body.value(body.inputs[i]);
    inner.mapped[static_cast<size_t>(body.inputs[i])] =
        add_input(input.name, i < types.size() ? types[i] : input.type);
  }
  std::unordered_map<std::string, ValueId> free;
  for (const ValueId id : FreeValues(body)) free.emplace(body.value(id).name, id);
  for (const std::string& name : captures) {
    const ValueId outer = level_.mapped[static_cast<size_t>(level_.source_names.at(name))];
    const auto own = free.find(name);
    const ValueId id = add_input(own != free.end() ? name : into.names.Take(name), type(outer));
    if (level_.into->unknown.contains(outer)) into.unknown.insert(id);
    target->value(id).elements = level_.target->value(outer).elements;
    if (own != free.end()) inner.mapped[static_cast<size_t>(own->second)] = id;
  }
  for (const auto& [name, id] : free) {  // constants travel into the body
    if (inner.mapped[static_cast<size_t>(id)] != kNone) continue;
    const ValueId outer = level_.mapped[static_cast<size_t>(level_.source_names.at(name))];
    inner.mapped[static_cast<size_t>(id)] =
        PushConstant(*target, name, level_.target->value(outer).constant);
  }
  owner_.ConvertNodes(inner);
  for (const ValueId output : body.outputs) target->outputs.push_back(owner_.Map(inner, output));
  return target;
}

// A branch that cannot be converted fails the run that takes it, as one whose types do not fit.
GraphPtr NodeConverter::ConvertBranch(const std::string& attribute, const Graph& body,
                                      const std::vector<std::string>& captures) {
  StatusCollector outer = owner_.ExchangeProblems(StatusCollector());
  GraphPtr converted = ConvertBody(body, {}, captures);
  const absl::Status status = owner_.ExchangeProblems(std::move(outer)).Finish();
  if (status.ok()) return converted;
  Graph failing;
  Describe(body, failing);
  for (const ValueId id : converted->inputs)
    failing.AddInput(converted->value(id).name, converted->value(id).type);
  const absl::Status where = Annotate(status, fmt::format("node `{}`: {}", node().name, attribute));
  const NodeId fail =
      failing.AddNode("q.fail", fmt::format("{}/{}", node().name, attribute), {},
                      static_cast<int>(body.outputs.size()), {{"message", MessageOf(where)}});
  failing.outputs = failing.node(fail).outputs;
  return std::make_shared<const Graph>(std::move(failing));
}

// The branch that an If takes when its condition follows from shapes and constants. Exporters write
// such tests for shapes they could not see, and the other branch need not even be valid for the
// shapes there are.
GraphPtr NodeConverter::KnownBranch() const {
  if (node().op != "If" || inputs().size() != 1 || inputs()[0] == kNone) return nullptr;
  const Value& condition = level_.target->value(inputs()[0]);
  std::optional<bool> known;
  if (condition.constant != nullptr && condition.constant->tensor.dtype() == DataType::kBool &&
      condition.constant->tensor.size() == 1) {
    known = condition.constant->tensor.IntAt(0) != 0;
  } else if (condition.elements && condition.elements->size() == 1 &&
             (*condition.elements)[0].is_static()) {
    known = (*condition.elements)[0].value() != 0;
  }
  return known ? node().Body(*known ? "then_branch" : "else_branch") : nullptr;
}

absl::Status NodeConverter::InlineBranch(const Graph& body) {
  Level inner;
  Prepare(inner, body, *level_.into);
  for (const ValueId id : FreeValues(body)) {
    inner.mapped[static_cast<size_t>(id)] =
        owner_.Map(level_, level_.source_names.at(body.value(id).name));
  }
  owner_.ConvertNodes(inner);
  std::vector<ValueId> ids;
  for (const ValueId output : body.outputs) ids.push_back(owner_.Map(inner, output));
  return FinalValues(ids);
}

absl::Status NodeConverter::FinalControl() {
  if (const GraphPtr branch = KnownBranch()) return InlineBranch(*branch);
  std::vector<GraphPtr> bodies;
  for (const auto& [name, attribute] : node().attributes) {
    if (const GraphPtr* body = std::get_if<GraphPtr>(&attribute)) bodies.push_back(*body);
  }
  const std::vector<std::string> captures = Captures(bodies);
  std::vector<ValueId> ids = inputs();
  if (node().op == "Loop" && ids.size() < 2)
    ids.resize(2, kNone);  // trip count and condition may be omitted
  for (const std::string& name : captures) {
    ids.push_back(level_.mapped[static_cast<size_t>(level_.source_names.at(name))]);
  }
  Attributes attributes;
  const std::vector<Type> types = BodyInputTypes();
  for (const auto& [name, attribute] : node().attributes) {
    const GraphPtr* body = std::get_if<GraphPtr>(&attribute);
    if (body == nullptr) {
      attributes.emplace(name, attribute);
    } else if (node().op == "If") {
      attributes.emplace(name, ConvertBranch(name, **body, captures));
    } else {
      attributes.emplace(name, ConvertBody(**body, types, captures));
    }
  }
  if (node().op != "If" && !captures.empty())
    attributes["q.captures"] = static_cast<int64_t>(captures.size());
  return Final(node().op, std::move(ids), std::move(attributes));
}

// ---- Graphs ----

// The target value of a source value; constants come over when they are first asked for.
ValueId Canonicaliser::Map(Level& level, ValueId source) {
  if (source == kNone) return kNone;
  ValueId& mapped = level.mapped[static_cast<size_t>(source)];
  if (mapped != kNone) return mapped;
  const Value& value = level.source->value(source);
  const std::string& name = level.output_names[static_cast<size_t>(source)];
  if (value.constant != nullptr) {
    mapped = PushConstant(*level.target, name, value.constant);
  } else {  // its node could not be converted, which is reported already
    mapped = PushValue(*level.target, name);
    level.into->unknown.insert(mapped);
  }
  return mapped;
}

// Arithmetic on small integer constants is done at once: axes, pads and shapes come out of it, and
// types depend on them. True when the node, the last of its graph, has become constants.
bool Canonicaliser::Fold(Target& into, NodeId id) {
  Graph& graph = *into.graph;
  const Node& node = graph.node(id);
  if (node.inputs.empty() || ops::FindOp(node.op)->kind == ops::OpKind::kControl) return false;
  std::vector<const Tensor*> inputs;
  for (const ValueId input : node.inputs) {
    const Constant* constant = input == kNone ? nullptr : graph.value(input).constant.get();
    if (input != kNone && (constant == nullptr || !IsSmallIndexType(graph.value(input).type)))
      return false;
    inputs.push_back(constant == nullptr ? nullptr : &constant->tensor);
  }
  for (const ValueId output : node.outputs) {
    if (output != kNone && !IsSmallIndexType(graph.value(output).type)) return false;
  }
  absl::StatusOr<std::vector<Tensor>> results = ops::EvaluateNode(node, inputs, context_);
  if (!results.ok() || results->size() != node.outputs.size())
    return false;  // a run will say what is wrong
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNone) continue;
    Value& value = graph.value(node.outputs[i]);
    value.producer = kNone;
    value.elements = std::nullopt;
    value.constant = std::make_shared<const Constant>(Constant{std::move((*results)[i]), "", {}});
  }
  graph.nodes.pop_back();
  return true;
}

// Appends a node and infers its types at once, so that the converters after it know them.
void Canonicaliser::Append(Level& level, Node node) {
  Target& into = *level.into;
  Graph& graph = *into.graph;
  bool blocked = false;
  for (const ValueId id : node.inputs) blocked = blocked || into.unknown.contains(id);
  const NodeId id = PushNode(graph, std::move(node));
  absl::Status status;
  if (!blocked) {
    // Inference settles which branches of an If can run: not yet by provisional types.
    Node provisional = into.is_provisional ? graph.node(id) : Node{};
    status = ops::InferNode(graph, into.is_provisional ? provisional : graph.node(id));
  }
  // In a body the input types are provisional: what is really wrong shows when the outer node is
  // inferred.
  if (!status.ok() && !into.is_body) Problem(status);
  if (!blocked && status.ok()) {
    Fold(into, id);
    return;
  }
  for (const ValueId output : graph.node(id).outputs) {
    if (output != kNone) into.unknown.insert(output);
  }
}

void Canonicaliser::ConvertNode(Level& level, const Node& node) {
  std::vector<ValueId> inputs;
  bool blocked = false;
  for (const ValueId id : node.inputs) {
    inputs.push_back(Map(level, id));
    blocked = blocked || (inputs.back() != kNone && level.into->unknown.contains(inputs.back()));
  }
  const Conversion convert = find_(node.domain, node.op);
  NodeConverter converter(*this, level, node, std::move(inputs));
  // Readers report the operators that lack a row, all at once; a graph that none of them has seen may hold one all the same.
  const absl::Status status = convert != nullptr
                                  ? convert(converter)
                                  : converter.Unsupported("is not an operator that is known");
  // A converter that misses a type because an earlier node failed has nothing new to say.
  if (!status.ok() && !(blocked && !level.into->is_body)) Problem(status);
}

void Canonicaliser::ConvertNodes(Level& level) {
  int64_t done = 0;
  const auto total = static_cast<int64_t>(level.source->nodes.size());
  for (const Node& node : level.source->nodes) {
    if (!context_.Check().ok()) return;
    if (!level.into->is_body && ++done % 256 == 0) {
      context_.Report({"infer types", node.name, done, total});
    }
    ConvertNode(level, node);
  }
}

// Branches that no run may take.
void Canonicaliser::WarnOfFailingBranches(const Graph& canonical) {
  ForEachGraph(canonical, [&](const Graph& graph) {
    for (const Node& node : graph.nodes) {
      if (node.op != "If") continue;
      for (const char* attribute : {"then_branch", "else_branch"}) {
        const std::string failure = ops::FailureOf(*node.Body(attribute));
        if (failure.empty()) continue;
        Warn(node.name,
             fmt::format("node `{}` (If): {} cannot run, a run that takes it fails with: {}",
                         node.name, attribute, failure));
      }
    }
  });
}

absl::StatusOr<Graph> Canonicaliser::Run(Graph& imported) {
  Graph canonical;
  Describe(imported, canonical);
  canonical.metadata = imported.metadata;
  Target into;
  into.graph = &canonical;
  Level level;
  Prepare(level, imported, into);
  for (const ValueId id : imported.inputs) {
    const Value& input = imported.value(id);
    level.mapped[static_cast<size_t>(id)] = PushValue(canonical, input.name, input.type);
    canonical.inputs.push_back(level.mapped[static_cast<size_t>(id)]);
  }
  ConvertNodes(level);
  QUENCH_RETURN_IF_ERROR(context_.Check());
  for (const ValueId id : imported.outputs) canonical.outputs.push_back(Map(level, id));
  QUENCH_RETURN_IF_ERROR(problems_.Finish());
  WarnOfFailingBranches(canonical);
  canonical.metadata.merge(warnings_);
  for (size_t i = 0; i < imported.values.size(); ++i) {
    Value& value = imported.values[i];
    if (level.mapped[i] == kNone) continue;
    const Value& known = canonical.value(level.mapped[i]);
    if (!value.type.known() || !value.type.ranked) value.type = known.type;
    value.elements = known.elements;
  }
  return canonical;
}

}  // namespace

absl::StatusOr<Graph> Canonicalise(Graph& imported, const FindConversion& find,
                                   const WeightWriter& weights, const StepContext& context) {
  return Canonicaliser(find, weights, context).Run(imported);
}

}  // namespace quench::importer
