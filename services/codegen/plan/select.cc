#include "services/codegen/plan/select.h"

#include <algorithm>

#include "common/base/status.h"
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

// Bytes of the weights of a graph as they are.
int64_t WeightBytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const Value& value : graph.values) {
    if (value.constant != nullptr)
      bytes += static_cast<int64_t>(value.constant->tensor.bytes().size());
  }
  return bytes;
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

}  // namespace

std::vector<Candidate> Propose(const Graph& graph, const Node& node, const Target& target,
                               const CompileOptions& options) {
  std::vector<Candidate> all;
  const KernelRequest request{
      graph, node, target, options.opt_level, options.winograd, options.half_sums};
  for (const Kernel* kernel : AllKernels()) {
    const size_t before = all.size();
    kernel->propose(request, all);
    for (size_t i = before; i < all.size(); ++i) {
      all[i].kernel = kernel;
      all[i].inputs.resize(node.inputs.size());
      all[i].outputs.resize(node.outputs.size());
      all[i].packed.resize(node.inputs.size(), false);
    }
  }
  std::erase_if(all, [&](const Candidate& candidate) { return !AllowedAt(candidate, options); });
  if (options.opt_level >= 3 && options.channel_layout == "last")
    MoveChannelsLast(graph, node, all);
  return all;
}

namespace {

std::string RunnerUp(const std::vector<Candidate>& candidates, int chosen) {
  const Candidate* best = nullptr;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (static_cast<int>(i) == chosen) continue;
    if (best == nullptr || candidates[i].cost < best->cost) best = &candidates[i];
  }
  return best == nullptr ? "" : fmt::format("{} ({:.3g} us)", best->kernel->name, best->cost);
}

// Candidates that may take the place of `chosen`, which stays the first: every neighbour finds the
// layouts that it was chosen for.
std::vector<int> Competitors(const std::vector<Candidate>& candidates, int chosen) {
  const Candidate& first = candidates[static_cast<size_t>(chosen)];
  std::vector<int> others;
  for (int i = 0; i < static_cast<int>(candidates.size()); ++i) {
    const Candidate& candidate = candidates[static_cast<size_t>(i)];
    if (i != chosen && candidate.inputs == first.inputs && candidate.outputs == first.outputs &&
        candidate.packed == first.packed) {
      others.push_back(i);
    }
  }
  std::stable_sort(others.begin(), others.end(), [&](int a, int b) {
    return candidates[static_cast<size_t>(a)].cost < candidates[static_cast<size_t>(b)].cost;
  });
  others.insert(others.begin(), chosen);
  return others;
}

// Changes by measurement of `chosen`, which predicted costs chose.
class MeasuredChoices {
 public:
  MeasuredChoices(const Graph& graph, const std::vector<std::vector<Candidate>>& candidates,
                  const MeasuredChoice& measured, int64_t room)
      : graph_(graph), candidates_(candidates), measured_(measured), room_(room) {}

  void Apply(std::vector<int>& chosen) {
    for (size_t n = 0; n < chosen.size(); ++n) {
      if (candidates_[n].empty()) continue;
      room_ -= candidates_[n][static_cast<size_t>(chosen[n])].extra_bytes;
      const std::vector<int> competitors = Competitors(candidates_[n], chosen[n]);
      if (measured_.rank >= 0) {
        const auto rank = static_cast<size_t>(measured_.rank);
        if (rank < competitors.size()) chosen[n] = competitors[rank];
      } else if (const std::optional<Change> change = Faster(n, competitors)) {
        changes_.push_back(*change);
      }
    }
    // The largest savings take what room for copies of weights there is.
    std::stable_sort(changes_.begin(), changes_.end(),
                     [](const Change& a, const Change& b) { return a.saved > b.saved; });
    for (const Change& change : changes_) {
      if (change.bytes > 0 && change.bytes > room_) continue;
      room_ -= change.bytes;
      chosen[change.node] = change.candidate;
    }
  }

 private:
  struct Change {
    size_t node = 0;
    int candidate = 0;
    double saved = 0;   // microseconds
    int64_t bytes = 0;  // more of copies of weights
  };

  std::optional<Change> Faster(size_t n, const std::vector<int>& competitors) const {
    constexpr double kNoise = 0.97;
    const std::optional<double> first = Time(n, competitors[0]);
    if (!first) return std::nullopt;
    double best = *first * kNoise;
    std::optional<Change> change;
    for (const int i : competitors) {
      const std::optional<double> time = Time(n, i);
      if (!time || *time >= best) continue;
      best = *time;
      change = {n, i, *first - *time,
                candidates_[n][static_cast<size_t>(i)].extra_bytes -
                    candidates_[n][static_cast<size_t>(competitors[0])].extra_bytes};
    }
    return change;
  }

  std::optional<double> Time(size_t n, int i) const {
    const auto found = measured_.microseconds.find(
        CandidateName(graph_.nodes[n], candidates_[n][static_cast<size_t>(i)]));
    if (found == measured_.microseconds.end()) return std::nullopt;
    return found->second;
  }

  const Graph& graph_;
  const std::vector<std::vector<Candidate>>& candidates_;
  const MeasuredChoice& measured_;
  int64_t room_;
  std::vector<Change> changes_;
};

}  // namespace

std::string CandidateName(const Node& node, const Candidate& candidate) {
  std::string name = fmt::format("{}: {} {}", node.name, candidate.kernel->name, candidate.reason);
  for (const Layout& layout : candidate.inputs) name += " " + layout.ToString();
  name += " ->";
  for (const Layout& layout : candidate.outputs) name += " " + layout.ToString();
  return name;
}

bool IsTaken(const Graph& graph, const Node& node, const Target& target,
             const CompileOptions& options) {
  return !Propose(graph, node, target, options).empty();
}

absl::StatusOr<std::vector<Choice>> ChooseKernels(const Graph& graph, const Target& target,
                                                  const CompileOptions& options,
                                                  const StepContext& context) {
  std::vector<Choice> choices(graph.nodes.size());
  std::vector<std::vector<Candidate>> candidates(graph.nodes.size());
  StatusCollector problems;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    const Node& node = graph.nodes[n];
    const ops::OpDef* op = ops::FindOp(node.op);
    if (op == nullptr) {
      problems.Add(Unsupported("node `{}`: operator `{}` has no kernel", node.name, node.op));
      continue;
    }
    if (op->kind == ops::OpKind::kView) {
      choices[n].kind = Choice::Kind::kAlias;
      continue;
    }
    if (op->kind == ops::OpKind::kControl && node.op != "q.fused") {
      choices[n].kind = Choice::Kind::kControl;
      continue;
    }
    candidates[n] = Propose(graph, node, target, options);
    if (!candidates[n].empty()) continue;
    const absl::Status why = ops::LowerNode(ops::ContextOf(graph, node)).status();
    problems.Add(why.ok() ? Internal("node `{}` ({}): no kernel takes it", node.name, node.op)
                          : why);
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  const double room = (options.max_size - 1) * static_cast<double>(WeightBytes(graph));
  const auto room_bytes = static_cast<int64_t>(std::min(room, 1e18));
  std::vector<int> chosen = LayoutProblem(graph, target, candidates).Solve(room_bytes);
  if (options.measured)
    MeasuredChoices(graph, candidates, *options.measured, room_bytes).Apply(chosen);
  for (size_t n = 0; n < choices.size(); ++n) {
    if (candidates[n].empty()) continue;
    choices[n].runner_up = RunnerUp(candidates[n], chosen[n]);
    choices[n].candidate = std::move(candidates[n][static_cast<size_t>(chosen[n])]);
  }
  return choices;
}

}  // namespace quench::codegen
