#include "services/codegen/plan/select.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "services/codegen/plan/layout_problem.h"

namespace quench::codegen {
namespace {

// Bytes of the weights of a graph as they are.
int64_t WeightBytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const Value& value : graph.values) {
    if (value.constant != nullptr)
      bytes += static_cast<int64_t>(value.constant->tensor.bytes().size());
  }
  return bytes;
}

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
                  const std::vector<std::shared_ptr<const SymbolTable>>& symbols,
                  const MeasuredChoice& measured, int64_t room)
      : graph_(graph),
        candidates_(candidates),
        symbols_(symbols),
        measured_(measured),
        room_(room) {}

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
        CandidateKey(graph_.nodes[n], candidates_[n][static_cast<size_t>(i)], *symbols_[n]));
    if (found == measured_.microseconds.end()) return std::nullopt;
    return found->second;
  }

  const Graph& graph_;
  const std::vector<std::vector<Candidate>>& candidates_;
  const std::vector<std::shared_ptr<const SymbolTable>>& symbols_;  // of the candidates
  const MeasuredChoice& measured_;
  int64_t room_;
  std::vector<Change> changes_;
};

}  // namespace

absl::StatusOr<std::vector<Choice>> ChooseKernels(const Graph& graph, const Target& target,
                                                  const CompileOptions& options, Proposer& proposer,
                                                  const StepContext& context) {
  std::vector<Choice> choices(graph.nodes.size());
  std::vector<std::vector<Candidate>> candidates(graph.nodes.size());
  std::vector<std::shared_ptr<const SymbolTable>> symbols(graph.nodes.size());
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
    Proposals proposals = proposer.Of(graph, node);
    candidates[n] = std::move(proposals.candidates);
    symbols[n] = proposals.symbols;
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
    MeasuredChoices(graph, candidates, symbols, *options.measured, room_bytes).Apply(chosen);
  for (size_t n = 0; n < choices.size(); ++n) {
    if (candidates[n].empty()) continue;
    choices[n].runner_up = RunnerUp(candidates[n], chosen[n]);
    const Candidate& candidate = candidates[n][static_cast<size_t>(chosen[n])];
    choices[n].key = CandidateKey(graph.nodes[n], candidate, *symbols[n]);
    choices[n].candidate = InTable(candidate, *symbols[n], *graph.symbols);
  }
  return choices;
}

}  // namespace quench::codegen
