#include "services/codegen/select.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "services/codegen/laid_out_sizes.h"

namespace quench::codegen {
namespace {

bool RowMajor(const Candidate& candidate) {
  auto plain = [](const Layout& layout) { return layout.row_major(); };
  return std::all_of(candidate.inputs.begin(), candidate.inputs.end(), plain) &&
         std::all_of(candidate.outputs.begin(), candidate.outputs.end(), plain);
}

bool IsNest(const Candidate& candidate) {
  return candidate.kernel->name == "scheduled" || candidate.kernel->name == "reference";
}

bool AllowedAt(const Candidate& candidate, const CompileOptions& options) {
  switch (options.opt_level) {
    case 0:
      return candidate.kernel->name == "reference";
    case 1:
      return IsNest(candidate) && RowMajor(candidate);
    case 2:
      return !IsNest(candidate) || RowMajor(candidate);
    default:
      return options.channel_layout.empty() || RowMajor(candidate);
  }
}

// What the weights of a graph take as they are.
int64_t WeightBytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const Value& value : graph.values) {
    if (value.constant != nullptr)
      bytes += static_cast<int64_t>(value.constant->tensor.bytes().size());
  }
  return bytes;
}

// Values and nodes as the optimiser sees them. A node's options are its candidates; nodes that are
// not kernels have one option, row-major throughout.
class LayoutProblem {
 public:
  LayoutProblem(const Graph& graph, const Target& target,
                std::vector<std::vector<Candidate>> options)
      : graph_(graph),
        options_(std::move(options)),
        users_(graph.values.size()),
        chosen_(graph.nodes.size(), 0),
        slots_(TypicalSlots(*graph.symbols)),
        gbytes_(target.gbytes) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] != quench::kNone)
          users_[static_cast<size_t>(node.inputs[i])].emplace_back(n, i);
      }
    }
  }

  // The cheapest choice found whose copies of weights take at most `room` bytes beyond the weights: a
  // byte has the lowest price, in microseconds, with which they do (a Lagrange multiplier).
  std::vector<int> Solve(int64_t room) {
    std::vector<int> best = SolveAt(0);
    if (Extra(best) <= room) return best;
    double low = 0, high = 1e-6;  // a microsecond a megabyte
    for (; Extra(best = SolveAt(high)) > room && high < 1e6; high *= 8) low = high;
    for (int i = 0; i < 8; ++i) {
      const double middle = low == 0 ? high / 16 : std::sqrt(low * high);
      std::vector<int> chosen = SolveAt(middle);
      const bool fits = Extra(chosen) <= room;
      (fits ? high : low) = middle;
      if (fits) best = std::move(chosen);
    }
    return best;
  }

 private:
  // Changes one node at a time while that helps, from three starts; the cheapest end wins.
  std::vector<int> SolveAt(double price) {
    price_ = price;
    std::vector<int> best;
    double best_cost = std::numeric_limits<double>::infinity();
    for (const int start : {0, 1, 2}) {
      for (size_t n = 0; n < options_.size(); ++n) chosen_[n] = Start(n, start);
      Descend();
      const double cost = Total();
      if (cost < best_cost) {
        best_cost = cost;
        best = chosen_;
      }
    }
    return best;
  }

  int64_t Extra(const std::vector<int>& chosen) const {
    int64_t bytes = 0;
    for (size_t n = 0; n < options_.size(); ++n) {
      if (!options_[n].empty()) bytes += options_[n][static_cast<size_t>(chosen[n])].extra_bytes;
    }
    return bytes;
  }

  // With the price of its bytes.
  double CostOf(size_t n, int option) const {
    const Candidate& candidate = options_[n][static_cast<size_t>(option)];
    return candidate.cost + price_ * static_cast<double>(candidate.extra_bytes);
  }

  // 0: the cheapest; 1: the cheapest row-major one; 2: the cheapest that is not.
  int Start(size_t n, int start) const {
    int best = -1;
    auto better = [&](int a, int b) { return b < 0 || CostOf(n, a) < CostOf(n, b); };
    for (const bool any : {false, true}) {
      for (int i = 0; i < static_cast<int>(options_[n].size()); ++i) {
        const bool plain = RowMajor(options_[n][static_cast<size_t>(i)]);
        if (!any && ((start == 1 && !plain) || (start == 2 && plain))) continue;
        if (better(i, best)) best = i;
      }
      if (best >= 0) break;
    }
    return std::max(best, 0);
  }

  const Layout& Produced(ValueId id) const {
    const Value& value = graph_.value(id);
    if (value.producer == quench::kNone) return plain_;
    const auto n = static_cast<size_t>(value.producer);
    if (options_[n].empty()) return plain_;
    const Candidate& candidate = options_[n][static_cast<size_t>(chosen_[n])];
    const auto& outputs = graph_.nodes[n].outputs;
    const auto index =
        static_cast<size_t>(std::find(outputs.begin(), outputs.end(), id) - outputs.begin());
    return index < candidate.outputs.size() ? candidate.outputs[index] : plain_;
  }

  // Transforms between what a value is and what its users want, each wanted layout once.
  double ValueCost(ValueId id) const {
    const Value& value = graph_.value(id);
    if (value.constant != nullptr) return 0;  // laid out at compile time
    const Layout& produced = Produced(id);
    std::vector<const Layout*> wanted;
    double cost = 0;
    auto want = [&](const Layout& layout) {
      if (layout == produced) return;
      for (const Layout* other : wanted) {
        if (*other == layout) return;
      }
      wanted.push_back(&layout);
      cost += TransformCost(value.type, produced, layout);
    };
    for (const auto& [n, i] : users_[static_cast<size_t>(id)]) {
      if (options_[n].empty()) {
        want(plain_);
        continue;
      }
      const Candidate& candidate = options_[n][static_cast<size_t>(chosen_[n])];
      if (i < candidate.packed.size() && candidate.packed[i]) continue;
      want(i < candidate.inputs.size() ? candidate.inputs[i] : plain_);
    }
    if (graph_.IsOutput(id)) want(plain_);
    return cost;
  }

  // Read once, written once, plus the call.
  double TransformCost(const Type& type, const Layout& from, const Layout& to) const {
    if (!type.ranked) return 0;
    const auto bytes = static_cast<double>(BytesAt({type.dtype, type.dims, from}, slots_) +
                                           BytesAt({type.dtype, type.dims, to}, slots_));
    constexpr double kByLanes = 6;
    return 0.5 + 1e-3 * bytes / gbytes_ *
                     (FillsBlocks(type, from) && FillsBlocks(type, to) ? 1 : kByLanes);
  }

  // Blocks that are not full are transformed lane by lane (measured: three channels of eight at 2.4 GB/s).
  static bool FillsBlocks(const Type& type, const Layout& layout) {
    if (layout.blocked_axis < 0) return true;
    const Dim dim = type.dims[static_cast<size_t>(layout.blocked_axis)];
    return dim.is_static() && dim.value() % layout.block == 0;
  }

  double Around(size_t n) const {
    double cost = options_[n].empty() ? 0 : CostOf(n, chosen_[n]);
    for (const ValueId id : graph_.nodes[n].inputs) cost += id == quench::kNone ? 0 : ValueCost(id);
    for (const ValueId id : graph_.nodes[n].outputs)
      cost += id == quench::kNone ? 0 : ValueCost(id);
    return cost;
  }

  bool Improve(size_t n) {
    if (options_[n].size() < 2) return false;
    const int before = chosen_[n];
    int best = before;
    double best_cost = Around(n);
    for (int i = 0; i < static_cast<int>(options_[n].size()); ++i) {
      chosen_[n] = i;
      if (const double cost = Around(n); cost < best_cost * (1 - 1e-9)) {
        best_cost = cost;
        best = i;
      }
    }
    chosen_[n] = best;
    return best != before;
  }

  void Descend() {
    for (int sweep = 0; sweep < 8; ++sweep) {
      bool changed = false;
      for (size_t n = 0; n < options_.size(); ++n) changed = Improve(n) || changed;
      for (size_t n = options_.size(); n-- > 0;) changed = Improve(n) || changed;
      if (!changed) return;
    }
  }

  double Total() const {
    double cost = 0;
    for (size_t n = 0; n < options_.size(); ++n) {
      if (!options_[n].empty()) cost += CostOf(n, chosen_[n]);
    }
    for (size_t v = 0; v < graph_.values.size(); ++v) cost += ValueCost(static_cast<ValueId>(v));
    return cost;
  }

  const Graph& graph_;
  std::vector<std::vector<Candidate>> options_;
  std::vector<std::vector<std::pair<size_t, size_t>>> users_;  // (node, input)
  std::vector<int> chosen_;
  std::vector<int64_t> slots_;
  double gbytes_ = 1;
  double price_ = 0;  // of a byte of copies of weights
  const Layout plain_;
};

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
  bool moved = false;
  for (Candidate& candidate : candidates) {
    if (!IsNest(candidate)) continue;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      moved = move(node.inputs[i], candidate.inputs[i]) || moved;
    for (size_t i = 0; i < node.outputs.size(); ++i)
      moved = move(node.outputs[i], candidate.outputs[i]) || moved;
  }
  if (moved)
    std::erase_if(candidates, [](const Candidate& candidate) { return !IsNest(candidate); });
}

std::vector<Candidate> Propose(const Graph& graph, const Node& node, const Target& target,
                               const CompileOptions& options) {
  std::vector<Candidate> all;
  const KernelRequest request{graph, node, target, options.opt_level, options.winograd};
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

std::string RunnerUp(const std::vector<Candidate>& candidates, int chosen) {
  const Candidate* best = nullptr;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (static_cast<int>(i) == chosen) continue;
    if (best == nullptr || candidates[i].cost < best->cost) best = &candidates[i];
  }
  return best == nullptr ? "" : fmt::format("{} ({:.3g} us)", best->kernel->name, best->cost);
}

// Those that may take the place of `chosen`, which stays the first: every neighbour finds the layouts
// that it was chosen for.
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

// What measurements change of `chosen`, which predicted costs chose.
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
