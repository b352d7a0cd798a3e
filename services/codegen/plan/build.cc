#include "services/codegen/plan/build.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "services/codegen/kernels/slow_integers.h"
#include "services/codegen/plan/builder.h"
#include "services/codegen/schedule/plan_nest.h"

namespace quench::codegen {
namespace {

const std::string& OriginOf(const Node& node) {
  return node.origin.empty() ? node.name : node.origin;
}

// Slots that a function sets.
std::set<SymbolId> SlotsSet(const loops::Function& function) {
  std::set<SymbolId> slots;
  for (const loops::Stmt& stmt : function.stmts) {
    if (stmt.kind == loops::StmtKind::kSetSlot) slots.insert(stmt.id);
  }
  return slots;
}

}  // namespace

int WeightTable::Add(WeightEntry entry) {
  const auto [found, fresh] = by_key_.emplace(entry.key, static_cast<int>(entries_.size()));
  if (fresh) entries_.push_back(std::move(entry));
  return found->second;
}

// ---- nodes ----

void Builder::SetGrain(CallStep& call, double cost) {
  call.cost = cost;
  constexpr double kWorthSplitting = 20;  // microseconds; waking a thread costs a few
  const double tasks = static_cast<double>(std::max<int64_t>(1, typical_.Of(call.kernel.tasks)));
  const bool single =
      call.kernel.tasks.is(1) || symbols_.DependsOnRuntime(call.kernel.scratch_bytes);
  call.parallel = !single && (cost >= kWorthSplitting || !call.kernel.tasks.is_static());
  call.grain = static_cast<int64_t>(
      std::clamp(0.5 * kWorthSplitting * tasks / std::max(cost, 1e-3), 1.0, 1e15));
}

absl::Status Builder::BuildSizes(Frame& frame, const Node& node) {
  QUENCH_ASSIGN_OR_RETURN(const std::optional<loops::Function> sizes,
                          ops::LowerSizes(ops::ContextOf(frame.graph, node)));
  if (!sizes) return absl::OkStatus();
  std::vector<int> buffers;
  for (const ValueId id : node.inputs) {
    if (id == quench::kNone) continue;
    QUENCH_ASSIGN_OR_RETURN(const int buffer, RowMajorOf(frame, id));
    buffers.push_back(buffer);
  }
  QUENCH_RETURN_IF_ERROR(AddSlotCall(*sizes, buffers));
  AddRefresh(SlotsSet(*sizes));
  return absl::OkStatus();
}

absl::StatusOr<int> Builder::BuildPreparation(const Candidate& candidate, const std::string& name,
                                              bool fuses, std::vector<int> buffers) {
  const Preparation& preparation = *candidate.preparation;
  QUENCH_ASSIGN_OR_RETURN(
      const int workspace,
      NewResult(name + " prepared", {DataType::kU8, {preparation.workspace_bytes}, {}}));
  buffers.push_back(workspace);
  KernelPlan kernel = PlanPreparation(candidate);
  kernel.fuses = fuses;
  const size_t first_output = buffers.size() - 1;
  QUENCH_ASSIGN_OR_RETURN(CallStep * call,
                          AddCall(std::move(kernel), std::move(buffers), first_output));
  SetGrain(*call, preparation.cost);
  // Where the kernel is the GPU's, its operand is prepared there.
  if (target_.device && !candidate.on_host && candidate.code != nullptr)
    call->device_kernel = std::exchange(call->kernel, {});
  return workspace;
}

absl::Status Builder::BuildKernel(Frame& frame, const Node& node, const Choice& choice) {
  const Candidate& candidate = choice.candidate;
  std::vector<int> buffers;
  int in_place = -1;
  std::optional<RowOrder> rows = candidate.rows;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == quench::kNone || candidate.packed[i]) continue;
    if (static_cast<int>(i) == candidate.in_place) in_place = static_cast<int>(buffers.size());
    if (rows && static_cast<int>(i) == candidate.rows->input)
      rows->input = static_cast<int>(buffers.size());
    QUENCH_ASSIGN_OR_RETURN(const int buffer, BufferOf(frame, node.inputs[i], candidate.inputs[i]));
    buffers.push_back(buffer);
  }
  QUENCH_RETURN_IF_ERROR(BuildSizes(frame, node));
  const KernelRequest request{frame.graph, node, candidate.on_host ? target_ : KernelTarget(),
                              KernelOptionsOf(options_), symbols_};
  QUENCH_ASSIGN_OR_RETURN(KernelPlan kernel, PlanKernel(request, candidate));
  kernel.fuses = MayFuse(request);
  std::optional<KernelPlan> device_kernel;
  if (target_.device && !candidate.on_host) {
    device_kernel = std::exchange(kernel, {});
    if (candidate.code == nullptr) {
      QUENCH_ASSIGN_OR_RETURN(const Nest nest, candidate.kernel->nest(request, candidate));
      QUENCH_ASSIGN_OR_RETURN(kernel, PlanNest(nest, symbols_, target_));
      kernel.fuses = device_kernel->fuses;
    }
  }
  double cost = candidate.cost;
  if (candidate.preparation) {
    const std::string& name = frame.graph.value(node.outputs[0]).name;
    QUENCH_ASSIGN_OR_RETURN(const int workspace,
                            BuildPreparation(candidate, name, kernel.fuses, buffers));
    buffers.push_back(workspace);
    cost -= candidate.preparation->cost;
  }
  const int first_output = static_cast<int>(buffers.size());
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == quench::kNone) continue;
    const Value& value = frame.graph.value(node.outputs[i]);
    QUENCH_ASSIGN_OR_RETURN(
        const int buffer,
        NewResult(value.name, {value.type.dtype, value.type.dims, candidate.outputs[i]}));
    buffers.push_back(buffer);
    BindValue(frame, node.outputs[i], buffer);
  }
  std::vector<int> packs;
  for (const PackSpec& spec : candidate.packs) {
    QUENCH_ASSIGN_OR_RETURN(const int entry, PackEntry(frame.graph, node, spec));
    packs.push_back(entry);
  }
  const ops::OpDef* op = ops::FindOp(node.op);
  const bool updates =
      op != nullptr && op->updates && first_output < static_cast<int>(buffers.size());
  if (updates) {
    QUENCH_RETURN_IF_ERROR(AddCopy(buffers[0], buffers[static_cast<size_t>(first_output)]));
  }
  QUENCH_ASSIGN_OR_RETURN(CallStep * call, AddCall(std::move(kernel), std::move(buffers),
                                                   static_cast<size_t>(first_output)));
  call->device_kernel = std::move(device_kernel);
  call->packs = std::move(packs);
  call->in_place = in_place;
  call->updates = updates;
  call->one_range = candidate.one_range;
  call->rows = std::move(rows);
  SetGrain(*call, cost);
  return absl::OkStatus();
}

// Output 0 is input 0 under other dims. Where the number of elements is not provably the same, the
// run checks it.
absl::Status Builder::BuildAlias(Frame& frame, const Node& node) {
  QUENCH_RETURN_IF_ERROR(BuildSizes(frame, node));
  QUENCH_ASSIGN_OR_RETURN(const int from, RowMajorOf(frame, node.inputs[0]));
  const Value& to = frame.graph.value(node.outputs[0]);
  const std::vector<Dim> dims = program_.buffers[static_cast<size_t>(from)].shape.dims;
  const Dim before = symbols_.Product(dims), after = symbols_.Product(to.type.dims);
  if (before != after) {
    SlotFunction check("check", symbols_);
    // The products themselves may be symbols that nothing has computed yet.
    loops::E have = check.b().I(1), want = check.b().I(1);
    for (const Dim dim : dims) have = have * check.Value(dim);
    for (const Dim dim : to.type.dims) want = want * check.Value(dim);
    check.b().Check(
        have == want,
        fmt::format("node `{}`: its dims have another number of elements than its input",
                    OriginOf(node)));
    QUENCH_RETURN_IF_ERROR(AddSlotCall(check.Finish(), {}));
  }
  BindValue(frame, node.outputs[0], NewView(to.name, {to.type.dtype, to.type.dims, {}}, from));
  return absl::OkStatus();
}

absl::Status Builder::BuildNode(Frame& frame, const Node& node, const Choice& choice) {
  QUENCH_RETURN_IF_ERROR(context_.Check());
  if (choice.kind == Choice::Kind::kAlias) return BuildAlias(frame, node);
  const bool control = choice.kind == Choice::Kind::kControl;
  const std::string kernel = control ? "control" : choice.candidate.kernel->name;
  node_ = static_cast<int>(program_.nodes.size());
  program_.nodes.push_back({OriginOf(node), node.op, kernel});
  reports_.push_back({OriginOf(node), node.op, kernel, choice.runner_up, choice.candidate.reason,
                      choice.candidate.cost, choice.candidate.slow,
                      MultiplicationsOf(frame.graph, node), 0, TouchedBytes(frame.graph, node),
                      choice.key});
  reports_.back().performed = reports_.back().multiplications * choice.candidate.performed;
  if (!node.inputs.empty() && node.inputs[0] != quench::kNone)
    reports_.back().dtype = DataTypeName(frame.graph.value(node.inputs[0]).type.dtype);
  if (reports_.back().slow.empty()) reports_.back().slow = WhyIntegersSaveLittle(frame.graph, node);
  Add(BeginStep{});
  const auto build = [&]() -> absl::Status {
    if (control) return BuildControl(frame, node);
    QUENCH_ASSIGN_OR_RETURN(const bool joined, BuildJoined(frame, node, choice.candidate));
    QUENCH_ASSIGN_OR_RETURN(const bool parts, BuildParts(frame, node, choice.candidate));
    if (!joined && !parts) return BuildKernel(frame, node, choice);
    KernelReport& report = reports_.back();
    report.kernel = program_.nodes.back().kernel = joined ? "joined" : "view";
    report.reason =
        joined ? "operands are computed in place, or copied" : "results are parts of the operand";
    report.runner_up.clear();
    report.slow.clear();
    report.candidate.clear();
    report.cost = 0;
    return absl::OkStatus();
  };
  const absl::Status status = build();
  return Annotate(status, fmt::format("node `{}`", OriginOf(node)));
}

void Builder::ShowResults(const Frame& frame, const Node& node, int entry) {
  for (const ValueId id : node.outputs) {
    if (id == quench::kNone) continue;
    const std::vector<int>& buffers = frame.buffers[static_cast<size_t>(id)];
    if (buffers.empty()) continue;
    program_.shown.push_back(
        {frame.graph.value(id).name, buffers[0], entry, program_.num_positions});
  }
}

absl::Status Builder::BuildGraph(Frame& frame) {
  QUENCH_ASSIGN_OR_RETURN(
      const std::vector<Choice> choices,
      ChooseKernels(frame.graph, KernelTarget(), options_, proposer_, context_));
  for (size_t n = 0; n < frame.graph.nodes.size(); ++n) {
    const Node& node = frame.graph.nodes[n];
    if (nested_ == 0 && blocks_.size() == 1) {
      context_.Report({"kernels", node.name, static_cast<int64_t>(n),
                       static_cast<int64_t>(frame.graph.nodes.size())});
    }
    QUENCH_RETURN_IF_ERROR(BuildNode(frame, node, choices[n]));
    if (&frame.graph == &graph_)
      ShowResults(frame, node, choices[n].kind == Choice::Kind::kAlias ? -1 : node_);
    if (options_.taps == Taps::kNone || &frame.graph != &graph_) continue;
    for (const ValueId id : node.outputs) {
      if (id == quench::kNone) continue;
      QUENCH_ASSIGN_OR_RETURN(const int buffer, RowMajorOf(frame, id));
      Use(buffer);
      Add(TapStep{buffer, static_cast<int>(program_.taps.size())});
      program_.taps.push_back(buffer);
      program_.tap_names.push_back(frame.graph.value(id).name);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<BuiltProgram> Builder::Build() {
  OpenBlock(&program_.steps);
  Frame frame(graph_);
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    const Value& value = graph_.value(graph_.inputs[i]);
    const Shape shape{value.type.dtype, value.type.dims, {}};
    BindValue(frame, graph_.inputs[i],
              NewBuffer(value.name, shape, NewStorage(Home::kInput, shape, static_cast<int>(i))));
  }
  QUENCH_RETURN_IF_ERROR(BuildGraph(frame));
  node_ = -1;
  for (size_t i = 0; i < graph_.outputs.size(); ++i)
    QUENCH_RETURN_IF_ERROR(BindOutput(frame, static_cast<int>(i)));
  PlaceParts();
  QUENCH_RETURN_IF_ERROR(FillRefreshes(program_.steps));
  return BuiltProgram{std::move(program_), std::move(reports_)};
}

// The result is computed straight into the caller's memory where nothing else claims its storage, and
// where both are provably of one size: of a view, a check that comes after what is written decides. Else
// it is copied. So it is where one is known before a run and the other, a view with dims that
// a run tells, is not: the memory of one is there when the other's size is asked for.
absl::Status Builder::BindOutput(Frame& frame, int index) {
  const ValueId id = graph_.outputs[static_cast<size_t>(index)];
  QUENCH_ASSIGN_OR_RETURN(const int buffer, RowMajorOf(frame, id));
  Storage& storage = StorageOf(buffer);
  const Value& value = graph_.value(id);
  const Shape shape{value.type.dtype, value.type.dims, {}};
  const bool fits = symbols_.Product(storage.shape.dims) == symbols_.Product(shape.dims);
  if (storage.home == Home::kArena && !storage.shared && fits && !IsHeap(shape)) {
    storage.home = Home::kOutput;
    storage.index = index;
    return absl::OkStatus();
  }
  if (storage.home == Home::kHeap && !storage.shared && storage.output < 0 && IsHeap(shape)) {
    storage.output = index;
    return absl::OkStatus();
  }
  if (!IsHeap(shape))
    return AddCopy(buffer, NewBuffer(value.name, shape, NewStorage(Home::kOutput, shape, index)));
  const int copy = NewUnallocated(value.name, shape);
  StorageOf(copy).output = index;
  QUENCH_RETURN_IF_ERROR(AddAllocate(copy));
  return AddCopy(buffer, copy);
}

absl::StatusOr<BuiltProgram> BuildProgram(const Graph& graph, const Target& target,
                                          const CompileOptions& options, Proposer& proposer,
                                          WeightTable& weights, const StepContext& context) {
  return Builder(graph, target, options, proposer, weights, context).Build();
}

}  // namespace quench::codegen
