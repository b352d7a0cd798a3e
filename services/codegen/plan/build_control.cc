// If, Loop and Scan: bodies become sequences of steps over the same arena. See common/ops/bodies.h
// for how the inputs of a node and of its bodies correspond.
#include <algorithm>

#include "common/base/status.h"
#include "common/ops/bodies.h"
#include "services/codegen/plan/builder.h"

namespace quench::codegen {
namespace {

// Dims of `type` that are runtime symbols where `actual` has something else: they take its values.
void AddDims(const SymbolTable& symbols, const std::vector<Dim>& dims,
             const std::vector<Dim>& actual, std::vector<std::pair<SymbolId, Dim>>& assignments) {
  for (size_t axis = 0; axis < dims.size() && axis < actual.size(); ++axis) {
    if (dims[axis] == actual[axis] || dims[axis].is_static() ||
        !symbols.at(dims[axis].symbol()).is_runtime())
      continue;
    const auto same = [&](const auto& other) { return other.first == dims[axis].symbol(); };
    if (std::none_of(assignments.begin(), assignments.end(), same)) {
      assignments.emplace_back(dims[axis].symbol(), actual[axis]);
    }
  }
}

int64_t ElementOf(const std::vector<int64_t>& list, size_t index) {
  return index < list.size() ? list[index] : 0;
}

}  // namespace

absl::Status Builder::BuildControl(Frame& frame, const Node& node) {
  ++nested_;
  absl::Status status;
  if (node.op == "If") {
    status = BuildIf(frame, node);
  } else if (node.op == "Loop") {
    status = BuildLoop(frame, node);
  } else if (node.op == "Scan") {
    status = BuildScan(frame, node);
  } else {
    status = Unsupported("operator `{}` is not compiled", node.op);
  }
  --nested_;
  return status;
}

absl::Status Builder::BindCaptures(Frame& frame, const Node& node, size_t first_operand,
                                   Frame& body, size_t first_input) {
  for (size_t i = first_operand; i < node.inputs.size(); ++i) {
    const size_t input = first_input + (i - first_operand);
    if (node.inputs[i] == quench::kNone || input >= body.graph.inputs.size()) continue;
    QUENCH_ASSIGN_OR_RETURN(const int buffer, RowMajorOf(frame, node.inputs[i]));
    BindValue(body, body.graph.inputs[input], buffer);
  }
  return absl::OkStatus();
}

int Builder::NewScalar(const std::string& name, DataType dtype) {
  const Shape shape{dtype, {}, {}};
  const int buffer = NewBuffer(name, shape, NewStorage(Home::kArena, shape));
  StorageOf(buffer).shared = true;
  return buffer;
}

// ---- If ----

absl::Status Builder::BuildIf(Frame& frame, const Node& node) {
  QUENCH_ASSIGN_OR_RETURN(const int condition, RowMajorOf(frame, node.inputs[0]));
  std::vector<int> outputs;
  for (const ValueId id : node.outputs) {
    if (id == quench::kNone) {
      outputs.push_back(-1);
      continue;
    }
    const Value& value = frame.graph.value(id);
    outputs.push_back(NewUnallocated(value.name, {value.type.dtype, value.type.dims, {}}));
  }
  IfStep branches{condition, {}, {}};
  Use(condition);
  QUENCH_RETURN_IF_ERROR(BuildBranch(frame, node, "then_branch", outputs, branches.then_steps));
  QUENCH_RETURN_IF_ERROR(BuildBranch(frame, node, "else_branch", outputs, branches.else_steps));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] < 0) continue;
    Use(outputs[i]);
    BindValue(frame, node.outputs[i], outputs[i]);
  }
  Add(std::move(branches));
  return absl::OkStatus();
}

absl::Status Builder::BuildBranch(Frame& frame, const Node& node, const std::string& attribute,
                                  const std::vector<int>& outputs, Steps& steps) {
  const GraphPtr body = node.Body(attribute);
  Frame inner(*body);
  QUENCH_RETURN_IF_ERROR(BindCaptures(frame, node, 1, inner, 0));
  const int outer_node = node_;
  OpenBlock(&steps);
  QUENCH_RETURN_IF_ERROR(BuildGraph(inner));
  node_ = outer_node;
  std::vector<std::pair<SymbolId, Dim>> assignments;
  std::vector<int> results(outputs.size(), -1);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] < 0) continue;
    QUENCH_ASSIGN_OR_RETURN(results[i], RowMajorOf(inner, body->outputs[i]));
    AddDims(symbols_, program_.buffers[static_cast<size_t>(outputs[i])].shape.dims,
            program_.buffers[static_cast<size_t>(results[i])].shape.dims, assignments);
  }
  QUENCH_RETURN_IF_ERROR(AddAssignments(assignments));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] < 0) continue;
    if (StorageOf(outputs[i]).home == Home::kHeap) QUENCH_RETURN_IF_ERROR(AddAllocate(outputs[i]));
    QUENCH_RETURN_IF_ERROR(AddCopy(results[i], outputs[i]));
  }
  CloseBlock();
  return absl::OkStatus();
}

// ---- carried values ----

absl::Status Builder::BeginCarried(Frame& frame, const Node& node, const Graph& body,
                                   size_t first_operand, LoopParts& parts) {
  std::vector<std::pair<SymbolId, Dim>> assignments;
  std::vector<int> initial;
  for (size_t i = 0; i < parts.carried; ++i) {
    const Value& value = body.value(body.inputs[parts.first_input + i]);
    QUENCH_ASSIGN_OR_RETURN(const int from, RowMajorOf(frame, node.inputs[first_operand + i]));
    initial.push_back(from);
    AddDims(symbols_, value.type.dims, program_.buffers[static_cast<size_t>(from)].shape.dims,
            assignments);
  }
  QUENCH_RETURN_IF_ERROR(AddAssignments(assignments));
  for (size_t i = 0; i < parts.carried; ++i) {
    const Value& value = body.value(body.inputs[parts.first_input + i]);
    QUENCH_ASSIGN_OR_RETURN(const int buffer,
                            NewResult(value.name, {value.type.dtype, value.type.dims, {}}));
    StorageOf(buffer).shared = true;
    QUENCH_RETURN_IF_ERROR(AddCopy(initial[i], buffer));
    parts.values.push_back({buffer, -1});
  }
  return absl::OkStatus();
}

// The iteration's results become what the next one reads. A result that lies in memory of another
// carried value (two values trade places) is set aside before anything is overwritten.
absl::Status Builder::EndCarried(Frame& body, LoopParts& parts) {
  std::set<int> carried;
  for (const Carried& value : parts.values)
    carried.insert(program_.buffers[static_cast<size_t>(value.buffer)].storage);
  std::vector<std::pair<SymbolId, Dim>> assignments;
  std::vector<bool> stays(parts.values.size(), false);
  for (size_t i = 0; i < parts.values.size(); ++i) {
    Carried& value = parts.values[i];
    QUENCH_ASSIGN_OR_RETURN(value.result,
                            RowMajorOf(body, body.graph.outputs[parts.first_output + i]));
    const Buffer result = program_.buffers[static_cast<size_t>(value.result)];
    const Buffer current = program_.buffers[static_cast<size_t>(value.buffer)];
    AddDims(symbols_, current.shape.dims, result.shape.dims, assignments);
    stays[i] = result.storage == current.storage;
    const bool heap = StorageOf(value.buffer).home == Home::kHeap;
    if (stays[i] || (!heap && !carried.contains(result.storage))) continue;
    QUENCH_ASSIGN_OR_RETURN(const int aside, NewResult(current.name, result.shape));
    if (heap && StorageOf(aside).home != Home::kHeap) {
      // This iteration's size is known before the run, but the value changes its size: it must own
      // heap memory.
      Storage& storage = StorageOf(aside);
      storage.home = Home::kHeap;
      storage.index = program_.num_pointers++;
      QUENCH_RETURN_IF_ERROR(AddAllocate(aside));
    }
    QUENCH_RETURN_IF_ERROR(AddCopy(value.result, aside));
    value.result = aside;
  }
  for (size_t i = 0; i < parts.values.size(); ++i) {
    const Carried& value = parts.values[i];
    if (stays[i]) continue;
    if (StorageOf(value.buffer).home != Home::kHeap) {
      QUENCH_RETURN_IF_ERROR(AddCopy(value.result, value.buffer));
      continue;
    }
    Use(value.result);
    Use(value.buffer);
    StorageOf(value.result).moved = true;
    Add(MoveStep{program_.buffers[static_cast<size_t>(value.result)].storage,
                 program_.buffers[static_cast<size_t>(value.buffer)].storage});
  }
  return AddAssignments(assignments);
}

// ---- stacked outputs ----

// Sizes that nodes of the body tell, and those that follow from them; a size that the body is given is
// none of them, though a node around it may have the name of one inside.
std::set<SymbolId> Builder::ToldWithin(const Graph& body) const {
  std::set<std::string> names;
  ForEachGraph(body, [&](const Graph& each) {
    for (const Node& node : each.nodes) names.insert(node.name);
  });
  std::set<SymbolId> told;
  for (SymbolId id = 0; id < symbols_.size(); ++id) {
    const auto* size = std::get_if<RuntimeSize>(&symbols_.at(id).definition);
    if (size != nullptr && names.contains(size->node)) told.insert(id);
  }
  for (const ValueId input : body.inputs) {
    for (const Dim dim : body.value(input).type.dims) {
      if (!dim.is_static()) told.erase(dim.symbol());
    }
  }
  for (const SymbolId id : RuntimeDependence(symbols_).Affected(told)) told.insert(id);
  return told;
}

// Sizes of carried values that an iteration may change, and those that follow from them.
std::set<SymbolId> Builder::ChangedWithin(const Graph& body, const LoopParts& parts) const {
  std::set<SymbolId> changed;
  for (size_t i = 0; i < parts.carried; ++i) {
    const std::vector<Dim>& before = body.value(body.inputs[parts.first_input + i]).type.dims;
    if (before == body.value(body.outputs[parts.first_output + i]).type.dims) continue;
    for (const Dim dim : before) {
      if (!dim.is_static()) changed.insert(dim.symbol());
    }
  }
  for (const SymbolId id : RuntimeDependence(symbols_).Affected(changed)) changed.insert(id);
  return changed;
}

// One buffer per stacked output of the node: whole when the number of iterations is known, else
// heap memory that grows; that, too, where only the iterations tell how large a row is.
absl::Status Builder::BeginStacks(Frame& frame, const Node& node, const Graph& body,
                                  LoopParts& parts, std::vector<int>& stacks) {
  const std::set<SymbolId> told = ToldWithin(body), changed = ChangedWithin(body, parts);
  const auto is_told = [&](Dim dim) { return !dim.is_static() && told.contains(dim.symbol()); };
  const auto is_open = [&](Dim dim) {
    return is_told(dim) || (!dim.is_static() && changed.contains(dim.symbol()));
  };
  for (size_t i = parts.carried; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == quench::kNone) {
      stacks.push_back(-1);
      continue;
    }
    const Value& value = frame.graph.value(node.outputs[i]);
    const Shape shape{value.type.dtype, value.type.dims, {}};
    if (DataTypeBits(shape.dtype) < 8) {
      return Unsupported("output `{}`: cannot stack {}", value.name, DataTypeName(shape.dtype));
    }
    const int buffer = NewUnallocated(value.name, shape);
    stacks.push_back(buffer);
    StorageOf(buffer).shared = true;
    if (StorageOf(buffer).home != Home::kHeap) continue;
    const bool open = std::ranges::any_of(shape.dims, is_open);
    const Dim length = shape.dims[0];
    const bool counts = !length.is_static() && symbols_.at(length.symbol()).is_runtime();
    if ((parts.loop.fixed_trips || !counts) && !open) {
      QUENCH_RETURN_IF_ERROR(AddAllocate(buffer));
      continue;
    }
    const bool in_order = ElementOf(node.Ints("scan_output_axes"), i - parts.carried) == 0 &&
                          ElementOf(node.Ints("scan_output_directions"), i - parts.carried) == 0;
    if (parts.loop.fixed_trips ? !in_order : !counts) {
      return Unsupported("output `{}` has rows whose size only the iterations know", value.name);
    }
    AppendStep append;
    append.storage = program_.buffers[static_cast<size_t>(buffer)].storage;
    // All of them are as long as the loop ran: the first counts in the symbol itself.
    const bool counted =
        std::any_of(parts.appends.begin(), parts.appends.end(),
                    [&](const AppendStep& other) { return other.length_slot == length.symbol(); });
    append.length_slot = counted || !counts ? NewSlot() : length.symbol();
    append.capacity_slot = NewSlot();
    std::vector<std::pair<SymbolId, Dim>> zeros = {{append.length_slot, 0},
                                                   {append.capacity_slot, 0}};
    // Without iterations nobody sets the sizes of rows that the body tells.
    const Type& row = body.value(body.outputs[parts.first_output + i]).type;
    for (const Dim dim : row.dims) {
      if (is_told(dim) && symbols_.at(dim.symbol()).is_runtime())
        zeros.emplace_back(dim.symbol(), 0);
    }
    QUENCH_RETURN_IF_ERROR(AddAssignments(zeros));
    parts.appends.push_back(append);
  }
  return absl::OkStatus();
}

absl::Status Builder::AddStacks(const Node& node, Frame& body, const LoopParts& parts,
                                const std::vector<int>& stacks) {
  const std::vector<int64_t> axes = node.Ints("scan_output_axes");
  const std::vector<int64_t> directions = node.Ints("scan_output_directions");
  size_t append = 0;
  for (size_t i = 0; i < stacks.size(); ++i) {
    if (stacks[i] < 0) continue;
    QUENCH_ASSIGN_OR_RETURN(
        const int row,
        RowMajorOf(body, body.graph.outputs[parts.first_output + parts.carried + i]));
    const int storage = program_.buffers[static_cast<size_t>(stacks[i])].storage;
    if (append < parts.appends.size() && parts.appends[append].storage == storage) {
      const Buffer source = program_.buffers[static_cast<size_t>(row)];
      QUENCH_ASSIGN_OR_RETURN(const ByteCount bytes, CountBytes(source.shape, source.name));
      Use(row);
      UseStorage(storage);
      AppendStep& step = Add(parts.appends[append]);
      step.from = row;
      step.bytes = bytes;
      ++append;
      continue;
    }
    const int rank =
        static_cast<int>(program_.buffers[static_cast<size_t>(stacks[i])].shape.dims.size());
    const int64_t axis = ElementOf(axes, i);
    QUENCH_RETURN_IF_ERROR(AddSlice(stacks[i], row, static_cast<int>(axis < 0 ? axis + rank : axis),
                                    ElementOf(directions, i) != 0, /*store=*/true, parts));
  }
  return absl::OkStatus();
}

absl::Status Builder::AddSlice(int whole, int slice, int axis, bool reverse, bool store,
                               const LoopParts& parts) {
  const Shape& shape = program_.buffers[static_cast<size_t>(whole)].shape;
  const Shape& part = program_.buffers[static_cast<size_t>(slice)].shape;
  loops::Builder b(store ? "stack" : "slice");
  auto extents = [&](const std::vector<Dim>& dims) {
    std::vector<loops::E> result;
    for (const Dim dim : dims)
      result.push_back(dim.is_static() ? b.I(dim.value()) : b.Slot(dim.symbol()));
    return result;
  };
  // The tensor's own dims but for the axis: the slice may know them by other names.
  std::vector<loops::E> dims = extents(shape.dims), part_dims = dims;
  part_dims.erase(part_dims.begin() + axis);
  const loops::E length = dims[static_cast<size_t>(axis)];
  const loops::B from = b.Input("x", shape.dtype, store ? part_dims : dims);
  const loops::B to = b.Output("y", shape.dtype, store ? dims : part_dims);
  loops::E at = b.Slot(parts.loop.iteration_slot);
  if (reverse) at = length - 1 - at;
  at = b.Let(at, "at");
  b.Check(at < length, "there are more iterations than the tensor has slices");
  b.ParallelForAll(part_dims, [&](std::span<const loops::E> index) {
    std::vector<loops::E> full(index.begin(), index.end());
    full.insert(full.begin() + axis, at);
    if (store) {
      b.Store(to, full, from.At(index));
    } else {
      b.Store(to, index, from.At(full));
    }
  });
  if (part.dims.size() + 1 != shape.dims.size())
    return Internal("a slice has rank {}", part.dims.size());
  std::vector<int> buffers = {whole, slice};
  if (store) std::swap(buffers[0], buffers[1]);
  return AddMove(b.Finish(), {}, std::move(buffers)).status();
}

// ---- Loop and Scan ----

absl::Status Builder::FinishLoop(Frame& frame, const Node& node, const LoopParts& parts,
                                 const std::vector<int>& stacks) {
  std::set<SymbolId> lengths;
  for (const AppendStep& append : parts.appends) lengths.insert(append.length_slot);
  AddRefresh(lengths);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == quench::kNone) continue;
    const int buffer = i < parts.carried ? parts.values[i].buffer : stacks[i - parts.carried];
    const Value& value = frame.graph.value(node.outputs[i]);
    BindValue(frame, node.outputs[i],
              NewView(value.name, {value.type.dtype, value.type.dims, {}}, buffer));
  }
  return absl::OkStatus();
}

absl::Status Builder::BuildLoop(Frame& frame, const Node& node) {
  const GraphPtr body = node.Body("body");
  const int outer_node = node_;
  LoopParts parts;
  parts.carried = static_cast<size_t>(ops::CarriedCount(node));
  parts.first_input = 2;
  parts.first_output = 1;
  LoopStep& loop = parts.loop;
  if (node.inputs[0] != quench::kNone) {
    QUENCH_ASSIGN_OR_RETURN(loop.trip_count, RowMajorOf(frame, node.inputs[0]));
  }
  if (node.inputs[1] != quench::kNone) {
    QUENCH_ASSIGN_OR_RETURN(loop.condition, RowMajorOf(frame, node.inputs[1]));
  }
  loop.iteration = NewScalar("iteration", DataType::kI64);
  loop.condition_in = NewScalar("condition", DataType::kBool);
  loop.iteration_slot = NewSlot();
  QUENCH_RETURN_IF_ERROR(BeginCarried(frame, node, *body, 2, parts));
  std::vector<int> stacks;
  QUENCH_RETURN_IF_ERROR(BeginStacks(frame, node, *body, parts, stacks));
  for (const int buffer : {loop.trip_count, loop.condition}) {
    if (buffer >= 0) Use(buffer);
  }

  Frame inner(*body);
  BindValue(inner, body->inputs[0], loop.iteration);
  BindValue(inner, body->inputs[1], loop.condition_in);
  for (size_t i = 0; i < parts.carried; ++i)
    BindValue(inner, body->inputs[2 + i], parts.values[i].buffer);
  QUENCH_RETURN_IF_ERROR(BindCaptures(frame, node, 2 + parts.carried, inner, 2 + parts.carried));
  OpenBlock(&loop.body);
  QUENCH_RETURN_IF_ERROR(BuildGraph(inner));
  node_ = outer_node;
  QUENCH_RETURN_IF_ERROR(AddStacks(node, inner, parts, stacks));
  // The condition may lie in a carried value's memory: it is kept apart before that is overwritten.
  QUENCH_ASSIGN_OR_RETURN(const int condition_out, RowMajorOf(inner, body->outputs[0]));
  loop.condition_out = NewScalar("next condition", DataType::kBool);
  QUENCH_RETURN_IF_ERROR(AddCopy(condition_out, loop.condition_out));
  QUENCH_RETURN_IF_ERROR(EndCarried(inner, parts));
  Use(loop.condition_out);
  for (const int buffer : {loop.iteration, loop.condition_in}) Use(buffer);
  for (const Carried& value : parts.values) Use(value.buffer);
  CloseBlock();
  Add(std::move(loop));
  return FinishLoop(frame, node, parts, stacks);
}

absl::Status Builder::BuildScan(Frame& frame, const Node& node) {
  const GraphPtr body = node.Body("body");
  const int outer_node = node_;
  LoopParts parts;
  parts.carried = static_cast<size_t>(ops::CarriedCount(node));
  const auto scans = static_cast<size_t>(node.Int("num_scan_inputs", 0));
  const std::vector<int64_t> axes = node.Ints("scan_input_axes");
  const std::vector<int64_t> directions = node.Ints("scan_input_directions");
  parts.loop.fixed_trips = true;
  parts.loop.iteration_slot = NewSlot();
  QUENCH_RETURN_IF_ERROR(BeginCarried(frame, node, *body, 0, parts));
  std::vector<int> sources, source_axes;
  for (size_t i = 0; i < scans; ++i) {
    QUENCH_ASSIGN_OR_RETURN(const int source, RowMajorOf(frame, node.inputs[parts.carried + i]));
    const std::vector<Dim>& dims = program_.buffers[static_cast<size_t>(source)].shape.dims;
    const int64_t axis = ElementOf(axes, i);
    sources.push_back(source);
    source_axes.push_back(
        static_cast<int>(axis < 0 ? axis + static_cast<int64_t>(dims.size()) : axis));
    const Dim length = dims[static_cast<size_t>(source_axes.back())];
    if (i == 0) parts.loop.trips = length;
    if (length == parts.loop.trips) continue;
    SlotFunction check("check", symbols_);
    check.b().Check(check.Value(length) == check.Value(parts.loop.trips),
                    "scan inputs have different lengths");
    QUENCH_RETURN_IF_ERROR(AddSlotCall(check.Finish(), {}));
  }
  std::vector<int> stacks;
  QUENCH_RETURN_IF_ERROR(BeginStacks(frame, node, *body, parts, stacks));

  Frame inner(*body);
  for (size_t i = 0; i < parts.carried; ++i)
    BindValue(inner, body->inputs[i], parts.values[i].buffer);
  QUENCH_RETURN_IF_ERROR(
      BindCaptures(frame, node, parts.carried + scans, inner, parts.carried + scans));
  OpenBlock(&parts.loop.body);
  for (size_t i = 0; i < scans; ++i) {
    const Value& value = body->value(body->inputs[parts.carried + i]);
    QUENCH_ASSIGN_OR_RETURN(const int slice,
                            NewResult(value.name, {value.type.dtype, value.type.dims, {}}));
    QUENCH_RETURN_IF_ERROR(AddSlice(sources[i], slice, source_axes[i],
                                    ElementOf(directions, i) != 0, /*store=*/false, parts));
    BindValue(inner, body->inputs[parts.carried + i], slice);
  }
  QUENCH_RETURN_IF_ERROR(BuildGraph(inner));
  node_ = outer_node;
  QUENCH_RETURN_IF_ERROR(AddStacks(node, inner, parts, stacks));
  QUENCH_RETURN_IF_ERROR(EndCarried(inner, parts));
  for (const Carried& value : parts.values) Use(value.buffer);
  CloseBlock();
  Add(std::move(parts.loop));
  return FinishLoop(frame, node, parts, stacks);
}

}  // namespace quench::codegen
