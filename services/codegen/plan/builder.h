// The inside of BuildProgram, shared by the build*.cc.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "services/codegen/kernels/typical_sizes.h"
#include "services/codegen/plan/built_program.h"
#include "services/codegen/plan/select.h"
#include "services/codegen/plan/slot_functions.h"

namespace quench::codegen {

// The values of one graph, as buffers. A value has one buffer per layout it is wanted in; the first
// is the one it was produced in.
struct Frame {
  explicit Frame(const Graph& g) : graph(g), buffers(g.values.size()) {}
  const Graph& graph;
  std::vector<std::vector<int>> buffers;
};

class Builder {
 public:
  Builder(const Graph& graph, const Target& target, const CompileOptions& options,
          Proposer& proposer, WeightTable& weights, const StepContext& context)
      : graph_(graph),
        target_(target),
        options_(options),
        proposer_(proposer),
        weights_(weights),
        context_(context),
        symbols_(*graph.symbols),
        typical_(symbols_) {}

  absl::StatusOr<BuiltProgram> Build();

 private:
  // A sequence of steps being filled: the main one, or a body. Storages that a body uses from
  // outside are in use until its control step is over.
  struct Block {
    Steps* steps = nullptr;
    std::set<int> outer_uses;  // storages
  };

  // build.cc: nodes.
  absl::Status BuildGraph(Frame& frame);
  absl::Status BuildNode(Frame& frame, const Node& node, const Choice& choice);
  // Notes where the node's results are; `entry` as ShownValue::node.
  void ShowResults(const Frame& frame, const Node& node, int entry);
  absl::Status BuildKernel(Frame& frame, const Node& node, const Choice& choice);
  // Prepares the part of a kernel's inputs that its tasks share. Returns the workspace.
  absl::StatusOr<int> BuildPreparation(const Candidate& candidate, const std::string& name,
                                       bool fuses, std::vector<int> inputs);
  absl::Status BuildAlias(Frame& frame, const Node& node);
  absl::Status BuildSizes(Frame& frame, const Node& node);
  absl::Status BindOutput(Frame& frame, int index);
  void SetGrain(CallStep& call, double cost);
  // The target that kernels are chosen for.
  const Target& KernelTarget() const { return target_.device ? *target_.device : target_; }

  // build_joins.cc: results of Splits, and storages that lie in others, which Concats join them to.
  struct Place {
    int storage = -1;
    int64_t offset = 0;  // bytes
  };
  // Whether the node is a Split of whose operand all results are views.
  absl::StatusOr<bool> BuildParts(Frame& frame, const Node& node, const Candidate& chosen);
  // Whether the node is a Concat of operands that can be computed where they belong in its result.
  absl::StatusOr<bool> BuildJoined(Frame& frame, const Node& node, const Candidate& chosen);
  bool CanBecomePart(int id) const;
  static Place OutermostOf(int storage, const std::map<int, Place>& parts);
  std::optional<int> StorageAt(std::span<const int> operands, std::span<const int64_t> offsets,
                               size_t first, size_t& next) const;
  int64_t PeakWith(const std::map<int, Place>& parts);
  void PlaceParts();

  // build_values.cc: values and memory.
  absl::StatusOr<int> BufferOf(Frame& frame, ValueId id, const Layout& layout);
  absl::StatusOr<int> RowMajorOf(Frame& frame, ValueId id) { return BufferOf(frame, id, {}); }
  absl::StatusOr<int> Transform(int from, const Layout& layout);
  int ConstantBuffer(const Value& value, const Layout& layout);
  absl::StatusOr<int> PackEntry(const Graph& graph, const Node& node, const PackSpec& spec);
  int NewStorage(Home home, const Shape& shape, int index = 0);
  // All of a storage.
  int NewBuffer(const std::string& name, const Shape& shape, int storage);
  // Memory of buffer `of`, `offset` bytes after where that begins, as `shape`: whatever lies in another buffer's
  // memory is made here, so that a view of a view is where it belongs.
  int NewView(const std::string& name, const Shape& shape, int of, int64_t offset = 0);
  // A fresh buffer for a result: planned, or allocated here and now when its size is known only at
  // run time.
  absl::StatusOr<int> NewResult(const std::string& name, const Shape& shape);
  // The same without the allocation.
  int NewUnallocated(const std::string& name, const Shape& shape);
  bool IsHeap(const Shape& shape) const { return DependsOnRuntime(shape, symbols_); }
  void Use(int buffer) { UseStorage(program_.buffers[static_cast<size_t>(buffer)].storage); }
  void UseStorage(int storage);
  Storage& StorageOf(int buffer) {
    return program_
        .storages[static_cast<size_t>(program_.buffers[static_cast<size_t>(buffer)].storage)];
  }

  // build_values.cc: steps.
  template <typename Action>
  Action& Add(Action action) {
    blocks_.back().steps->push_back({program_.num_positions++, node_, std::move(action)});
    return *blocks_.back().steps->back().template As<Action>();
  }
  absl::Status AddAllocate(int buffer);
  absl::Status AddCopy(int from, int to);
  // Bytes of a shape: fixed, or in a slot that a step added here computes.
  absl::StatusOr<ByteCount> CountBytes(const Shape& shape, const std::string& name);
  absl::Status AddSlotCall(loops::Function function, const std::vector<int>& buffers);
  // A call that copies, vectorized where kernels are.
  absl::StatusOr<CallStep*> AddMove(loops::Function function, std::vector<Layout> layouts,
                                    std::vector<int> buffers);
  int32_t NewSlot();
  // Recomputes everything that follows from runtime symbols that have just been set.
  void AddRefresh(const std::set<SymbolId>& changed);
  // A call that uses `buffers`, outputs from `first_output` on, with scratch of the heap where a run
  // alone can tell how much.
  absl::StatusOr<CallStep*> AddCall(KernelPlan kernel, std::vector<int> buffers,
                                    size_t first_output);
  absl::Status FillRefreshes(Steps& steps);
  absl::Status FillRefresh(CallStep& call);
  // Sets symbols to the values of dims, all at once, and recomputes what follows.
  absl::Status AddAssignments(const std::vector<std::pair<SymbolId, Dim>>& assignments);
  void OpenBlock(Steps* steps);
  void CloseBlock();

  // build_control.cc
  absl::Status BuildControl(Frame& frame, const Node& node);
  absl::Status BuildIf(Frame& frame, const Node& node);
  absl::Status BuildBranch(Frame& frame, const Node& node, const std::string& attribute,
                           const std::vector<int>& outputs, Steps& steps);
  // A value that iterations hand on.
  struct Carried {
    int buffer = -1;  // what an iteration reads, and the final value after the last
    int result = -1;  // what the iteration gives
  };
  struct LoopParts {
    size_t carried = 0;  // count; inputs and outputs of the body start at
    size_t first_input = 0, first_output = 0;
    std::vector<Carried> values;
    std::vector<AppendStep> appends;  // stacks that grow, in order of the outputs
    LoopStep loop;
  };
  absl::Status BuildLoop(Frame& frame, const Node& node);
  absl::Status BuildScan(Frame& frame, const Node& node);
  absl::Status BeginCarried(Frame& frame, const Node& node, const Graph& body, size_t first_operand,
                            LoopParts& parts);
  absl::Status EndCarried(Frame& body, LoopParts& parts);
  absl::Status BeginStacks(Frame& frame, const Node& node, const Graph& body, LoopParts& parts,
                           std::vector<int>& stacks);
  std::set<SymbolId> ToldWithin(const Graph& body) const;
  std::set<SymbolId> ChangedWithin(const Graph& body, const LoopParts& parts) const;
  absl::Status AddStacks(const Node& node, Frame& body, const LoopParts& parts,
                         const std::vector<int>& stacks);
  absl::Status FinishLoop(Frame& frame, const Node& node, const LoopParts& parts,
                          const std::vector<int>& stacks);
  // Copies between a tensor and its slice at the current iteration (or its mirror image) along an
  // axis.
  absl::Status AddSlice(int whole, int slice, int axis, bool reverse, bool store,
                        const LoopParts& parts);
  absl::Status BindCaptures(Frame& frame, const Node& node, size_t first_operand, Frame& body,
                            size_t first_input);
  void BindValue(Frame& frame, ValueId id, int buffer) {
    frame.buffers[static_cast<size_t>(id)] = {buffer};
  }
  int NewScalar(const std::string& name, DataType dtype);

  const Graph& graph_;
  const Target& target_;
  const CompileOptions& options_;
  Proposer& proposer_;
  WeightTable& weights_;
  const StepContext& context_;
  SymbolTable& symbols_;
  TypicalSizes typical_;
  Program program_;
  std::vector<KernelReport> reports_;
  std::vector<Block> blocks_;
  std::vector<int> storage_block_;        // depth at which a storage was made
  std::map<int, Place> parts_;            // storages that may lie in another
  std::map<std::string, int> constants_;  // weight key and shape -> buffer
  int node_ = -1;                         // report entry that steps belong to
  int nested_ = 0;                        // depth of bodies
};

}  // namespace quench::codegen
