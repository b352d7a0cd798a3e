// What an artifact does, before it is machine code: buffers, where they live, and a sequence of
// steps. One program per variant. LLVM-free.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "services/codegen/kernels/kernel.h"

namespace quench::codegen {

// A tensor as it lies in memory.
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
  Shape shape;  // of the buffer it was made for: gives the size
  int begin = 0, end = 0;
  bool shared = false;  // written more than once or handed over: is not reused in place, and does
                        // not become an output any more
  bool moved = false;   // kHeap: a kMove takes it, nobody frees it
  int output = -1;      // kHeap: it becomes this output
  int64_t offset = -1;  // kArena: fixed offset, or
  int32_t offset_slot = -1;  // slot that has it
};

struct Buffer {
  std::string name;
  Shape shape;
  int storage = -1;
  int64_t offset = 0;  // bytes from the start of the storage
};

// Bytes of the weight section. Filled from one constant as it is, from one in another layout, or by
// a pack transform.
struct WeightEntry {
  std::string key;  // equal keys have equal bytes, across variants
  std::vector<const Constant*> sources;
  bool packed = false;
  PackSpec spec;  // packed
  Layout layout;  // not packed
};

struct Step {
  enum class Kind : uint8_t {
    kNode,      // `node` begins: report, look for cancellation
    kCall,      // kernel
    kAllocate,  // heap memory of `bytes` for `storage`
    kFree,      // of `storage`
    kMove,      // heap memory of `storage` passes to `target`, whose old memory is freed
    kCopy,      // `bytes` of buffer `from` to buffer `to`
    kAppend,    // `bytes` of buffer `from` to the end of heap `storage`, which grows; slot `length`
                // counts
    kTap,       // buffer `from` is tap `tap`
    kIf,        // scalar bool buffer `from`: then_steps or else_steps
    kLoop,
  };
  Kind kind = Kind::kNode;
  int position = 0;
  int node = -1;  // report entry

  // kCall
  KernelPlan kernel;
  std::vector<int> buffers;  // inputs, outputs
  std::vector<int> packs;    // weight entries
  int in_place = -1;  // position in `buffers` of the input that output `first_output` may take over
  int first_output = 0;
  int scratch_storage = -1;  // heap scratch, when its size is known only at run time
  // the kernel recomputes what follows from these: planned last, empty when nothing does
  std::set<SymbolId> refresh;
  int64_t grain = 1;  // tasks worth handing to a thread
  bool parallel = false;

  int storage = -1, target = -1;
  int from = -1, to = -1;
  int64_t bytes = -1;                            // fixed, or
  int32_t bytes_slot = -1;                       // slot that has them
  int32_t length_slot = -1, capacity_slot = -1;  // kAppend; capacity in bytes
  int tap = -1;
  std::vector<Step> then_steps, else_steps;  // kLoop: the body is then_steps

  // kLoop. Buffers of scalars, -1 where absent. Each iteration sets `iteration` and `condition_in`,
  // does then_steps, and reads `condition_out`.
  int trip_count = -1;       // i64: Loop's M
  bool fixed_trips = false;  // Scan: `trips` iterations
  Dim trips = 0;
  int condition = -1;  // bool, before the first iteration
  int iteration = -1;  // i64
  int32_t iteration_slot = -1;
  int condition_in = -1;   // bool
  int condition_out = -1;  // bool
};

struct NodeEntry {
  std::string name, op, kernel;
};

// Where a storage of the arena lies at typical sizes.
struct PlacedStorage {
  int storage = -1;
  int64_t offset = 0, bytes = 0;
};

struct Program {
  std::vector<Buffer> buffers;
  std::vector<Storage> storages;
  std::vector<Step> steps;
  std::vector<NodeEntry> nodes;
  std::vector<int> taps;  // buffers
  std::vector<std::string> tap_names;
  int num_pointers = 0;  // pointer variables
  int num_positions = 0;

  // Set by planning.
  KernelPlan plan;  // sets slots: expression symbols, offsets, and the next three
  int32_t arena_slot = -1, scratch_slot = -1, lower_bound_slot = -1;
  int32_t num_slots = 0;
  int64_t typical_arena_bytes = 0, typical_lower_bound = 0;
  std::vector<PlacedStorage> typical_places;  // by offset
};

}  // namespace quench::codegen
