// Operations on a kernel's results before they are stored: the pointwise tail of a q.fused group.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "services/codegen/forms/vector_builder.h"
#include "services/codegen/kernels/kernel.h"

namespace quench::codegen {

// Operands of the pointwise steps beside the results of earlier steps.
struct EpilogueOperand {
  enum Kind : uint8_t {
    kTensor,     // node input `input`: shape and layout of the output
    kChannels,   // node input `input`: a constant along the channel axis; packed as a vector
    kScalar,     // node input `input`: a constant of one element; packed as one vector of it
    kImmediate,  // `value`, a constant of the body; or a byte, node input `input`
    kNumber,     // node input `input`: one element that is computed while running
    kTaken,      // node input `input`: a constant in the kernel's own packs; no step uses it
  };
  Kind kind = kTensor;
  int input = -1;
  double value = 0;
  DataType type = DataType::kF32;  // in memory
};

struct EpilogueStep {
  loops::ScalarFunction function;
  std::vector<int> args;  // >= 0: operand; -1 - k: value k, where 0 is the root's result and k the
                          // result of step k - 1
  DataType type =
      DataType::kF32;  // of the graph's value; registers hold f32 where it is f16 or bf16
};

struct Epilogue {
  std::vector<EpilogueOperand> operands;
  std::vector<EpilogueStep> steps;  // the last one gives the output
  bool empty() const { return steps.empty(); }
};
// Whether it needs many registers of its own, for exponentials and the like.
bool IsLong(const Epilogue& epilogue);

// A node as kernels see it: its compute node and the pointwise tail.
struct Group {
  const Graph* graph =
      nullptr;  // the graph that holds `root`: the body of a q.fused node, else the node's own
  const Node* root = nullptr;
  std::vector<int> inputs;  // per input of the root: index into the node's inputs; -1 when omitted
  DataType root_type = DataType::kUndefined;  // of the root's output
  Epilogue epilogue;

  const Type& InputType(int i) const {
    return graph->value(root->inputs[static_cast<size_t>(i)]).type;
  }
  const Type& OutputType() const { return graph->value(root->outputs[0]).type; }  // the root's
  DataType ResultType() const { return epilogue.empty() ? root_type : epilogue.steps.back().type; }
  // For code, which outlives the graph.
  Group Detached() const {
    Group copy = *this;
    copy.graph = nullptr;
    copy.root = nullptr;
    return copy;
  }
  bool HasInput(int i) const {
    return i < static_cast<int>(inputs.size()) && inputs[static_cast<size_t>(i)] >= 0;
  }
};

// Reads an ordinary node or a q.fused one whose first node is the compute node, whose other nodes
// are pointwise over the output's shape, on f32, f16, bf16, i32 and bytes, and that has one output.
// f16 and bf16 are storage types: registers hold f32, which is rounded once, when it is stored.
// `channel_axis` < 0 counts from the end. Nothing when the node has another form.
std::optional<Group> ReadGroup(const KernelRequest& request, int channel_axis);

// The constant behind the root's input i in the outer graph, or null.
const Constant* ConstantInput(const KernelRequest& request, const Group& group, int i);

// Appends to the candidate one `channels` pack per constant operand of the epilogue (per-channel
// ones padded to `padded` elements) and declares those inputs packed. Returns the pack index per
// operand
// (-1 for the others).
std::vector<int> PackEpilogue(const KernelRequest& request, const Group& group, int64_t channels,
                              int64_t padded, Candidate& candidate);

// A candidate over the group's tensors in one layout, without packs, code and cost.
Candidate CandidateIn(const Layout& layout, const KernelRequest& request, const Group& group);

// Index of buffers in the kernel ABI for a candidate of a node (kernel.h).
class BufferMap {
 public:
  // Call it once the candidate has its packs and its preparation.
  BufferMap(const Node& node, const Candidate& candidate);
  int Input(int i) const { return inputs_[static_cast<size_t>(i)]; }
  int Workspace() const { return workspace_; }
  int Output() const { return first_output_; }
  int Pack(int i) const { return first_pack_ + i; }
  int Scratch() const { return scratch_; }

 private:
  std::vector<int> inputs_;
  int workspace_ = 0;
  int first_output_ = 0;
  int first_pack_ = 0;
  int scratch_ = 0;
};

// Places of elements in tensors of one shape and layout: byte offsets for elements of each size.
struct Place {
  Int words, halves, bytes;
  static Place Of(Int elements) { return {elements * 4, elements * 2, elements}; }
  Place operator+(Int elements) const {
    return {words + elements * 4, halves + elements * 2, bytes + elements};
  }
  Int At(DataType type) const {
    return DataTypeBits(type) == 8 ? bytes : DataTypeBits(type) == 16 ? halves : words;
  }
};

// The type that registers hold for values of this type.
DataType RegisterTypeOf(DataType type);

// The epilogue of one vector. `load` gives operands that are tensors, or constants in packs.
absl::StatusOr<Vec> EmitEpilogue(VectorBuilder& b, const Epilogue& epilogue,
                                 const BufferMap& buffers, Vec value,
                                 const std::function<Vec(int operand)>& load);

// A result in the form in which it is stored: rounded if memory holds f16 or bf16.
Vec AsStored(VectorBuilder& b, DataType type, Vec value);

// An operand of the epilogue for one vector at `place` of the output; `channel` is the byte offset
// of its first channel in a per-channel pack, `pack` of PackEpilogue's result. `aligned`: whole vectors
// are, on a GPU.
Vec LoadOperand(VectorBuilder& b, const EpilogueOperand& operand, const BufferMap& buffers,
                int pack, const Place& place, Int channel, int lanes, bool aligned = false);

// Stores results a vector at a time, in one layout blocked by channels.
class ResultWriter {
 public:
  // `packs` are PackEpilogue's result. All are borrowed. `aligned`: every place is aligned to a whole vector, on a GPU.
  ResultWriter(VectorBuilder& b, const Group& group, const BufferMap& buffers,
               const std::vector<int>& packs, int lanes, bool aligned = false)
      : b_(b), group_(group), buffers_(buffers), packs_(packs), lanes_(lanes), aligned_(aligned) {}
  // Applies the epilogue to `value` and stores the result at `place`; `channel` as in LoadOperand.
  // Only the first `count` lanes have a channel, the others stay 0; invalid: all have one.
  void Store(const Place& place, Int channel, Vec value, Int count);
  // The first error.
  const absl::Status& status() const { return status_; }

 private:
  VectorBuilder& b_;
  const Group& group_;
  const BufferMap& buffers_;
  const std::vector<int>& packs_;
  int lanes_;
  bool aligned_;
  absl::Status status_;
};

// The tensor operand whose memory the output may take: of the same element size, and read only by
// the epilogue. -1: none.
int InPlaceOperand(const Group& group);

}  // namespace quench::codegen
