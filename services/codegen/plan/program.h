// The program of a library before it becomes machine code: buffers, their places, and a sequence of
// steps. One program per variant. Does not depend on LLVM.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "common/ir/graph.h"
#include "services/codegen/kernels/kernel.h"

namespace quench::codegen {

// A tensor in memory.
struct Shape {
  DataType dtype = DataType::kF32;
  std::vector<Dim> dims;  // logical
  Layout layout;
  friend bool operator==(const Shape&, const Shape&) = default;
};

enum class Home : uint8_t {
  kArena,    // planned
  kInput,    // the caller's input `index`
  kOutput,   // the caller's output `index`
  kWeights,  // weight entry `index`
  kHeap,     // allocated by a step once its size is known, kept in pointer variable `index`
};

// Memory that one or more buffers share (views, in-place results, operands of a Concat). Live during
// steps [begin, end].
struct Storage {
  Home home = Home::kArena;
  int index = 0;
  Shape shape;  // of the buffer for which it was made; gives the size
  bool device =
      false;  // in the memory of the GPU: its arena, or its copy of inputs, outputs, weights
  int begin = 0, end = 0;
  bool shared = false;  // written more than once or handed over: is not reused in place, and does
                        // not become an output any more
  bool moved = false;   // kHeap: a MoveStep takes it, it is not freed
  int output = -1;      // kHeap: it becomes this output
  int64_t offset = -1;  // kArena: fixed offset, or
  int32_t offset_slot = -1;  // the slot with the offset
};

struct Buffer {
  std::string name;
  Shape shape;
  int storage = -1;
  int64_t offset = 0;  // bytes from the start of the storage
};

// Bytes of the weight section, filled from a constant unchanged, from a constant in another layout, or by
// a pack transform.
struct WeightEntry {
  std::string key;  // equal keys have equal bytes, across variants
  std::vector<const Constant*> sources;
  bool packed = false;
  PackSpec spec;  // packed
  Layout layout;  // not packed
};

// A number of bytes: fixed, or in a slot that an earlier step sets.
struct ByteCount {
  int64_t fixed = -1;
  int32_t slot = -1;
};

struct Step;
using Steps = std::vector<Step>;

// The beginning of a node of the report: watchers are told, and cancellation is checked.
struct BeginStep {};

struct CallStep {
  KernelPlan kernel;
  // Until calls are placed (place.h): what would run on the GPU instead, if anything can.
  std::optional<KernelPlan> device_kernel;
  bool on_device = false;
  std::vector<int> buffers;  // inputs, outputs
  std::vector<int> packs;    // weight entries
  int in_place = -1;  // position in `buffers` of the input that output `first_output` may take over
  int first_output = 0;
  bool updates = false;      // it leaves part of its outputs as it finds them
  int scratch_storage = -1;  // heap scratch, if its size is known only at run time
  // the kernel recomputes what follows from these: planned last, empty when nothing does
  std::set<SymbolId> refresh;
  double cost = 0;    // predicted microseconds on one core
  int64_t grain = 1;  // tasks worth handing to a thread
  bool parallel = false;
  bool one_range = false;        // in parallel, each thread gets its share of tasks as one range
  std::optional<RowOrder> rows;  // its `input` is an index into `buffers`
};

// Heap memory for a storage.
struct AllocateStep {
  int storage = -1;
  ByteCount bytes;
};

struct FreeStep {
  int storage = -1;
};

// Moves the heap memory of one storage to another, whose old memory is freed.
struct MoveStep {
  int from = -1, to = -1;  // storages
};

// Copies all of a storage to the other memory. Both buffers cover theirs.
struct TransferStep {
  int from = -1, to = -1;  // buffers
};

// Both in one memory.
struct CopyStep {
  int from = -1, to = -1;  // buffers
  ByteCount bytes;
};

// Appends a buffer to a heap storage, which grows.
struct AppendStep {
  int from = -1;     // buffer
  int storage = -1;  // heap
  ByteCount bytes;
  int32_t length_slot = -1;    // number of appended buffers
  int32_t capacity_slot = -1;  // bytes
};

struct TapStep {
  int buffer = -1;
  int tap = -1;
};

struct IfStep {
  int condition = -1;  // buffer of a bool
  Steps then_steps, else_steps;
};

// Each iteration sets `iteration` and `condition_in`, runs `body`, and reads `condition_out`.
// Buffers of scalars, -1 where absent.
struct LoopStep {
  int trip_count = -1;       // i64: Loop's M
  bool fixed_trips = false;  // Scan: `trips` iterations
  Dim trips = 0;
  int condition = -1;  // bool, before the first iteration
  int iteration = -1;  // i64
  int32_t iteration_slot = -1;
  int condition_in = -1;   // bool
  int condition_out = -1;  // bool
  Steps body;
};

// Calls that read each other's rows, and run on one thread, some tasks of each in turn, so that rows are
// read while they are in the nearest caches. `body` has the calls, and the beginnings of all their nodes
// except the first.
struct BandsStep {
  struct Range {
    int call = 0;                // its index in `body`
    int64_t begin = 0, end = 0;  // tasks
  };
  Steps body;
  std::vector<Range> order;
};

struct Step {
  int position = 0;
  int node = -1;  // report entry
  std::variant<BeginStep, CallStep, AllocateStep, FreeStep, MoveStep, TransferStep, CopyStep,
               AppendStep, TapStep, IfStep, LoopStep, BandsStep>
      action;

  template <typename Action>
  const Action* As() const {
    return std::get_if<Action>(&action);
  }
  template <typename Action>
  Action* As() {
    return std::get_if<Action>(&action);
  }
};

// Calls `visit` with each sequence of steps inside a step: branches, bodies.
template <typename AnyStep, typename Visit>
void ForEachInner(AnyStep& step, const Visit& visit) {
  if (auto* branches = step.template As<IfStep>(); branches != nullptr) {
    visit(branches->then_steps);
    visit(branches->else_steps);
  }
  if (auto* loop = step.template As<LoopStep>(); loop != nullptr) visit(loop->body);
  if (auto* bands = step.template As<BandsStep>(); bands != nullptr) visit(bands->body);
}

// Calls `visit` with each step, inner steps first.
template <typename AnySteps, typename Visit>
void ForEachStep(AnySteps& steps, const Visit& visit) {
  for (auto& step : steps) {
    ForEachInner(step, [&](auto& inner) { ForEachStep(inner, visit); });
    visit(step);
  }
}

struct NodeEntry {
  std::string name, op, kernel;
};

// A value of the compiled graph in memory, at the end of the node that computes it.
struct ShownValue {
  std::string name;
  int buffer = -1;
  int node = -1;      // report entry that computes it, -1 for a view
  int position = -1;  // of the first step after that node
};

// The place of a storage in the arena at typical sizes.
struct PlacedStorage {
  int storage = -1;
  int64_t offset = 0, bytes = 0;
  friend bool operator==(const PlacedStorage&, const PlacedStorage&) = default;
};

struct Program {
  std::vector<Buffer> buffers;
  std::vector<Storage> storages;
  Steps steps;
  std::vector<NodeEntry> nodes;
  std::vector<int> taps;  // buffers
  std::vector<std::string> tap_names;
  std::vector<ShownValue> shown;  // in order of the nodes
  int num_pointers = 0;           // pointer variables
  int num_positions = 0;
  // Programs with device code: the memories (QUENCH_SIDE_*) in which inputs are read, perhaps none, and the one in
  // which an output is left.
  std::vector<uint32_t> input_sides, output_sides;

  // Set by planning.
  KernelPlan plan;  // sets slots: expression symbols, offsets, and the next three
  int32_t arena_slot = -1, scratch_slot = -1, lower_bound_slot = -1;
  int32_t num_slots = 0;
  int64_t typical_arena_bytes = 0, typical_lower_bound = 0;
  std::vector<PlacedStorage> typical_places;  // by offset
  // Likewise of the GPU's memory, in programs with device code. Scratch is that of all threads of a launch.
  int32_t device_arena_slot = -1, device_lower_bound_slot = -1, device_scratch_slot = -1;
  int64_t typical_device_bytes = 0, typical_device_lower_bound = 0;
  std::vector<PlacedStorage> typical_device_places;

  bool has_device() const { return !output_sides.empty(); }
};

}  // namespace quench::codegen
