#include "services/codegen/plan/assign.h"

#include <algorithm>
#include <functional>

#include "common/base/status.h"
#include "services/codegen/plan/memory_plan.h"
#include "services/codegen/plan/slot_functions.h"
#include "services/codegen/schedule/plan_nest.h"

namespace quench::codegen {
namespace {

class Assigner {
 public:
  Assigner(Program& program, SymbolTable& symbols, const Target& target)
      : program_(program), symbols_(symbols), target_(target), typical_(TypicalSlots(symbols)) {}

  absl::Status Run() {
    ForEachStep(program_.steps, [this](const Step& step) {
      if (const auto* call = step.As<CallStep>(); call != nullptr)
        ReuseInPlace(*call, step.position);
    });
    RemoveCopiesInPlace(program_.steps);
    AddFrees(program_.steps, 0);
    Collect();
    return Place();
  }

 private:
  Storage& StorageOf(int buffer) {
    return program_
        .storages[static_cast<size_t>(program_.buffers[static_cast<size_t>(buffer)].storage)];
  }

  // The output takes the input's storage when that is used here for the last time.
  void ReuseInPlace(const CallStep& call, int position) {
    if (call.in_place < 0) return;
    const auto output_at = static_cast<size_t>(call.first_output);
    if (output_at >= call.buffers.size()) return;
    const int input = call.buffers[static_cast<size_t>(call.in_place)],
              output = call.buffers[output_at];
    const int from = program_.buffers[static_cast<size_t>(input)].storage;
    const int to = program_.buffers[static_cast<size_t>(output)].storage;
    Storage& source = program_.storages[static_cast<size_t>(from)];
    const Storage& result = program_.storages[static_cast<size_t>(to)];
    if (from == to || source.home != Home::kArena || result.home != Home::kArena) return;
    if (source.shared || result.shared || source.end != position || result.begin > position) return;
    if (!SameBytes(input, output) ||
        !(source.shape == program_.buffers[static_cast<size_t>(input)].shape ||
          IsFixed(source.shape))) {
      return;
    }
    // Another operand in the same memory would be overwritten while it is read at other places.
    for (size_t i = 0; i < output_at; ++i) {
      if (static_cast<int>(i) != call.in_place &&
          program_.buffers[static_cast<size_t>(call.buffers[i])].storage == from) {
        return;
      }
    }
    source.end = std::max(source.end, result.end);
    for (Buffer& buffer : program_.buffers) {
      if (buffer.storage == to) buffer.storage = from;
    }
    program_.storages[static_cast<size_t>(to)].begin = 1;
    program_.storages[static_cast<size_t>(to)].end = 0;  // nobody's any more
  }

  // Removes copies of data that is already in its place.
  void RemoveCopiesInPlace(Steps& steps) {
    for (Step& step : steps)
      ForEachInner(step, [this](Steps& inner) { RemoveCopiesInPlace(inner); });
    const auto place = [&](int id) {
      const Buffer& buffer = program_.buffers[static_cast<size_t>(id)];
      return std::pair(buffer.storage, buffer.offset);
    };
    std::erase_if(steps, [&](const Step& step) {
      const auto* copy = step.As<CopyStep>();
      return copy != nullptr && place(copy->from) == place(copy->to);
    });
  }

  bool SameBytes(int a, int b) const {
    const Shape& x = program_.buffers[static_cast<size_t>(a)].shape;
    const Shape& y = program_.buffers[static_cast<size_t>(b)].shape;
    return x.dims == y.dims && x.layout == y.layout &&
           DataTypeBits(x.dtype) == DataTypeBits(y.dtype);
  }

  // Heap memory allocated in this sequence is freed after the step that uses it last; what a nested
  // sequence uses from outside counts as used by the control step. Memory that is made in a branch
  // for use after it is freed out here.
  void AddFrees(Steps& steps, int depth) {
    for (Step& step : steps) ForEachInner(step, [&](Steps& inner) { AddFrees(inner, depth + 1); });
    std::vector<int> made;
    for (const Step& step : steps) FindAllocated(step, made);
    for (const int id : made) {
      const Storage& storage = program_.storages[static_cast<size_t>(id)];
      if (storage.moved || storage.output >= 0) continue;
      const auto last = std::find_if(steps.begin(), steps.end(), [&](const Step& step) {
        return step.position >= storage.end;
      });
      const bool covers = last != steps.end() || depth == 0;
      if (!covers) continue;  // used further out
      freed_.insert(id);
      steps.insert(last == steps.end() ? last : last + 1, {storage.end, -1, FreeStep{id}});
    }
  }

  // Storages allocated by a step or, where no nested sequence freed them, inside it.
  void FindAllocated(const Step& step, std::vector<int>& made) const {
    auto add = [&](int storage) {
      if (!freed_.contains(storage) && std::find(made.begin(), made.end(), storage) == made.end())
        made.push_back(storage);
    };
    if (const auto* allocate = step.As<AllocateStep>(); allocate != nullptr) add(allocate->storage);
    if (const auto* append = step.As<AppendStep>(); append != nullptr) add(append->storage);
    ForEachInner(step, [&](const Steps& inner) {
      for (const Step& each : inner) FindAllocated(each, made);
    });
  }

  void Collect() {
    for (size_t i = 0; i < program_.storages.size(); ++i) {
      const Storage& storage = program_.storages[i];
      if (storage.home == Home::kArena && storage.begin <= storage.end)
        planned_.push_back(static_cast<int>(i));
    }
  }

  std::vector<ArenaItem> Items(const std::function<int64_t(const Shape&)>& bytes) const {
    std::vector<ArenaItem> items;
    for (const int id : planned_) {
      const Storage& storage = program_.storages[static_cast<size_t>(id)];
      items.push_back({bytes(storage.shape), storage.begin, storage.end});
    }
    return items;
  }

  // Largest size that bounded dims allow; saturates.
  int64_t MostBytes(const Shape& shape) const {
    Shape most = shape;
    for (Dim& dim : most.dims) dim = Dim(std::min(symbols_.BoundsOf(dim).max, int64_t{1} << 46));
    return BytesAt(most, {});
  }

  absl::Status Place() {
    const std::vector<ArenaItem> items =
        Items([this](const Shape& shape) { return BytesAt(shape, typical_); });
    const ArenaPlan plan = PlanArena(items);
    program_.typical_arena_bytes = plan.bytes;
    program_.typical_lower_bound = plan.lower_bound;
    NotePlaces(items, plan);
    bool fixed = true;
    for (const int id : planned_)
      fixed = fixed && IsFixed(program_.storages[static_cast<size_t>(id)].shape);
    if (fixed) return MakePlan(&plan, items, plan);
    const std::vector<ArenaItem> largest =
        Items([this](const Shape& shape) { return MostBytes(shape); });
    int64_t sum = 0;
    for (const ArenaItem& item : largest) sum = std::min(sum + item.bytes, int64_t{1} << 46);
    if (sum < (int64_t{1} << 46)) {
      const ArenaPlan most = PlanArena(largest);
      if (most.bytes <= 2 * plan.bytes) return MakePlan(&most, largest, most);
    }
    return MakePlan(nullptr, items, plan);
  }

  void NotePlaces(const std::vector<ArenaItem>& items, const ArenaPlan& plan) {
    for (size_t i = 0; i < items.size(); ++i) {
      const int64_t rounded =
          (items[i].bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
      program_.typical_places.push_back({planned_[i], plan.offsets[i], rounded});
    }
    std::stable_sort(
        program_.typical_places.begin(), program_.typical_places.end(),
        [](const PlacedStorage& a, const PlacedStorage& b) { return a.offset < b.offset; });
  }

  // `fixed`: offsets for all sizes; null: the order of `typical` decides at run time.
  absl::Status MakePlan(const ArenaPlan* fixed, const std::vector<ArenaItem>& items,
                        const ArenaPlan& typical) {
    SlotFunction function("plan", symbols_);
    for (const SymbolId id : RuntimeDependence(symbols_).Planned()) function.SetExpression(id);
    int32_t next = symbols_.size();
    loops::Builder& b = function.b();
    loops::E arena = b.I(0), bound = b.I(0);
    if (fixed != nullptr) {
      for (size_t i = 0; i < planned_.size(); ++i) {
        program_.storages[static_cast<size_t>(planned_[i])].offset = fixed->offsets[i];
      }
      arena = b.I(fixed->bytes);
      bound = b.I(fixed->lower_bound);
    } else {
      StackUp(function, items, typical, next, arena, bound);
    }
    program_.arena_slot = next++;
    program_.lower_bound_slot = next++;
    program_.scratch_slot = next++;
    program_.num_slots = next;
    function.Set(program_.arena_slot, arena);
    function.Set(program_.lower_bound_slot, bound);
    function.Set(program_.scratch_slot, Scratch(function));
    const int32_t symbols_before = symbols_.size();
    QUENCH_ASSIGN_OR_RETURN(program_.plan,
                            PlanNest({function.Finish(), {}, false}, symbols_, target_));
    QUENCH_CHECK(symbols_.size() == symbols_before);  // slots after the symbols are taken
    return absl::OkStatus();
  }

  void StackUp(SlotFunction& function, const std::vector<ArenaItem>& items,
               const ArenaPlan& typical, int32_t& next, loops::E& arena, loops::E& bound) {
    loops::Builder& b = function.b();
    std::vector<loops::E> bytes, ends(items.size());
    for (const int id : planned_) {
      const loops::E exact =
          function.Bytes(program_.storages[static_cast<size_t>(id)].shape, NameOf(id));
      bytes.push_back(b.Let(CeilDiv(exact, b.I(kArenaAlignment)) * kArenaAlignment, "rounded"));
    }
    const StackingOrder stacking = StackingOf(items, typical);
    for (const int item : stacking.order) {
      loops::E offset = b.I(0);
      bool first = true;
      for (const int below : stacking.below[static_cast<size_t>(item)]) {
        const loops::E end = ends[static_cast<size_t>(below)];
        offset = first ? end : Max(offset, end);
        first = false;
      }
      Storage& storage =
          program_.storages[static_cast<size_t>(planned_[static_cast<size_t>(item)])];
      storage.offset_slot = next++;
      function.Set(storage.offset_slot, offset);
      const loops::E end = b.Let(function.Value(Dim::OfSymbol(storage.offset_slot)) +
                                 bytes[static_cast<size_t>(item)]);
      ends[static_cast<size_t>(item)] = end;
      arena = b.Let(Max(arena, end), "arena");
    }
    for (const std::vector<int>& live : MaximalLiveSets(items)) {
      loops::E sum = b.I(0);
      for (const int item : live) sum = sum + bytes[static_cast<size_t>(item)];
      bound = b.Let(Max(bound, sum), "bound");
    }
  }

  std::string NameOf(int storage) const {
    for (const Buffer& buffer : program_.buffers) {
      if (buffer.storage == storage) return buffer.name;
    }
    return "?";
  }

  // The most scratch that one call needs, of those whose need is known before the run.
  loops::E Scratch(SlotFunction& function) {
    int64_t most = 0;
    std::set<SymbolId> symbolic;
    ForEachStep(program_.steps, [&](const Step& step) {
      const auto* call = step.As<CallStep>();
      if (call == nullptr) return;
      const Dim bytes = call->kernel.scratch_bytes;
      if (bytes.is_static()) {
        most = std::max(most, bytes.value());
      } else if (!symbols_.DependsOnRuntime(bytes)) {
        symbolic.insert(bytes.symbol());
      }
    });
    loops::Builder& b = function.b();
    loops::E result = b.I(most);
    for (const SymbolId id : symbolic) result = Max(result, function.Value(Dim::OfSymbol(id)));
    return CeilDiv(result, b.I(kArenaAlignment)) * kArenaAlignment;
  }

  Program& program_;
  SymbolTable& symbols_;
  const Target& target_;
  const std::vector<int64_t> typical_;
  std::vector<int> planned_;  // storages in the arena
  std::set<int> freed_;
};

}  // namespace

absl::Status AssignMemory(Program& program, SymbolTable& symbols, const Target& target) {
  return Assigner(program, symbols, target).Run();
}

}  // namespace quench::codegen
