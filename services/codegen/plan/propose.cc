#include "services/codegen/plan/propose.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/blobs/digest.h"
#include "common/ops/op.h"
#include "services/codegen/plan/layout_problem.h"

namespace quench::codegen {
namespace {

bool IsNest(const Candidate& candidate) {
  return candidate.kernel->name == "scheduled" || candidate.kernel->name == "reference";
}

bool AllowedAt(const Candidate& candidate, const CompileOptions& options) {
  switch (options.opt_level) {
    case 0:
      return candidate.kernel->name == "reference";
    case 1:
      return IsNest(candidate) && IsRowMajor(candidate);
    case 2:
      return !IsNest(candidate) || IsRowMajor(candidate);
    default:
      return options.channel_layout.empty() || IsRowMajor(candidate);
  }
}

// Channels innermost for activations of rank 4 and more: NHWC. Only nests take any order of axes.
void MoveChannelsLast(const Graph& graph, const Node& node, std::vector<Candidate>& candidates) {
  auto move = [&](ValueId id, Layout& layout) {
    if (id == quench::kNone || graph.value(id).type.rank() < 4 ||
        graph.value(id).constant != nullptr)
      return false;
    layout.order = {0};
    for (int axis = 2; axis < graph.value(id).type.rank(); ++axis) layout.order.push_back(axis);
    layout.order.push_back(1);
    return true;
  };
  const ops::OpDef* op = ops::FindOp(node.op);
  const bool updates = op != nullptr && op->updates;
  bool moved = false;
  for (Candidate& candidate : candidates) {
    if (!IsNest(candidate)) continue;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      moved = move(node.inputs[i], candidate.inputs[i]) || moved;
    for (size_t i = 0; i < node.outputs.size(); ++i)
      moved = move(node.outputs[i], candidate.outputs[i]) || moved;
    // Bytes of the first operand are copied to where the result is, constants' too.
    if (updates && node.outputs[0] != quench::kNone) candidate.inputs[0] = candidate.outputs[0];
  }
  if (moved)
    std::erase_if(candidates, [](const Candidate& candidate) { return !IsNest(candidate); });
}

// Whether it has a value whose size only the run tells.
bool HasRuntimeSizes(const Graph& graph, const Node& node, const SymbolTable& symbols) {
  const auto depends = [&](ValueId id) {
    return id != quench::kNone && std::ranges::any_of(graph.value(id).type.dims, [&](Dim dim) {
             return symbols.DependsOnRuntime(dim);
           });
  };
  return std::ranges::any_of(node.inputs, depends) || std::ranges::any_of(node.outputs, depends);
}

// A node by its name and those of its values.
std::string IdentityOf(const Graph& graph, const Node& node) {
  std::string text = node.op + " " + node.name;
  for (const std::vector<ValueId>* values : {&node.inputs, &node.outputs}) {
    text += ":";
    for (const ValueId id : *values)
      text += " `" + (id == quench::kNone ? "" : graph.value(id).name) + "`";
  }
  return text;
}

}  // namespace

KernelOptions KernelOptionsOf(const CompileOptions& options) {
  return {options.opt_level, options.winograd, options.half_sums, options.tf32};
}

Candidate InTable(const Candidate& candidate, const SymbolTable& from, SymbolTable& to) {
  const DimMap map = [&](Dim dim) { return to.Import(from, dim, {}); };
  Candidate result = candidate;
  result.tasks = map(candidate.tasks);
  result.scratch_bytes = map(candidate.scratch_bytes);
  if (candidate.code != nullptr) result.code = candidate.code->WithDims(map);
  if (result.preparation) {
    result.preparation->tasks = map(candidate.preparation->tasks);
    result.preparation->workspace_bytes = map(candidate.preparation->workspace_bytes);
    result.preparation->code = candidate.preparation->code->WithDims(map);
  }
  return result;
}

std::string CandidateKey(const Node& node, const Candidate& candidate, const SymbolTable& symbols) {
  std::string text = candidate.kernel->name;
  if (candidate.code != nullptr) text += " " + candidate.code->Text(symbols);
  if (const std::optional<Preparation>& before = candidate.preparation) {
    text += fmt::format(" after {} tasks, {} bytes, {}", symbols.ToString(before->tasks),
                        symbols.ToString(before->workspace_bytes), before->code->Text(symbols));
  }
  for (const PackSpec& pack : candidate.packs)
    text += fmt::format(" pack {} of {}", pack.ToString(), fmt::join(pack.inputs, " "));
  for (const Layout& layout : candidate.inputs) text += " " + layout.ToString();
  text += " ->";
  for (const Layout& layout : candidate.outputs) text += " " + layout.ToString();
  return fmt::format("{}#{}", node.name, Sha256Hex(text).substr(0, 16));
}

std::shared_ptr<SymbolTable> Proposer::Scratch(const Graph& graph) {
  if (copied_ != graph.symbols->size()) {
    scratch_ = std::make_shared<SymbolTable>(*graph.symbols);
    copied_ = graph.symbols->size();
  }
  return scratch_;
}

Proposals Proposer::Of(const Graph& graph, const Node& node) {
  const auto propose = [&] {
    const std::shared_ptr<SymbolTable> symbols = Scratch(graph);
    return Proposals{Propose(graph, node, *symbols), symbols};
  };
  if (node.op != "q.fused") return propose();
  const GraphPtr body = std::get<GraphPtr>(node.attributes.at("body"));
  std::string identity = IdentityOf(graph, node);
  const auto found = known_.find(body.get());
  if (found != known_.end() && found->second.identity == identity) return found->second.proposals;
  Known& known = known_[body.get()];
  known = {body, std::move(identity), propose()};
  return known.proposals;
}

std::vector<Candidate> Proposer::Propose(const Graph& graph, const Node& node,
                                         SymbolTable& symbols) const {
  std::vector<Candidate> all = ProposeFor(target_, graph, node, symbols);
  // A group is cut before it leaves the GPU.
  if (!all.empty() || host_ == nullptr || node.op == "q.fused") return all;
  all = ProposeFor(*host_, graph, node, symbols);
  std::erase_if(all, [](const Candidate& candidate) { return !IsRowMajor(candidate); });
  for (Candidate& candidate : all) {
    candidate.on_host = true;
    candidate.slow = "no kernel of the GPU takes it: it runs on the host";
  }
  return all;
}

std::vector<Candidate> Proposer::ProposeFor(const Target& target, const Graph& graph,
                                            const Node& node, SymbolTable& symbols) const {
  std::vector<Candidate> all;
  const KernelRequest request{graph, node, target, KernelOptionsOf(options_), symbols};
  for (const Kernel* kernel : AllKernels()) {
    if (target.gpu ? kernel->gpu : kernel->cpu) codegen::Propose(*kernel, request, all);
  }
  std::erase_if(all, [&](const Candidate& candidate) { return !AllowedAt(candidate, options_); });
  // Such values are in memory of the host, where code for a GPU has no other form.
  if (target.gpu && HasRuntimeSizes(graph, node, symbols))
    std::erase_if(all, [](const Candidate& candidate) { return candidate.code != nullptr; });
  if (options_.opt_level >= 3 && options_.channel_layout == "last")
    MoveChannelsLast(graph, node, all);
  return all;
}

}  // namespace quench::codegen
