#include "services/codegen/check/check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <numeric>
#include <optional>
#include <set>

#include "common/base/status.h"
#include "common/ir/quoting.h"
#include "common/ops/evaluate.h"
#include "common/passes/cut.h"
#include "common/passes/rounded.h"
#include "common/runner/inputs.h"
#include "common/runner/runner.h"
#include "services/codegen/check/compare.h"
#include "services/codegen/check/groups.h"
#include "services/codegen/check/judge.h"
#include "services/codegen/check/part.h"
#include "services/codegen/targets/resolve.h"

namespace quench::codegen {
namespace {

using Clock = std::chrono::steady_clock;
using Tensors = std::map<std::string, Tensor>;  // by the name of a value of the source

constexpr double kLeastBudget = 1, kBudgetShare = 0.3;  // seconds; of compiling
constexpr uint64_t kManyIntegers = 8;                   // below it, where a model takes that
constexpr uint64_t kSeed = 1;
constexpr char kTooSlow[] = "the interpreter takes much longer than was expected";

// CPU time of all threads of the process.
double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

class Checker {
 public:
  // `device` as OpenOptions has it.
  Checker(const CheckRequest& request, std::string device, const StepContext& context)
      : request_(request),
        device_(std::move(device)),
        context_(context),
        whole_(request.mode == CheckMode::kFull) {
    budget_ = std::max(kLeastBudget, kBudgetShare * request.compile_seconds);
  }

  bool ran_on_gpu() const { return variant_ != nullptr && variant_->target.device != nullptr; }

  // CheckJudge's.
  double Coarseness() const {
    const DataType stored = request_.passes.store_as;
    const std::shared_ptr<const Target>& device = variant_->target.device;
    const bool tf32 = request_.tf32 && device != nullptr && device->gpu->has_tf32();
    return std::max(IsHalf(stored) ? passes::DefaultTolerance(stored) : 0,
                    tf32 ? kTf32Tolerance : 0);
  }

  absl::StatusOr<CheckReport> Run() {
    QUENCH_ASSIGN_OR_RETURN(const bool runs, Open());
    if (!runs) return report_;
    const absl::Status prepared = Prepare();
    if (!prepared.ok()) return NotRun(prepared);
    groups_ = FindGroups(source_, *variant_, quantized_);
    judge_.emplace(source_, variant_->graph, groups_, quantizers_, Coarseness());
    Choose();
    const absl::Status drawn = Draw();
    if (!drawn.ok()) return NotRun(drawn);
    const absl::Status checked = whole_ && !quantized_ ? CheckWhole() : CheckChosen();
    if (absl::IsDeadlineExceeded(checked) && context_.Check().ok()) return TooSlow();
    if (!checked.ok() && !failed_) return NotRun(Annotate(checked, "the interpreter"));
    QUENCH_RETURN_IF_ERROR(checked);
    QUENCH_RETURN_IF_ERROR(Verdict());
    Fill();
    return std::move(report_);
  }

 private:
  // The request may still be cancelled.
  absl::StatusOr<CheckReport> NotRun(const absl::Status& status) {
    QUENCH_RETURN_IF_ERROR(context_.Check());
    report_ = {};
    report_.reason = MessageOf(status);
    return report_;
  }

  absl::StatusOr<CheckReport> TooSlow() { return NotRun(InvalidArgument("{}", kTooSlow)); }

  absl::StatusOr<bool> Open() {
    const Target& target = request_.variants.front().target;  // the weakest
    const absl::StatusOr<std::vector<Target>> here = ResolveTarget("host");
    if (!here.ok() || here->front().machine != target.machine ||
        here->front().android != target.android) {
      report_.reason =
          fmt::format("the library is for {}, and this machine does not run it", target.triple);
      return false;
    }
    absl::StatusOr<std::unique_ptr<Artifact>> artifact =
        Artifact::Open(request_.library, {1, device_});
    if (absl::IsFailedPrecondition(artifact.status())) {
      report_.reason = fmt::format("this CPU lacks instructions that {} may use", target.name);
      return false;
    }
    if (!artifact.ok()) return Annotate(artifact.status(), "the library that was made");
    artifact_ = *std::move(artifact);
    const std::string name = artifact_->variant();
    for (const PlannedVariant& each : request_.variants) {
      if (each.target.name == name) variant_ = &each;
    }
    QUENCH_CHECK(variant_ != nullptr);  // it was made of them
    if (request_.variants.size() > 1) report_.variant = name;
    return true;
  }

  // The source as it runs: with the batch size that was asked for, and quantized operators in parts.
  absl::Status Prepare() {
    QUENCH_ASSIGN_OR_RETURN(source_, passes::InlinePartitions(WithOwnSymbols(request_.source)));
    if (request_.passes.batch > 0) {
      QUENCH_ASSIGN_OR_RETURN(
          source_, passes::RunPass(*passes::FindPass("set_batch_size"), std::move(source_),
                                   request_.passes, context_));
    }
    QUENCH_ASSIGN_OR_RETURN(source_, passes::ExpandLinear(std::move(source_)));
    const Graph unbound = source_;
    // Larger sizes find more, where there is time for them.
    for (const bool usual : {true, false}) {
      QUENCH_ASSIGN_OR_RETURN(
          inputs_, RandomInputs(artifact_->inputs(), kSeed, Sizes(usual), kManyIntegers));
      QUENCH_ASSIGN_OR_RETURN(source_, BindSymbols(WithOwnSymbols(unbound), SizesOf(unbound)));
      seconds_ = InterpreterSeconds(source_);
      if (seconds_ <= budget_) break;
      if (request_.mode == CheckMode::kFull && usual) break;
      usual_ = false;
    }
    whole_ = whole_ || seconds_ <= budget_;
    for (passes::Quantizer& each : passes::QuantizersOf(source_))
      quantizers_[each.value] = std::move(each);
    quantized_ = !quantizers_.empty();
    ids_ = ValueIdsOf(source_);
    return absl::OkStatus();
  }

  // Sizes of the library's symbolic dims: the least, or, for `usual`, 2 of the outermost axis and 8 of
  // others.
  std::map<std::string, int64_t> Sizes(bool usual) const {
    std::map<std::string, int64_t> sizes;
    for (const ArtifactTensor& input : artifact_->inputs()) {
      for (size_t axis = 0; axis < input.dims.size(); ++axis) {
        const ArtifactDim& dim = input.dims[axis];
        if (dim.value >= 0 || !IsIdentifier(dim.symbol)) continue;
        const std::optional<SymbolId> id = request_.source.symbols->Find(dim.symbol);
        const int64_t unit =
            id ? std::max<int64_t>(request_.source.symbols->at(*id).multiple_of, 1) : 1;
        const int64_t least = std::max<int64_t>(dim.min, 1);
        const auto up = [&](int64_t size) { return (size + unit - 1) / unit * unit; };
        const int64_t wanted = up(std::max<int64_t>(least, axis == 0 ? 2 : 8));
        sizes.emplace(dim.symbol, usual && wanted <= dim.max ? wanted : up(least));
      }
    }
    return sizes;
  }

  // Sizes of the source's symbols, as the inputs have them.
  std::map<std::string, int64_t> SizesOf(const Graph& graph) const {
    std::map<std::string, int64_t> sizes;
    for (size_t i = 0; i < graph.inputs.size() && i < inputs_.size(); ++i) {
      const Type& type = graph.value(graph.inputs[i]).type;
      for (size_t axis = 0; axis < type.dims.size() && axis < inputs_[i].dims().size(); ++axis) {
        if (type.dims[axis].is_static()) continue;
        const Symbol& symbol = graph.symbols->at(type.dims[axis].symbol());
        if (symbol.is_input()) sizes.emplace(symbol.name, inputs_[i].dims()[axis]);
      }
    }
    return sizes;
  }

  // Indices, axes and sizes that the graph can take; where its readers say too little of them, small
  // integers, and then smaller ones.
  absl::Status Draw() {
    constexpr uint64_t kByReaders = 0;
    for (const uint64_t below : {kByReaders, kManyIntegers, kAnyIndex}) {
      absl::StatusOr<std::vector<Tensor>> drawn =
          below == kByReaders ? RandomInputs(source_, kSeed)  // whose sizes are bound
                              : RandomInputs(artifact_->inputs(), kSeed, Sizes(usual_), below);
      if (below == kByReaders && !drawn.ok()) continue;
      QUENCH_RETURN_IF_ERROR(drawn.status());
      inputs_ = *std::move(drawn);
      const absl::Status run = whole_ && !quantized_ ? Reference() : Observe();
      if (run.ok() || !context_.Check().ok()) return context_.Check();
      if (absl::IsDeadlineExceeded(run)) return InvalidArgument("{}", kTooSlow);
      if (below == kAnyIndex) return Annotate(run, "a random sample is refused");
    }
    return absl::OkStatus();
  }

  StepContext Limited() const {
    StepContext limited(context_.cancel_token(), nullptr);
    if (context_.deadline()) limited.set_deadline(*context_.deadline());
    if (request_.mode == CheckMode::kFull) return limited;
    const auto last = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                         std::chrono::duration<double>(5 + 10 * budget_));
    if (!context_.deadline() || last < *context_.deadline()) limited.set_deadline(last);
    return limited;
  }

  absl::Status Reference() {
    QUENCH_ASSIGN_OR_RETURN(expected_, ops::Evaluate(source_, inputs_, Limited()));
    return absl::OkStatus();
  }

  // All groups, or those that the budget suffices for.
  void Choose() {
    chosen_ = ChooseGroups(groups_.groups, budget_);
    if (!whole_) return;
    chosen_.resize(groups_.groups.size());
    std::iota(chosen_.begin(), chosen_.end(), size_t{0});
  }

  // Runs the library, and keeps what chosen groups read and make.
  absl::Status Observe() {
    std::set<ValueId> needed;
    for (const size_t i : chosen_) {
      needed.insert(groups_.groups[i].target);
      if (whole_) continue;
      for (const std::string& name :
           PartBetween(source_, groups_.given, {groups_.groups[i].target}).inputs)
        needed.insert(ids_.at(name));
    }
    std::multimap<int, std::pair<ValueId, const Counterpart*>> by_node;
    for (const auto& [id, counterpart] : groups_.counterparts) {
      if (needed.contains(id))
        by_node.emplace(counterpart.readable.ready, std::pair(id, &counterpart));
    }
    const auto read = [&](int node, const RunMemory& memory) {
      const auto [first, last] = by_node.equal_range(node);
      for (auto it = first; it != last; ++it) Keep(it->second.first, *it->second.second, memory);
      by_node.erase(first, last);
    };
    absl::StatusOr<std::vector<Tensor>> run = artifact_->Observe(inputs_, context_, read);
    QUENCH_RETURN_IF_ERROR(run.status());
    outputs_ = *std::move(run);
    for (size_t i = 0; i < outputs_.size();
         ++i)  // what the caller gets, rather than what a node made
      shown_[source_.value(source_.outputs[i]).name] = outputs_[i];
    for (size_t i = 0; i < inputs_.size(); ++i)
      shown_[source_.value(source_.inputs[i]).name] = inputs_[i];
    for (const ValueId id : groups_.given) {
      if (shown_.contains(source_.value(id).name)) shown_ids_.insert(id);
    }
    return absl::OkStatus();
  }

  void Keep(ValueId source, const Counterpart& counterpart, const RunMemory& memory) {
    const Value& value = source_.value(source);
    std::optional<Tensor> tensor =
        ReadBuffer(variant_->built.program, counterpart.readable.shown.buffer, memory);
    if (tensor) tensor = AsType(*tensor, value.type.dtype);
    if (tensor) shown_[value.name] = *std::move(tensor);
  }

  // From end to end; where rounding adds up to more than a value may have by itself, group by group.
  absl::Status CheckWhole() {
    absl::StatusOr<std::vector<Tensor>> run = artifact_->Run(inputs_, context_);
    QUENCH_RETURN_IF_ERROR(context_.Check());
    if (!run.ok()) {
      return Fail(fmt::format("the library refuses a sample that the model takes: {}",
                              MessageOf(run.status())));
    }
    outputs_ = *std::move(run);
    bool right = true;
    for (size_t i = 0; i < expected_.size(); ++i) {
      const double tolerance = judge_->ToleranceOf(source_.outputs[i]);
      const Comparison compared = Compare(outputs_[i], expected_[i], tolerance, 0);
      right = right && compared.wrong == 0;
      largest_error_ = std::max(largest_error_, compared.error);
    }
    if (right) return absl::OkStatus();
    largest_error_ = 0;
    QUENCH_RETURN_IF_ERROR(Observe());
    return CheckChosen();
  }

  absl::Status CheckChosen() {
    const StepContext limited = Limited();
    const double start = CpuSeconds();
    double expected = 0;
    int64_t done = 0;
    for (const size_t i : chosen_) {
      if (mismatch_) break;
      const CheckGroup& group = groups_.groups[i];
      const double spent = CpuSeconds() - start;
      const double slower = expected > 0.1 ? std::max(1.0, spent / expected) : 1;
      if (!whole_ && spent + slower * group.seconds > budget_) continue;
      context_.Report({"check", source_.value(group.target).name, done++,
                       static_cast<int64_t>(chosen_.size())});
      QUENCH_RETURN_IF_ERROR(CheckOne(group, limited));
      expected += group.seconds;
    }
    return absl::OkStatus();
  }

  // Values between others that the code does not show, and that must be fed: integers within a group, as the
  // graph that was compiled makes them of what the code shows.
  absl::Status Hidden(const GraphPart& part, ValueId target, std::map<ValueId, Tensor>& hidden,
                      const StepContext& limited) {
    std::vector<ValueId> names, sources;
    for (const NodeId node : part.nodes) {
      for (const ValueId id : source_.node(node).outputs) {
        if (id == quench::kNone || id == target || !quantizers_.contains(source_.value(id).name))
          continue;
        QUENCH_RETURN_IF_ERROR(Rewrite());
        const std::optional<ValueId> twin = Find(rewritten_ids_, source_.value(id).name);
        if (!twin || rewritten_->value(*twin).type.dtype != source_.value(id).type.dtype ||
            rewritten_->value(*twin).producer == quench::kNone)
          continue;
        names.push_back(*twin);
        sources.push_back(id);
      }
    }
    if (names.empty()) return absl::OkStatus();
    absl::StatusOr<std::vector<Tensor>> made =
        Evaluate(PartBetween(*rewritten_, rewritten_given_, names), nullptr, {}, limited);
    QUENCH_RETURN_IF_ERROR(made.status());
    for (size_t i = 0; i < sources.size(); ++i) hidden[sources[i]] = (*made)[i];
    return absl::OkStatus();
  }

  // The graph that the library's code computes, in single nodes.
  absl::Status Rewrite() {
    if (rewritten_) return absl::OkStatus();
    passes::PassOptions how = request_.passes;
    how.batch = 0;
    how.opt_level = std::min(how.opt_level, 2);
    how.keep_values = false;
    how.stop_after.clear();
    QUENCH_ASSIGN_OR_RETURN(Graph graph,
                            passes::RunPipeline(WithOwnSymbols(source_), how, Quiet()));
    QUENCH_ASSIGN_OR_RETURN(rewritten_, passes::RunCodegenPasses(std::move(graph), how, Quiet()));
    rewritten_ids_ = ValueIdsOf(*rewritten_);
    for (const auto& [name, tensor] : shown_) {
      const std::optional<ValueId> id = Find(rewritten_ids_, name);
      if (id && rewritten_->value(*id).type.dtype == tensor.dtype()) rewritten_given_.insert(*id);
    }
    return absl::OkStatus();
  }

  StepContext Quiet() const {
    StepContext quiet(context_.cancel_token(), nullptr);
    if (context_.deadline()) quiet.set_deadline(*context_.deadline());
    return quiet;
  }

  // On what the library shows; `inner` becomes the largest number on the way.
  absl::StatusOr<std::vector<Tensor>> Evaluate(GraphPart part, double* inner, const Tensors& more,
                                               const StepContext& limited) const {
    std::vector<Tensor> operands;
    for (size_t i = 0; i < part.inputs.size(); ++i) {
      const auto hidden = more.find(part.inputs[i]);
      const auto shown = shown_.find(part.inputs[i]);
      if (hidden == more.end() && shown == shown_.end()) return absl::NotFoundError(part.inputs[i]);
      operands.push_back(hidden != more.end() ? hidden->second : shown->second);
      const std::vector<int64_t>& dims = operands.back().dims();
      part.graph.value(part.graph.inputs[i]).type =
          Type::Tensor(operands.back().dtype(), {dims.begin(), dims.end()});
      if (inner != nullptr) TakeLargest(operands.back(), *inner);
    }
    ops::EvaluateOptions options;
    options.on_value = [inner](const std::string&, const Tensor& tensor) {
      if (inner != nullptr) TakeLargest(tensor, *inner);
    };
    return ops::Evaluate(part.graph, operands, limited, options);
  }

  // Values that targets[which] would have, had its operands been rounded otherwise to what the code
  // stores. `late`: the error of one that took too long, or was cancelled.
  std::vector<Tensor> RoundedOtherwise(const std::set<ValueId>& given,
                                       const std::vector<ValueId>& targets, size_t which,
                                       const Tensors& more, const StepContext& limited,
                                       absl::Status& late) const {
    constexpr uint64_t kDraws = 4;
    std::vector<Tensor> found;
    for (uint64_t seed = 0; seed < kDraws && late.ok(); ++seed) {
      GraphPart part = PartBetween(source_, given, targets);
      part.graph = passes::WithRounding(part.graph, Coarseness() / 8, seed);
      absl::StatusOr<std::vector<Tensor>> made = Evaluate(std::move(part), nullptr, more, limited);
      if (made.ok()) found.push_back(std::move((*made)[which]));
      if (absl::IsDeadlineExceeded(made.status()) || absl::IsCancelled(made.status()))
        late = made.status();
    }
    return found;
  }

  // Operands of quantizers, where they are neither constants nor given.
  const Tensor* ConstantOrShown(const std::string& name, const Tensors& more) const {
    const std::optional<ValueId> id = Find(ids_, name);
    if (id && source_.value(*id).constant != nullptr) return &source_.value(*id).constant->tensor;
    const auto found = more.find(name);
    if (found != more.end()) return &found->second;
    const auto shown = shown_.find(name);
    return shown == shown_.end() ? nullptr : &shown->second;
  }

  absl::Status CheckOne(const CheckGroup& group, const StepContext& limited) {
    const auto actual = shown_.find(source_.value(group.target).name);
    if (actual == shown_.end()) return absl::OkStatus();
    std::map<ValueId, Tensor> hidden;
    if (quantized_) {
      QUENCH_RETURN_IF_ERROR(
          Hidden(PartBetween(source_, shown_ids_, {group.target}), group.target, hidden, limited));
    }
    Tensors fed;
    std::set<ValueId> with_hidden;
    if (!hidden.empty()) with_hidden = shown_ids_;
    std::vector<ValueId> targets = {group.target};
    for (auto& [id, tensor] : hidden) {
      with_hidden.insert(id);
      targets.push_back(id);
      fed[source_.value(id).name] = tensor;
    }
    const std::set<ValueId>& given = hidden.empty() ? shown_ids_ : with_hidden;
    // Quantizers are judged by what they read.
    const size_t judged = targets.size();
    for (size_t i = 0; i < judged; ++i) {
      const auto found = quantizers_.find(source_.value(targets[i]).name);
      if (found == quantizers_.end()) continue;
      for (const std::string& name : {found->second.x, found->second.scale, found->second.zero}) {
        const std::optional<ValueId> id = Find(ids_, name);
        const bool made = id && source_.value(*id).producer != quench::kNone;
        if (made && !given.contains(*id) &&
            std::find(targets.begin(), targets.end(), *id) == targets.end())
          targets.push_back(*id);
      }
    }
    GraphPart part = PartBetween(source_, given, targets);
    const std::vector<NodeId> nodes = part.nodes;
    double inner = 0;
    absl::StatusOr<std::vector<Tensor>> made = Evaluate(std::move(part), &inner, fed, limited);
    if (absl::IsNotFound(made.status())) return absl::OkStatus();  // something was not shown
    QUENCH_RETURN_IF_ERROR(made.status());
    group_ran_.insert(group.target);
    Tensors computed;
    for (size_t i = judged; i < targets.size(); ++i)
      computed[source_.value(targets[i]).name] = (*made)[i];
    const auto operands = [&](const std::string& name) { return ConstantOrShown(name, computed); };
    for (size_t i = 0; i < judged && !mismatch_; ++i) {
      const Tensor& have = i == 0 ? actual->second : hidden.at(targets[i]);
      absl::Status late;
      const auto rounded = [&, i] {
        return RoundedOtherwise(given, targets, i, fed, limited, late);
      };
      const std::optional<Mismatch> found =
          judge_->Judge({targets[i], have, (*made)[i], inner, nodes, rounded}, operands);
      QUENCH_RETURN_IF_ERROR(late);
      mismatch_ = found;
      if (mismatch_) blamed_ = &group;
    }
    return absl::OkStatus();
  }

  absl::Status Fail(const std::string& text) {
    failed_ = true;
    if (request_.on_mismatch) {
      CheckEvidence evidence{text, request_.target, request_.source, {}};
      for (size_t i = 0; i < inputs_.size(); ++i)
        evidence.inputs[artifact_->inputs()[i].name] = inputs_[i];
      request_.on_mismatch(evidence);
    }
    return Internal("{}", text);
  }

  absl::Status Verdict() {
    if (!mismatch_) return absl::OkStatus();
    const Node& made = source_.node(source_.value(blamed_->target).producer);
    std::string who =
        fmt::format("node `{}` ({}", made.origin.empty() ? made.name : made.origin, made.op);
    if (blamed_->node >= 0) {
      const KernelReport& kernel = variant_->built.reports[static_cast<size_t>(blamed_->node)];
      who += fmt::format(", kernel {}", kernel.kernel);
    }
    std::string text = fmt::format(
        "the library computes value `{}` of {}) otherwise than the model: ", mismatch_->value, who);
    text += fmt::format("{} is {}, and the interpreter has {}",
                        PlaceText(mismatch_->dims, mismatch_->index), mismatch_->actual,
                        mismatch_->expected);
    if (mismatch_->error > 0)
      text += fmt::format(" (relative error {:.2g}, at most {:.2g})", mismatch_->error,
                          mismatch_->tolerance);
    return Fail(text);
  }

  void Fill() {
    report_.extent = whole_ ? CheckReport::Extent::kWhole : CheckReport::Extent::kGroups;
    report_.largest_error = std::max(largest_error_, judge_->largest_error());
    report_.undecided = judge_->undecided();
    report_.all_groups = static_cast<int>(groups_.groups.size());
    report_.all_kernels = static_cast<int>(groups_.kinds.size());
    std::set<std::string> kinds;
    const bool end_to_end = whole_ && group_ran_.empty();
    for (const CheckGroup& group : groups_.groups) {
      if (!end_to_end && !group_ran_.contains(group.target)) continue;
      ++report_.groups;
      if (!group.kind.empty()) kinds.insert(group.kind);
      const Node& node = source_.node(source_.value(group.target).producer);
      if (!end_to_end) report_.nodes.push_back(node.origin.empty() ? node.name : node.origin);
    }
    report_.kernels = static_cast<int>(kinds.size());
    if (report_.groups == 0) {
      report_ = {};
      report_.reason = "each group alone takes the interpreter longer than the check may";
    }
  }

  const CheckRequest& request_;
  const std::string device_;
  const StepContext& context_;
  bool whole_;
  bool usual_ = true;  // sizes of symbolic dims
  bool quantized_ = false;
  double budget_ = 0, seconds_ = 0;
  std::unique_ptr<Artifact> artifact_;
  const PlannedVariant* variant_ = nullptr;
  Graph source_;  // at the sample's sizes
  ValueIds ids_;  // of its values
  std::optional<Graph> rewritten_;
  ValueIds rewritten_ids_;
  std::set<ValueId> rewritten_given_;  // its values that the library shows
  CheckJudge::Quantizers quantizers_;  // by their integers
  std::set<ValueId> shown_ids_;        // those that have been read
  CheckGroups groups_;
  std::vector<size_t> chosen_;  // groups, in the order in which they are checked
  std::set<ValueId> group_ran_;
  std::vector<Tensor> inputs_, outputs_, expected_;
  Tensors shown_;
  double largest_error_ = 0;
  std::optional<CheckJudge> judge_;
  std::optional<Mismatch> mismatch_;
  const CheckGroup* blamed_ = nullptr;
  bool failed_ = false;
  CheckReport report_;
};

// The report about two variants of a library.
CheckReport Both(CheckReport first, const CheckReport& second) {
  if (second.extent == CheckReport::Extent::kNone) return first;
  if (first.extent == CheckReport::Extent::kNone) return second;
  if (second.extent != CheckReport::Extent::kWhole) first.extent = second.extent;
  first.variant += " and " + second.variant;
  first.groups += second.groups;
  first.all_groups += second.all_groups;
  first.kernels += second.kernels;
  first.all_kernels += second.all_kernels;
  first.nodes.insert(first.nodes.end(), second.nodes.begin(), second.nodes.end());
  first.largest_error = std::max(first.largest_error, second.largest_error);
  first.undecided += second.undecided;
  return first;
}

}  // namespace

absl::StatusOr<CheckReport> CheckLibrary(const CheckRequest& request, const StepContext& context) {
  const double start = CpuSeconds();
  Checker checker(request, "", context);
  QUENCH_ASSIGN_OR_RETURN(CheckReport report, checker.Run());
  const auto is_for_cpu = [](const PlannedVariant& each) { return each.target.device == nullptr; };
  if (checker.ran_on_gpu() && std::ranges::any_of(request.variants, is_for_cpu)) {
    QUENCH_ASSIGN_OR_RETURN(const CheckReport cpu, Checker(request, "cpu", context).Run());
    report = Both(std::move(report), cpu);
  }
  report.seconds = CpuSeconds() - start;
  return report;
}

std::string CheckText(const CheckReport& report) {
  if (report.extent == CheckReport::Extent::kNone) return fmt::format("not run: {}", report.reason);
  std::string text = "whole";
  if (report.extent == CheckReport::Extent::kGroups) {
    text = fmt::format("{} of {} groups ({} of {} kinds of kernels)", report.groups,
                       report.all_groups, report.kernels, report.all_kernels);
  }
  if (!report.variant.empty()) text += fmt::format(", variant {}", report.variant);
  text += fmt::format(", against the interpreter: largest error {:.1g}", report.largest_error);
  if (report.undecided > 0)
    text += fmt::format(", {} values that rounding decides", report.undecided);
  return text + fmt::format(" ({:.1f} s)", report.seconds);
}

}  // namespace quench::codegen
