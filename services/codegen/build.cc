#include "services/codegen/build.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/ops/op.h"
#include "services/codegen/build_internal.h"
#include "services/codegen/kernels/slow_integers.h"
#include "services/codegen/schedule/schedule.h"

namespace quench::codegen {
namespace {

std::string DigestOf(const Constant& constant) {
  return constant.digest.empty() ? Sha256Hex(constant.tensor.bytes()) : constant.digest;
}

std::string DimsText(const std::vector<int64_t>& dims) {
  std::string text;
  for (const int64_t dim : dims) text += fmt::format("{},", dim);
  return text;
}

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

// ---- memory ----

int Builder::NewStorage(Home home, const Shape& shape, int index) {
  Storage storage;
  storage.home = home;
  storage.shape = shape;
  storage.index = home == Home::kHeap ? program_.num_pointers++ : index;
  storage.begin = storage.end = program_.num_positions;
  program_.storages.push_back(std::move(storage));
  storage_block_.push_back(static_cast<int>(blocks_.size()));
  return static_cast<int>(program_.storages.size()) - 1;
}

int Builder::NewBuffer(const std::string& name, const Shape& shape, int storage) {
  program_.buffers.push_back({name, shape, storage});
  return static_cast<int>(program_.buffers.size()) - 1;
}

int Builder::NewUnallocated(const std::string& name, const Shape& shape) {
  const Home home = DependsOnRuntime(shape, symbols_) ? Home::kHeap : Home::kArena;
  return NewBuffer(name, shape, NewStorage(home, shape));
}

absl::StatusOr<int> Builder::NewResult(const std::string& name, const Shape& shape) {
  const int buffer = NewUnallocated(name, shape);
  if (StorageOf(buffer).home == Home::kHeap) QUENCH_RETURN_IF_ERROR(AddAllocate(buffer));
  return buffer;
}

void Builder::UseStorage(int id) {
  Storage& storage = program_.storages[static_cast<size_t>(id)];
  storage.end = std::max(storage.end, program_.num_positions);
  if (storage_block_[static_cast<size_t>(id)] < static_cast<int>(blocks_.size()))
    blocks_.back().outer_uses.insert(id);
}

void Builder::OpenBlock(Steps* steps) { blocks_.push_back({steps, {}}); }

void Builder::CloseBlock() {
  const std::set<int> uses = std::move(blocks_.back().outer_uses);
  blocks_.pop_back();
  for (const int storage : uses) UseStorage(storage);
}

// ---- steps ----

int32_t Builder::NewSlot() {
  return symbols_.AddRuntime(fmt::format("q.slot{}", symbols_.size()), "", std::nullopt);
}

absl::Status Builder::AddSlotCall(loops::Function function, const std::vector<int>& buffers) {
  QUENCH_ASSIGN_OR_RETURN(KernelPlan kernel,
                          PlanNest({std::move(function), {}, false}, symbols_, target_));
  for (const int buffer : buffers) Use(buffer);
  CallStep& call = Add(CallStep{});
  call.kernel = std::move(kernel);
  call.buffers = buffers;
  call.first_output = static_cast<int>(buffers.size());
  return absl::OkStatus();
}

absl::StatusOr<KernelPlan> Builder::PlanMove(loops::Function function,
                                             std::vector<Layout> layouts) {
  return PlanNest({std::move(function), std::move(layouts), options_.opt_level > 0}, symbols_,
                  target_);
}

void Builder::AddRefresh(const std::set<SymbolId>& changed) {
  if (!changed.empty()) Add(CallStep{}).refresh = changed;
}

// Kernels planned later may have interned symbols, so the functions are made when all are there.
absl::Status Builder::FillRefreshes(Steps& steps) {
  absl::Status status;
  ForEachStep(steps, [&](Step& step) {
    auto* call = step.As<CallStep>();
    if (call != nullptr && status.ok()) status = FillRefresh(*call);
  });
  return status;
}

absl::Status Builder::FillRefresh(CallStep& call) {
  if (call.refresh.empty()) return absl::OkStatus();
  const std::vector<SymbolId> affected = RuntimeDependence(symbols_).Affected(call.refresh);
  if (affected.empty()) return absl::OkStatus();
  SlotFunction function("refresh", symbols_);
  for (const SymbolId id : affected) function.SetExpression(id);
  QUENCH_ASSIGN_OR_RETURN(call.kernel, PlanNest({function.Finish(), {}, false}, symbols_, target_));
  return absl::OkStatus();
}

absl::Status Builder::AddAssignments(const std::vector<std::pair<SymbolId, Dim>>& assignments) {
  if (assignments.empty()) return absl::OkStatus();
  SlotFunction function("assign", symbols_);
  std::vector<loops::E> values;
  std::set<SymbolId> changed;
  for (const auto& [symbol, dim] : assignments)
    values.push_back(function.b().Let(function.Value(dim)));
  for (size_t i = 0; i < values.size(); ++i) {
    function.Set(assignments[i].first, values[i]);
    changed.insert(assignments[i].first);
  }
  QUENCH_RETURN_IF_ERROR(AddSlotCall(function.Finish(), {}));
  AddRefresh(changed);
  return absl::OkStatus();
}

absl::StatusOr<ByteCount> Builder::CountBytes(const Shape& shape, const std::string& name) {
  if (IsFixed(shape)) return ByteCount{.fixed = BytesAt(shape, {})};
  const ByteCount bytes{.slot = NewSlot()};
  SlotFunction function("bytes", symbols_);
  function.Set(bytes.slot, function.Bytes(shape, name));
  QUENCH_RETURN_IF_ERROR(AddSlotCall(function.Finish(), {}));
  return bytes;
}

absl::Status Builder::AddAllocate(int buffer) {
  const Buffer& made = program_.buffers[static_cast<size_t>(buffer)];
  QUENCH_ASSIGN_OR_RETURN(const ByteCount bytes, CountBytes(made.shape, made.name));
  UseStorage(made.storage);
  Add(AllocateStep{made.storage, bytes});
  return absl::OkStatus();
}

absl::Status Builder::AddCopy(int from, int to) {
  const Buffer source = program_.buffers[static_cast<size_t>(from)];
  QUENCH_ASSIGN_OR_RETURN(const ByteCount bytes, CountBytes(source.shape, source.name));
  Use(from);
  Use(to);
  Add(CopyStep{from, to, bytes});
  return absl::OkStatus();
}

// ---- values ----

int Builder::ConstantBuffer(const Value& value, const Layout& layout) {
  const Constant& constant = *value.constant;
  WeightEntry entry;
  entry.key = "raw " + DigestOf(constant);
  if (!layout.row_major()) {
    entry.key += fmt::format(" {} {} {}", layout.ToString(), DataTypeName(constant.tensor.dtype()),
                             DimsText(constant.tensor.dims()));
    entry.layout = layout;
  }
  entry.sources = {&constant};
  const std::string key = fmt::format("{} {} {}", entry.key, static_cast<int>(value.type.dtype),
                                      DimsText(constant.tensor.dims()));
  if (const auto found = constants_.find(key); found != constants_.end()) return found->second;
  const Shape shape{value.type.dtype, value.type.dims, layout};
  const int weight = weights_.Add(std::move(entry));
  return constants_[key] = NewBuffer(value.name, shape, NewStorage(Home::kWeights, shape, weight));
}

absl::StatusOr<int> Builder::PackEntry(const Graph& graph, const PackSpec& spec) {
  WeightEntry entry;
  entry.packed = true;
  entry.spec = spec;
  entry.key = "pack " + spec.transform;
  for (const auto& [name, value] : spec.params) entry.key += fmt::format(" {}={}", name, value);
  for (const ValueId id : spec.sources) {
    const Value& value = graph.value(id);
    if (value.constant == nullptr)
      return Internal("value `{}` is packed but is not a constant", value.name);
    entry.sources.push_back(value.constant.get());
    entry.key += fmt::format(" {} {} {}", DigestOf(*value.constant),
                             DataTypeName(value.constant->tensor.dtype()),
                             DimsText(value.constant->tensor.dims()));
  }
  return weights_.Add(std::move(entry));
}

// Copies one layout into another: the border of two kernels that want different ones.
absl::StatusOr<int> Builder::Transform(int from, const Layout& layout) {
  const Buffer source = program_.buffers[static_cast<size_t>(from)];
  loops::Builder b("transform");
  std::vector<loops::E> dims;
  for (const Dim dim : source.shape.dims)
    dims.push_back(dim.is_static() ? b.I(dim.value()) : b.Slot(dim.symbol()));
  const loops::B in = b.Input("x", source.shape.dtype, dims);
  const loops::B out = b.Output("y", source.shape.dtype, dims);
  b.ParallelForAll(dims,
                   [&](std::span<const loops::E> index) { b.Store(out, index, in.At(index)); });
  Shape shape = source.shape;
  shape.layout = layout;
  QUENCH_ASSIGN_OR_RETURN(const int to, NewResult(source.name, shape));
  QUENCH_ASSIGN_OR_RETURN(KernelPlan kernel, PlanMove(b.Finish(), {source.shape.layout, layout}));
  Use(from);
  Use(to);
  CallStep& call = Add(CallStep{});
  call.kernel = std::move(kernel);
  call.buffers = {from, to};
  call.first_output = 1;
  SetGrain(call, 2e-3 * static_cast<double>(BytesAt(shape, typical_.Slots())) / target_.gbytes);
  return to;
}

absl::StatusOr<int> Builder::BufferOf(Frame& frame, ValueId id, const Layout& layout) {
  const Value& value = frame.graph.value(id);
  std::vector<int>& buffers = frame.buffers[static_cast<size_t>(id)];
  if (value.constant != nullptr && buffers.empty()) return ConstantBuffer(value, layout);
  if (buffers.empty()) return Internal("value `{}` is used before it is computed", value.name);
  for (const int buffer : buffers) {
    const Layout& found = program_.buffers[static_cast<size_t>(buffer)].shape.layout;
    if (found == layout || (found.row_major() && layout.row_major())) return buffer;
  }
  QUENCH_ASSIGN_OR_RETURN(const int made, Transform(buffers[0], layout));
  buffers.push_back(made);
  return made;
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
  for (const int buffer : buffers) Use(buffer);
  CallStep& call = Add(CallStep{});
  call.kernel = PlanPreparation(candidate);
  call.kernel.fuses = fuses;
  call.first_output = static_cast<int>(buffers.size()) - 1;
  call.buffers = std::move(buffers);
  SetGrain(call, preparation.cost);
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
  const KernelRequest request{
      frame.graph, node, target_, options_.opt_level, options_.winograd, options_.half_sums};
  QUENCH_ASSIGN_OR_RETURN(KernelPlan kernel, PlanKernel(request, candidate));
  kernel.fuses = MayFuse(request);
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
    QUENCH_ASSIGN_OR_RETURN(const int entry, PackEntry(frame.graph, spec));
    packs.push_back(entry);
  }
  int scratch = -1;
  if (symbols_.DependsOnRuntime(kernel.scratch_bytes)) {
    QUENCH_ASSIGN_OR_RETURN(const int buffer,
                            NewResult("scratch", {DataType::kU8, {kernel.scratch_bytes}, {}}));
    scratch = program_.buffers[static_cast<size_t>(buffer)].storage;
    UseStorage(scratch);
  }
  if (const ops::OpDef* op = ops::FindOp(node.op);
      op != nullptr && op->updates && first_output < static_cast<int>(buffers.size())) {
    QUENCH_RETURN_IF_ERROR(AddCopy(buffers[0], buffers[static_cast<size_t>(first_output)]));
  }
  for (const int buffer : buffers) Use(buffer);
  CallStep& call = Add(CallStep{});
  call.kernel = std::move(kernel);
  call.buffers = std::move(buffers);
  call.packs = std::move(packs);
  call.in_place = in_place;
  call.first_output = first_output;
  call.scratch_storage = scratch;
  call.one_range = candidate.one_range;
  call.rows = std::move(rows);
  SetGrain(call, cost);
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
  const int storage = program_.buffers[static_cast<size_t>(from)].storage;
  BindValue(frame, node.outputs[0], NewBuffer(to.name, {to.type.dtype, to.type.dims, {}}, storage));
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
                      control ? "" : CandidateName(node, choice.candidate)});
  if (reports_.back().slow.empty()) reports_.back().slow = WhyIntegersSaveLittle(frame.graph, node);
  Add(BeginStep{});
  const auto build = [&]() -> absl::Status {
    if (control) return BuildControl(frame, node);
    QUENCH_ASSIGN_OR_RETURN(const bool joined, BuildJoined(frame, node, choice.candidate));
    if (!joined) return BuildKernel(frame, node, choice);
    KernelReport& report = reports_.back();
    report.kernel = program_.nodes.back().kernel = "joined";
    report.reason = "operands are computed in place, or copied";
    report.runner_up.clear();
    report.slow.clear();
    report.candidate.clear();
    report.cost = 0;
    return absl::OkStatus();
  };
  const absl::Status status = build();
  return Annotate(status, fmt::format("node `{}`", OriginOf(node)));
}

absl::Status Builder::BuildGraph(Frame& frame) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Choice> choices,
                          ChooseKernels(frame.graph, target_, options_, context_));
  for (size_t n = 0; n < frame.graph.nodes.size(); ++n) {
    const Node& node = frame.graph.nodes[n];
    if (nested_ == 0 && blocks_.size() == 1) {
      context_.Report({"kernels", node.name, static_cast<int64_t>(n),
                       static_cast<int64_t>(frame.graph.nodes.size())});
    }
    QUENCH_RETURN_IF_ERROR(BuildNode(frame, node, choices[n]));
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

// The result is computed straight into the caller's memory where nothing else claims its storage;
// else it is copied.
absl::Status Builder::BindOutput(Frame& frame, int index) {
  const ValueId id = graph_.outputs[static_cast<size_t>(index)];
  QUENCH_ASSIGN_OR_RETURN(const int buffer, RowMajorOf(frame, id));
  Storage& storage = StorageOf(buffer);
  if (storage.home == Home::kArena && !storage.shared) {
    storage.home = Home::kOutput;
    storage.index = index;
    return absl::OkStatus();
  }
  if (storage.home == Home::kHeap && !storage.shared && storage.output < 0) {
    storage.output = index;
    return absl::OkStatus();
  }
  const Value& value = graph_.value(id);
  const Shape shape{value.type.dtype, value.type.dims, {}};
  if (!IsHeap(shape))
    return AddCopy(buffer, NewBuffer(value.name, shape, NewStorage(Home::kOutput, shape, index)));
  const int copy = NewUnallocated(value.name, shape);
  StorageOf(copy).output = index;
  QUENCH_RETURN_IF_ERROR(AddAllocate(copy));
  return AddCopy(buffer, copy);
}

absl::StatusOr<BuiltProgram> BuildProgram(const Graph& graph, const Target& target,
                                          const CompileOptions& options, WeightTable& weights,
                                          const StepContext& context) {
  return Builder(graph, target, options, weights, context).Build();
}

}  // namespace quench::codegen
