// Values, memory and steps that BuildProgram makes of nodes.
#include <fmt/format.h>

#include <algorithm>

#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "services/codegen/plan/builder.h"
#include "services/codegen/schedule/plan_nest.h"

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

}  // namespace

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

int Builder::NewView(const std::string& name, const Shape& shape, int of, int64_t offset) {
  const Buffer whole = program_.buffers[static_cast<size_t>(of)];
  program_.buffers.push_back({name, shape, whole.storage, whole.offset + offset});
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
  return AddCall(std::move(kernel), buffers, buffers.size()).status();
}

absl::StatusOr<CallStep*> Builder::AddCall(KernelPlan kernel, std::vector<int> buffers,
                                           size_t first_output) {
  int scratch = -1;
  if (symbols_.DependsOnRuntime(kernel.scratch_bytes)) {
    QUENCH_ASSIGN_OR_RETURN(const int buffer,
                            NewResult("scratch", {DataType::kU8, {kernel.scratch_bytes}, {}}));
    scratch = program_.buffers[static_cast<size_t>(buffer)].storage;
    UseStorage(scratch);
  }
  for (const int buffer : buffers) Use(buffer);
  CallStep& call = Add(CallStep{});
  call.kernel = std::move(kernel);
  call.buffers = std::move(buffers);
  call.first_output = static_cast<int>(first_output);
  call.scratch_storage = scratch;
  return &call;
}

absl::StatusOr<CallStep*> Builder::AddMove(loops::Function function, std::vector<Layout> layouts,
                                           std::vector<int> buffers) {
  const Nest nest{std::move(function), std::move(layouts), options_.opt_level > 0};
  QUENCH_ASSIGN_OR_RETURN(KernelPlan kernel, PlanNest(nest, symbols_, target_));
  QUENCH_ASSIGN_OR_RETURN(CallStep * call, AddCall(std::move(kernel), std::move(buffers), 1));
  if (target_.device) {
    QUENCH_ASSIGN_OR_RETURN(call->device_kernel, PlanNest(nest, symbols_, *target_.device));
  }
  return call;
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
  const Buffer& target = program_.buffers[static_cast<size_t>(to)];
  if (source.shape.layout != target.shape.layout)
    return Internal("`{}` is copied to `{}`, which has another layout", source.name, target.name);
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

absl::StatusOr<int> Builder::PackEntry(const Graph& graph, const Node& node, const PackSpec& spec) {
  WeightEntry entry;
  entry.packed = true;
  entry.spec = spec;
  entry.key = "pack " + spec.ToString();
  for (const int input : spec.inputs) {
    const Value& value = graph.value(node.inputs[static_cast<size_t>(input)]);
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
  QUENCH_ASSIGN_OR_RETURN(CallStep * call,
                          AddMove(b.Finish(), {source.shape.layout, layout}, {from, to}));
  SetGrain(*call, 2e-3 * static_cast<double>(BytesAt(shape, typical_.Slots())) / target_.gbytes);
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

}  // namespace quench::codegen
