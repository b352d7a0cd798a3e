#include "services/quantizer/parts.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <set>

#include "common/base/status.h"
#include "common/ops/op.h"

namespace quench::quantizer {

namespace {

void SetStage(Graph& graph, Stage stage) {
  graph.stage = stage;
  for (Node& node : graph.nodes) {
    for (auto& [name, attribute] : node.attributes) {
      GraphPtr* body = std::get_if<GraphPtr>(&attribute);
      if (body == nullptr) continue;
      Graph copy = **body;
      SetStage(copy, stage);
      *body = std::make_shared<const Graph>(std::move(copy));
    }
  }
}

}  // namespace

void MarkQuantized(Graph& graph) {
  SetStage(graph, Stage::kQuantized);
  graph.metadata["is_quantized"] = "true";
}

bool IsAmong(const std::string& op, std::initializer_list<std::string_view> ops) {
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

bool IsRecurrent(const std::string& op) { return IsAmong(op, {"LSTM", "GRU", "RNN"}); }

namespace {

std::vector<const Node*> MembersOf(const Node& node) {
  if (node.op != "q.fused") return {&node};
  std::vector<const Node*> members;
  for (const Node& member : node.Body("body")->nodes) members.push_back(&member);
  return members;
}

bool IsProduct(const std::string& op) {
  return IsAmong(op, {"Conv", "ConvTranspose", "Gemm", "MatMul"});
}

// A layer has weights, a switch and a line in the report.
bool IsLayer(const std::string& op) { return IsProduct(op) || IsRecurrent(op); }

// A pointwise operation that does not turn a small error of its input into a large one. For Div and
// Pow that depends on the second operand.
bool IsTame(const Graph& graph, const Node& node) {
  const ops::OpDef* op = ops::FindOp(node.op);
  if (op == nullptr || op->kind != ops::OpKind::kPointwise) return false;
  if (node.op != "Div" && node.op != "Pow") return op->quant != ops::QuantRole::kNone;
  const auto& second = graph.value(node.inputs[1]).constant;
  return second != nullptr &&
         (node.op == "Div" || (second->tensor.size() == 1 && second->tensor.FloatAt(0) >= 1));
}

bool IsF32(const Graph& graph, ValueId id) {
  if (id == kNone) return false;
  const Type& type = graph.value(id).type;
  return type.kind == ValueKind::kTensor && type.dtype == DataType::kF32 && type.ranked;
}

constexpr std::string_view kPartMark = ".part";

// The name that PartName made a part's name from; empty if this is not a part's name.
std::string WholeOf(const std::string& name) {
  const size_t mark = name.rfind(kPartMark);
  if (mark == std::string::npos) return "";
  const std::string_view number = std::string_view(name).substr(mark + kPartMark.size());
  const bool digits =
      !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
  return digits ? name.substr(0, mark) : "";
}

bool Matches(const std::string& pattern, const Node& node) {
  for (const Node* member : MembersOf(node)) {
    if (pattern.starts_with("op:")) {
      if (::fnmatch(pattern.c_str() + 3, member->op.c_str(), 0) == 0) return true;
    } else if (::fnmatch(pattern.c_str(), member->name.c_str(), 0) == 0 ||
               ::fnmatch(pattern.c_str(), member->origin.c_str(), 0) == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

const Node& RootOf(const Node& node) {
  return node.op == "q.fused" ? node.Body("body")->nodes.front() : node;
}

Part PartOf(const Graph& graph, const Node& node) {
  for (const ValueId id : node.outputs) {
    if (id != kNone && !IsF32(graph, id)) return Part::kFloat;
  }
  const std::vector<const Node*> members = MembersOf(node);
  const std::string& root = members.front()->op;
  if (IsLayer(root)) return Part::kCompute;
  const GraphPtr body = node.op == "q.fused" ? node.Body("body") : nullptr;
  const auto pointwise = [&](const Node* member) {
    return IsTame(body == nullptr ? graph : *body, *member);
  };
  if (std::all_of(members.begin(), members.end(), pointwise)) return Part::kPointwise;
  const ops::OpDef* first = ops::FindOp(root);
  if (first != nullptr && first->kind == ops::OpKind::kPointwise) return Part::kExact;
  if (members.size() > 1) return Part::kFloat;
  if (IsAmong(root, {"AveragePool", "GlobalAveragePool"})) return Part::kPool;
  const bool moves = first != nullptr && first->quant == ops::QuantRole::kPassThrough;
  return moves ? Part::kMoves : Part::kFloat;
}

std::vector<int> DataInputs(const Node& node) {
  const std::string& root = RootOf(node).op;
  if (IsRecurrent(root)) return {};
  const ops::OpDef* op = ops::FindOp(root);
  const bool only_first =
      op != nullptr && op->kind != ops::OpKind::kPointwise && !IsProduct(root) && root != "Concat";
  std::vector<int> inputs;
  for (size_t i = 0; i < node.inputs.size() && (i == 0 || !only_first); ++i) {
    inputs.push_back(static_cast<int>(i));
  }
  return inputs;
}

int OperandInput(const Node& node, int operand) {
  const Node& root = RootOf(node);
  const auto place = static_cast<size_t>(operand);
  if (place >= root.inputs.size() || root.inputs[place] == kNone) return -1;
  if (node.op != "q.fused") return operand;
  const Graph& body = *node.Body("body");
  const auto found = std::find(body.inputs.begin(), body.inputs.end(), root.inputs[place]);
  return found == body.inputs.end() ? -1 : static_cast<int>(found - body.inputs.begin());
}

std::string PartName(const std::string& whole, size_t part) {
  return fmt::format("{}{}{}", whole, kPartMark, part);
}

bool IsPartialSum(const Graph& graph, const Node& node, int input) {
  if (input == OperandInput(node, 0) || input == OperandInput(node, 1)) return false;
  const NodeId producer = graph.value(node.inputs[static_cast<size_t>(input)]).producer;
  if (producer == kNone) return false;
  const std::string whole = WholeOf(RootOf(node).name);
  return !whole.empty() && WholeOf(RootOf(graph.node(producer)).name) == whole;
}

bool IsActivation(const Graph& graph, ValueId id) {
  return IsF32(graph, id) && graph.value(id).constant == nullptr;
}

const TensorStatistics* StatisticsOf(const Graph& graph, ValueId id, const Statistics* statistics,
                                     const QuantizeOptions& options) {
  if (statistics == nullptr || options.source == RangeSource::kDynamic) return nullptr;
  const auto found = statistics->values.find(graph.value(id).name);
  return found == statistics->values.end() ? nullptr : &found->second;
}

Naming NamingOf(const Node& node, const QuantizeOptions& options, Naming around) {
  const auto fits = [&](const std::string& pattern) { return Matches(pattern, node); };
  const auto any = [&](const std::vector<std::string>& patterns) {
    return std::any_of(patterns.begin(), patterns.end(), fits);
  };
  return {around.included || any(options.include), around.excluded || any(options.exclude)};
}

bool IsSelected(Naming naming, const QuantizeOptions& options) {
  return (options.include.empty() || naming.included) && !naming.excluded;
}

absl::Status CheckPatterns(const Graph& graph, const QuantizeOptions& options, bool bodies) {
  StatusCollector problems;
  for (const bool including : {true, false}) {
    for (const std::string& pattern : including ? options.include : options.exclude) {
      bool found = false;
      ForEachGraph(graph, [&](const Graph& each) {
        if (!bodies && &each != &graph) return;
        found = found || std::any_of(each.nodes.begin(), each.nodes.end(),
                                     [&](const Node& node) { return Matches(pattern, node); });
      });
      if (!found) {
        problems.Add(
            InvalidArgument("{}: no node fits `{}`", including ? "include" : "exclude", pattern));
      }
    }
  }
  return problems.Finish();
}

absl::StatusOr<std::vector<bool>> SelectedNodes(const Graph& graph,
                                                const QuantizeOptions& options) {
  QUENCH_RETURN_IF_ERROR(CheckPatterns(graph, options, /*bodies=*/false));
  std::vector<bool> selected;
  for (const Node& node : graph.nodes)
    selected.push_back(IsSelected(NamingOf(node, options), options));
  return selected;
}

std::string WhyRecurrentStaysFloat(const Graph& graph, const Node& node) {
  for (const size_t input : {1U, 2U}) {
    const auto& constant = graph.value(node.inputs[input]).constant;
    if (constant == nullptr) return "its weights are computed while running";
    if (constant->tensor.dtype() != DataType::kF32 || constant->tensor.size() == 0)
      return "its weights are not f32";
  }
  return "";
}

namespace {

std::string WhyFloat(const Graph& graph, const Node& node) {
  if (IsRecurrent(RootOf(node).op)) return WhyRecurrentStaysFloat(graph, node);
  for (const int operand : {0, 1}) {
    const int input = OperandInput(node, operand);
    if (input < 0) return "an operand is a number";
    const ValueId id = node.inputs[static_cast<size_t>(input)];
    const Value& value = graph.value(id);
    if (operand == 0 && value.constant != nullptr) return "its first operand is a constant";
    if (value.constant == nullptr && !IsActivation(graph, id))
      return "the rank of an operand is unknown";
  }
  const std::string& op = RootOf(node).op;
  const ValueId kernel = node.inputs[static_cast<size_t>(OperandInput(node, 1))];
  if ((op == "Conv" || op == "ConvTranspose") && graph.value(kernel).constant == nullptr)
    return "its kernel is computed while running";
  return "";
}

// Every name of `kept` is one product's.
absl::Status CheckKept(const Graph& graph, const std::map<std::string, std::string>& kept) {
  std::map<std::string, int> products;
  for (const Node& node : graph.nodes) {
    if (IsLayer(RootOf(node).op)) ++products[RootOf(node).name];
  }
  StatusCollector problems;
  for (const auto& [name, why] : kept) {
    const auto found = products.find(name);
    const int count = found == products.end() ? 0 : found->second;
    if (count != 1) {
      problems.Add(absl::FailedPreconditionError(fmt::format(
          "`{}` is to stay in float, and {} products of the module are called so", name, count)));
    }
  }
  return problems.Finish();
}

// Products that stay in float, and why; whatever is not selected stays too.
void Exclude(const Graph& graph, const std::vector<bool>& selected,
             const std::map<std::string, std::string>& kept, Plan& plan) {
  std::map<std::string, int> origins;  // of products
  for (const Node& node : graph.nodes) {
    if (IsLayer(RootOf(node).op)) ++origins[RootOf(node).origin];
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const Node& root = RootOf(node);
    if (IsLayer(root.op)) {
      // By what users know it: its name in the model, where no other product came from there too.
      const bool known = !root.origin.empty() && origins[root.origin] == 1;
      LayerChoice choice{known ? root.origin : root.name, root.op, true, ""};
      if (plan.parts[i] != Part::kCompute) {
        choice.reason = "its output is not an f32 tensor of known rank";
      } else if (const auto why = kept.find(root.name); why != kept.end()) {
        choice.reason = why->second;
      } else {
        choice.reason = selected[i] ? WhyFloat(graph, node) : "excluded";
      }
      choice.quantized = choice.reason.empty();
      if (!choice.quantized) plan.parts[i] = Part::kFloat;
      plan.layers.push_back(std::move(choice));
    }
    if (!selected[i] && !StaysFloat(plan.parts[i])) plan.parts[i] = Part::kFloat;
  }
}

}  // namespace

namespace {

// How many times narrower a piece cut out of a tensor may be than the whole: a bit is lost then. An
// operand of a Concat may be narrower by more, because only some of the result suffers.
constexpr double kNarrower = 2, kMuchNarrower = 8;

double WidthOf(const TensorStatistics& seen) { return double{seen.high} - double{seen.low}; }

// Whether a node hands on a part of its input only, or joins inputs, and such a part's range is much
// narrower than the whole's: with the scale of the whole little would be left of it. It is moved in
// float then, and has a scale of its own.
bool MovesNarrowPart(const Graph& graph, const Node& node, const Statistics* statistics,
                     const QuantizeOptions& options) {
  const bool joins = RootOf(node).op == "Concat";
  if (!joins &&
      !IsAmong(RootOf(node).op, {"Slice", "Split", "Gather", "GatherElements", "GatherND"}))
    return false;
  const ValueId all = joins ? node.outputs[0] : node.inputs[0];
  const std::vector<ValueId>& parts = joins ? node.inputs : node.outputs;
  const TensorStatistics* whole = StatisticsOf(graph, all, statistics, options);
  if (whole == nullptr) return false;
  return std::any_of(parts.begin(), parts.end(), [&](ValueId id) {
    const TensorStatistics* part =
        id == kNone ? nullptr : StatisticsOf(graph, id, statistics, options);
    return part != nullptr && part->high > part->low &&
           WidthOf(*part) * (joins ? kMuchNarrower : kNarrower) < WidthOf(*whole);
  });
}

// Multiplications for each number that becomes an integer for a product alone, up to which integers
// cannot save time: to scale, round, shift and clamp a number takes as many instructions as four
// multiplications in float. With two computed sides they break even at 16 (measured on AVX-512 with
// VNNI).
constexpr double kFewWithConstants = 4, kFewOfComputed = 16;

// Per value, how many nodes read it.
std::vector<int> ReadersOf(const Graph& graph) {
  std::vector<int> readers(graph.values.size(), 0);
  for (const Node& node : graph.nodes) {
    for (const ValueId id : std::set<ValueId>(node.inputs.begin(), node.inputs.end()))
      if (id != kNone) ++readers[static_cast<size_t>(id)];
  }
  return readers;
}

// Numbers that a node of its own must make integers for the only reader of `id`; 0 where integers
// come from a group's end, where others read them too, or where nobody knows how many there are.
double MadeForOne(const Graph& graph, const std::vector<Part>& parts,
                  const std::vector<int>& readers, ValueId id) {
  NodeId producer = kNone;
  for (;; id = graph.node(producer).inputs[0]) {
    if (readers[static_cast<size_t>(id)] != 1 || !IsActivation(graph, id)) return 0;
    producer = graph.value(id).producer;
    if (producer == kNone || StaysFloat(parts[static_cast<size_t>(producer)])) break;
    if (parts[static_cast<size_t>(producer)] != Part::kMoves ||
        DataInputs(graph.node(producer)).size() != 1)
      return 0;
  }
  double count = 1;
  for (const Dim dim : graph.value(id).type.dims)
    count *= dim.is_static() ? static_cast<double>(dim.value()) : 0;
  return count;
}

// Why a product is no faster with integers; empty where it is, or sizes are not known.
std::string WhyNothingIsGained(const Graph& graph, const Node& node, const std::vector<Part>& parts,
                               const std::vector<int>& readers) {
  const Node& root = RootOf(node);
  const ops::OpDef* op = ops::FindOp(root.op);
  if (IsRecurrent(root.op) || op == nullptr || op->macs == nullptr) return "";
  const Graph& around = node.op == "q.fused" ? *node.Body("body") : graph;
  const Dim multiplications = op->macs(ops::ContextOf(around, root));
  if (!multiplications.is_static()) return "";
  double made = 0;
  bool computed = true;
  for (const int operand : {0, 1}) {
    const ValueId id = node.inputs[static_cast<size_t>(OperandInput(node, operand))];
    computed = computed && IsActivation(graph, id);
    made += MadeForOne(graph, parts, readers, id);
  }
  const auto count = static_cast<double>(multiplications.value());
  if (made == 0 || count >= (computed ? kFewOfComputed : kFewWithConstants) * made) return "";
  return fmt::format(
      "integers would save no time: only {:.1f} multiplications for each number that is quantized "
      "just for this layer",
      count / made);
}

// `possible` are the parts before any layer was kept in float, so that one which is kept changes
// nothing for the others: a budget tries layers one by one.
void KeepWhatGainsNothing(const Graph& graph, const std::vector<Part>& possible, Plan& plan) {
  const std::vector<int> readers = ReadersOf(graph);
  size_t layer = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!IsLayer(RootOf(graph.nodes[i]).op)) continue;
    LayerChoice& choice = plan.layers[layer++];
    if (plan.parts[i] != Part::kCompute) continue;
    choice.reason = WhyNothingIsGained(graph, graph.nodes[i], possible, readers);
    choice.quantized = choice.reason.empty();
    if (!choice.quantized) plan.parts[i] = Part::kFloat;
  }
}

// Before: integers where products read. After: where they end too, behind an activation that only
// clips if nobody else reads its input; so are sums of a matrix product before its bias is added.
// A runtime that looks for products one by one finds each between integers.
void SurroundProducts(const Graph& graph, const Statistics* statistics,
                      const QuantizeOptions& options, Plan& plan) {
  const std::vector<int> readers = ReadersOf(graph);
  std::map<ValueId, const Node*> reader;  // any
  for (const Node& node : graph.nodes) {
    for (const ValueId id : node.inputs) reader[id] = &node;
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (plan.parts[i] != Part::kCompute || IsRecurrent(node.op)) continue;
    ValueId id = node.outputs[0];
    const auto next = reader.find(id);
    if (next == reader.end()) continue;  // what the model gives stays as it is
    const bool only =
        readers[static_cast<size_t>(id)] == 1 &&
        std::find(graph.outputs.begin(), graph.outputs.end(), id) == graph.outputs.end();
    if (only && IsAmong(next->second->op, {"Relu", "Clip"})) {
      plan.wanted[static_cast<size_t>(id)] = false;
      id = next->second->outputs[0];
      if (!reader.contains(id)) continue;
    } else if (node.op == "Gemm" || (node.op == "MatMul" && next->second->op != "Add")) {
      continue;  // floats may come out of these
    }
    // A module for trials has integers only where a layer's switch says so.
    if (options.switches || StatisticsOf(graph, id, statistics, options) == nullptr) continue;
    plan.wanted[static_cast<size_t>(id)] = true;
  }
}

}  // namespace

absl::StatusOr<Plan> PlanParts(const Graph& fused, const Statistics* statistics,
                               const QuantizeOptions& options) {
  Plan plan;
  QUENCH_ASSIGN_OR_RETURN(const std::vector<bool> selected, SelectedNodes(fused, options));
  QUENCH_RETURN_IF_ERROR(CheckKept(fused, options.kept));
  for (const Node& node : fused.nodes) {
    const bool narrow = MovesNarrowPart(fused, node, statistics, options);
    plan.parts.push_back(narrow ? Part::kExact : PartOf(fused, node));
  }
  const std::vector<Part> possible = plan.parts;
  Exclude(fused, selected, options.kept, plan);
  // Layers that the user names are quantized, whatever they gain.
  if (options.include.empty()) KeepWhatGainsNothing(fused, possible, plan);
  plan.wanted.assign(fused.values.size(), false);
  for (size_t i = fused.nodes.size(); i-- > 0;) {
    const Node& node = fused.nodes[i];
    const bool product = plan.parts[i] == Part::kCompute;
    const bool out = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
      return id != kNone && plan.wanted[static_cast<size_t>(id)];
    });
    if (!product && (StaysFloat(plan.parts[i]) || !out)) continue;
    for (const int input : DataInputs(node)) {
      const ValueId id = node.inputs[static_cast<size_t>(input)];
      if (!IsActivation(fused, id) || (product && IsPartialSum(fused, node, input))) continue;
      // Ranges of each run are worth their cost at products only.
      if (!product && StatisticsOf(fused, id, statistics, options) == nullptr) continue;
      plan.wanted[static_cast<size_t>(id)] = true;
    }
  }
  if (options.single_operators) SurroundProducts(fused, statistics, options, plan);
  return plan;
}

}  // namespace quench::quantizer
