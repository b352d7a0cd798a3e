// Kernels: the candidates that codegen chooses from, and the plans of chosen ones.
//
// Each kernel looks at a node (an ordinary one or a q.fused group), and proposes candidates or
// declines. The joint choice of kernel and layout takes the cheapest combination, transforms
// included. LLVM-free: machine code of plans is emitted in emit/.
#pragma once

#include <absl/status/statusor.h>

#include <any>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <typeindex>
#include <vector>

#include "common/ir/graph.h"
#include "common/loops/loops.h"
#include "services/codegen/targets/target.h"

namespace quench::codegen {

// The layout of a tensor in memory. Row-major when everything is at its default. With a blocked axis,
// that axis is split into ceil(n / block) outer parts at its place and `block` innermost lanes:
// block = 8 on axis 1 of NCHW is NCHW8c. Padding lanes hold 0 after every store.
struct Layout {
  int blocked_axis = -1;
  int64_t block = 1;
  std::vector<int> order;  // axes outermost to innermost; empty: as declared
  bool row_major() const;
  friend bool operator==(const Layout&, const Layout&) = default;
  std::string ToString() const;  // "row-major", "NCHW8c"
  // The inverse of ToString; nothing for any other text. Axes 0 to 3 in order stand for those of any rank.
  static std::optional<Layout> Parse(std::string_view text);
};

// A constant as a kernel wants it. Packing is plain C++ over the mapped source bytes, straight into
// the weight section, keyed by (digests of constants, transform, params), so equal requests of
// kernels and variants share bytes.
struct PackSpec {
  std::string transform;  // name in packs/packs.def
  std::map<std::string, int64_t> params;
  std::vector<int> inputs;       // of the node: constants of its graph
  std::string ToString() const;  // "conv_panels lanes=8 vectors=2", without inputs
};

class VectorBuilder;  // explicit vector code without LLVM headers: kernels/vector_builder.h

using DimMap = std::function<Dim(Dim)>;

// The plan of a hand-written kernel, and how it becomes code: it owns everything that the code
// depends on, so that it can be emitted when the graph is gone.
class VectorCode {
 public:
  virtual ~VectorCode() = default;
  virtual absl::Status Emit(VectorBuilder& b) const = 0;
  // The plan as plan_text.h has it.
  virtual std::string Text(const SymbolTable& symbols) const = 0;
  // Whether the code needs Target::matrices.
  virtual bool UsesMatrices() const { return false; }
};

// The plan of a candidate: its dims are those of a copy of the graph's table until it is chosen.
class CandidateCode : public VectorCode {
 public:
  // The same with other dims: those of another symbol table.
  virtual std::shared_ptr<const CandidateCode> WithDims(const DimMap& map) const = 0;
};

struct Kernel;

// Data that all tasks of a kernel read, made by separate tasks before they run, in a workspace.
struct Preparation {
  std::shared_ptr<const CandidateCode> code;
  Dim tasks = 1;
  Dim workspace_bytes = 0;
  double cost = 0;  // of the candidate's
};

// Says that a kernel's tasks go through the rows of images in order, and the images of a batch one
// after the other: some of its tasks can run when only some rows of the input are there.
struct RowOrder {
  int input = -1;  // of the node
  // For each task: rows of the input that must exist before it runs, and rows of the output that
  // exist once it and all tasks before it have run.
  std::vector<int64_t> needs, makes;
};

struct Candidate {
  const Kernel* kernel = nullptr;
  double cost = 0;             // predicted microseconds on one core of the target
  std::vector<Layout> inputs;  // one per node input; ignored for omitted and packed ones
  std::vector<Layout> outputs;
  std::vector<bool> packed;  // per node input: consumed through `packs`, not as a buffer
  std::vector<PackSpec> packs;
  // Hand-written kernels only; nests get a plan once they are chosen.
  std::shared_ptr<const CandidateCode> code = nullptr;
  std::optional<Preparation> preparation = std::nullopt;
  bool on_host = false;   // of a program with device code: it is for the host all the same
  int block_threads = 0;  // as KernelPlan's
  int64_t shared_bytes = 0;
  // Each range of tasks begins with work that is cheaper to repeat than to share: threads take one
  // range each.
  bool one_range = false;
  std::optional<RowOrder> rows = std::nullopt;
  Dim tasks = 1;
  Dim scratch_bytes = 0;  // per concurrent task
  // Index of the node's input whose memory output 0 may take when that input dies here: every
  // element of it is read before the same element of the output is written, and dims, element size
  // and layout agree. -1: none.
  int in_place = -1;
  // Bytes of `packs` beyond those of the weights themselves, which the library's size may forbid.
  int64_t extra_bytes = 0;
  double performed = 1;  // share of the node's multiplications, by its definition, really done
  std::string reason;    // for the compile report
  std::string slow;      // why integers make this no faster than floats; empty if they do
};

struct KernelOptions {
  int opt_level = 3;
  bool winograd = true;   // whether Winograd's rounding, coarser than a direct one, is accepted
  bool half_sums = true;  // whether short sums in f16 are accepted, if the target has them
  bool tf32 = false;      // whether f32 may be rounded to TF32 before it is multiplied
};

// Views of one node, by type: the first kernel that asks reads it.
class NodeViews {
 public:
  template <typename View, typename Read>
  const View& Of(const Read& read) {
    std::any& view = views_[std::type_index(typeid(View))];
    if (!view.has_value()) view = read();
    return *std::any_cast<View>(&view);
  }

 private:
  std::map<std::type_index, std::any> views_;
};

struct KernelRequest {
  const Graph& graph;
  const Node& node;
  const Target& target;
  KernelOptions options;
  // The graph's symbols, and the sizes that plans need beside them. While candidates are proposed, a
  // copy of the graph's table: those that are not chosen leave nothing in it.
  SymbolTable& symbols;
  mutable NodeViews views = {};
};

// Machine code of one kernel is a function
//   int32_t kernel(void* const* buffers, int64_t* slots, int64_t begin, int64_t end)
// over the tasks [begin, end) of `tasks`; buffers are the node's present, unpacked inputs in order,
// then the workspace that a preparation has filled, then present outputs, then packs, then scratch when
// scratch_bytes is not 0. A preparation has the inputs and the workspace. Returns 0, or 1 + the index of
// the failed check in `messages`.
//  * Any split of [0, tasks) into ranges, run in any order and at once, gives the same result;
//  begin == end does nothing.
//  * Buffers are aligned to 64 bytes, except graph inputs and outputs: to their element. Emit
//  element alignment.
//  * An output may be the very buffer of the candidate's in_place input: assume no noalias between
//  them.
//  * `slots` (index = symbol id) is read only, except by sizes functions (kSetSlot). A sizes
//  function has inputs only and
//    tasks = 1. A function may also have no buffers at all (the emitted plan is one).
//  * Scratch: loops scratch of both scopes goes in the one scratch buffer; a function with
//  kFunction scratch that is shared
//    by iterations of its parallel loop has tasks = 1. Its contents are undefined on entry.
struct Schedule;  // schedule/schedule.h

// A kernel before it is machine code: loops that are scheduled, or hand-written code.
struct KernelPlan {
  std::string name;       // for symbols and listings
  Dim tasks = 1;          // 1: not parallel
  Dim scratch_bytes = 0;  // per concurrent task, a multiple of 64
  // Whether a multiplication may be fused with an addition, as not every CPU does.
  bool fuses = true;
  // On a GPU: threads of a block that do a task together, and memory that they share. 0: each thread does tasks by
  // itself.
  int block_threads = 0;
  int64_t shared_bytes = 0;
  // One of the two; neither: nothing is to be done.
  std::shared_ptr<const Schedule> nest = nullptr;
  std::shared_ptr<const VectorCode> code = nullptr;
  bool empty() const { return nest == nullptr && code == nullptr; }
};

// Loops, and options for planning them.
struct Nest {
  loops::Function function;
  std::vector<Layout> layouts;  // of inputs, then outputs; missing ones are row-major
  // False: the order of all arithmetic as it is written. True: tiles, lanes along the unit-stride
  // parallel loop, and float reductions split over lanes.
  bool vectorise = false;
};

struct Kernel {
  std::string name;
  bool cpu = true, gpu = false;  // whether it has code for a target of each kind
  // Appends candidates for the node; appending none declines.
  void (*propose)(const KernelRequest&, std::vector<Candidate>&) = nullptr;
  // The loops of a candidate without code.
  absl::StatusOr<Nest> (*nest)(const KernelRequest&, const Candidate&) = nullptr;
  // The text of a plan as it is read, by a kernel whose candidates have code: VectorCode::Text gives
  // it unchanged. INVALID_ARGUMENT for the text of no plan.
  absl::StatusOr<std::string> (*reread)(const std::string& text, SymbolTable& symbols) = nullptr;
};

// Whether a kernel for this node may fuse multiply-adds: kernels of bytes give the same bits on
// every CPU.
bool MayFuse(const KernelRequest& request);

// Appends the kernel's candidates for the node.
void Propose(const Kernel& kernel, const KernelRequest& request,
             std::vector<Candidate>& candidates);

// kernels.def in order of preference; the reference nest is last and accepts every node that
// lowers.
std::span<const Kernel* const> AllKernels();

}  // namespace quench::codegen
