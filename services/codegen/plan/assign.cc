#include "services/codegen/plan/assign.h"

#include <algorithm>
#include <functional>

#include "common/base/status.h"
#include "services/codegen/plan/memory_plan.h"
#include "services/codegen/plan/place.h"
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
        (storage.device ? device_ : host_).planned.push_back(static_cast<int>(i));
    }
  }

  // The plan of one memory.
  struct Arena {
    std::vector<int> planned;      // storages
    std::vector<ArenaItem> items;  // at the sizes of `plan`
    ArenaPlan plan;
    bool fixed = false;  // for all sizes; else the order of the plan decides at run time
    loops::E bytes = {}, bound = {};
  };

  static std::vector<ArenaItem> Items(const Program& program, const std::vector<int>& planned,
                                      const std::function<int64_t(const Shape&)>& bytes) {
    std::vector<ArenaItem> items;
    for (const int id : planned) {
      const Storage& storage = program.storages[static_cast<size_t>(id)];
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
    PlaceArena(host_, program_.typical_places, program_.typical_arena_bytes,
               program_.typical_lower_bound);
    PlaceArena(device_, program_.typical_device_places, program_.typical_device_bytes,
               program_.typical_device_lower_bound);
    return MakePlan();
  }

  void PlaceArena(Arena& arena, std::vector<PlacedStorage>& places, int64_t& typical_bytes,
                  int64_t& typical_bound) const {
    arena.items = Items(program_, arena.planned,
                        [this](const Shape& shape) { return BytesAt(shape, typical_); });
    arena.plan = PlanArena(arena.items);
    typical_bytes = arena.plan.bytes;
    typical_bound = arena.plan.lower_bound;
    NotePlaces(arena, places);
    arena.fixed = std::all_of(arena.planned.begin(), arena.planned.end(), [this](int id) {
      return IsFixed(program_.storages[static_cast<size_t>(id)].shape);
    });
    if (arena.fixed) return;
    std::vector<ArenaItem> largest =
        Items(program_, arena.planned, [this](const Shape& shape) { return MostBytes(shape); });
    int64_t sum = 0;
    for (const ArenaItem& item : largest) sum = std::min(sum + item.bytes, int64_t{1} << 46);
    if (sum >= (int64_t{1} << 46)) return;
    ArenaPlan most = PlanArena(largest);
    arena.fixed = most.bytes <= 2 * arena.plan.bytes;
    if (!arena.fixed) return;
    arena.items = std::move(largest);
    arena.plan = std::move(most);
  }

  static void NotePlaces(const Arena& arena, std::vector<PlacedStorage>& places) {
    for (size_t i = 0; i < arena.items.size(); ++i) {
      const int64_t rounded =
          (arena.items[i].bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
      places.push_back({arena.planned[i], arena.plan.offsets[i], rounded});
    }
    std::stable_sort(
        places.begin(), places.end(),
        [](const PlacedStorage& a, const PlacedStorage& b) { return a.offset < b.offset; });
  }

  absl::Status MakePlan() {
    SlotFunction function("plan", symbols_);
    for (const SymbolId id : RuntimeDependence(symbols_).Planned()) function.SetExpression(id);
    int32_t next = symbols_.size();
    AddArena(function, host_, next);
    if (program_.has_device()) AddArena(function, device_, next);
    program_.arena_slot = next++;
    program_.lower_bound_slot = next++;
    program_.scratch_slot = next++;
    function.Set(program_.arena_slot, host_.bytes);
    function.Set(program_.lower_bound_slot, host_.bound);
    function.Set(program_.scratch_slot, Scratch(function, /*on_device=*/false));
    if (program_.has_device()) {
      program_.device_arena_slot = next++;
      program_.device_lower_bound_slot = next++;
      program_.device_scratch_slot = next++;
      function.Set(program_.device_arena_slot, device_.bytes);
      function.Set(program_.device_lower_bound_slot, device_.bound);
      function.Set(program_.device_scratch_slot, Scratch(function, /*on_device=*/true));
    }
    program_.num_slots = next;
    const int32_t symbols_before = symbols_.size();
    QUENCH_ASSIGN_OR_RETURN(program_.plan,
                            PlanNest({function.Finish(), {}, false}, symbols_, target_));
    QUENCH_CHECK(symbols_.size() == symbols_before);  // slots after the symbols are taken
    return absl::OkStatus();
  }

  // Sets the offsets of the storages in the arena, or has the plan function compute them.
  void AddArena(SlotFunction& function, Arena& arena, int32_t& next) {
    loops::Builder& b = function.b();
    arena.bytes = b.I(0);
    arena.bound = b.I(0);
    if (!arena.fixed) return StackUp(function, arena, next);
    for (size_t i = 0; i < arena.planned.size(); ++i) {
      program_.storages[static_cast<size_t>(arena.planned[i])].offset = arena.plan.offsets[i];
    }
    arena.bytes = b.I(arena.plan.bytes);
    arena.bound = b.I(arena.plan.lower_bound);
  }

  void StackUp(SlotFunction& function, Arena& arena, int32_t& next) {
    loops::Builder& b = function.b();
    std::vector<loops::E> bytes, ends(arena.items.size());
    for (const int id : arena.planned) {
      const loops::E exact =
          function.Bytes(program_.storages[static_cast<size_t>(id)].shape, NameOf(id));
      bytes.push_back(b.Let(CeilDiv(exact, b.I(kArenaAlignment)) * kArenaAlignment, "rounded"));
    }
    const StackingOrder stacking = StackingOf(arena.items, arena.plan);
    for (const int item : stacking.order) {
      loops::E offset = b.I(0);
      bool first = true;
      for (const int below : stacking.below[static_cast<size_t>(item)]) {
        const loops::E end = ends[static_cast<size_t>(below)];
        offset = first ? end : Max(offset, end);
        first = false;
      }
      Storage& storage =
          program_.storages[static_cast<size_t>(arena.planned[static_cast<size_t>(item)])];
      storage.offset_slot = next++;
      function.Set(storage.offset_slot, offset);
      const loops::E end = b.Let(function.Value(Dim::OfSymbol(storage.offset_slot)) +
                                 bytes[static_cast<size_t>(item)]);
      ends[static_cast<size_t>(item)] = end;
      arena.bytes = b.Let(Max(arena.bytes, end), "arena");
    }
    for (const std::vector<int>& live : MaximalLiveSets(arena.items)) {
      loops::E sum = b.I(0);
      for (const int item : live) sum = sum + bytes[static_cast<size_t>(item)];
      arena.bound = b.Let(Max(arena.bound, sum), "bound");
    }
  }

  std::string NameOf(int storage) const {
    for (const Buffer& buffer : program_.buffers) {
      if (buffer.storage == storage) return buffer.name;
    }
    return "?";
  }

  // The most scratch that one call needs, of those whose need is known before the run: on a thread of the CPU, or for
  // all tasks that run on the GPU at once.
  loops::E Scratch(SlotFunction& function, bool on_device) {
    int64_t most = 0;
    std::set<SymbolId> symbolic;
    ForEachStep(program_.steps, [&](const Step& step) {
      const auto* call = step.As<CallStep>();
      if (call == nullptr || call->on_device != on_device) return;
      const Dim bytes = call->kernel.scratch_bytes;
      if (bytes.is_static()) {
        const int64_t tasks =
            on_device ? DeviceThreads(call->kernel) / TaskThreads(call->kernel) : 1;
        most = std::max(most, tasks * bytes.value());
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
  Arena host_, device_;
  std::set<int> freed_;
};

}  // namespace

absl::Status AssignMemory(Program& program, SymbolTable& symbols, const Target& target) {
  return Assigner(program, symbols, target).Run();
}

}  // namespace quench::codegen
