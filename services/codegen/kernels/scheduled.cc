// The scheduled nest: a node's loops, vectorised along the unit-stride axis and split over threads.
// Row-major, and channel-blocked for 4-D activations so that it fits between convolutions.
#include <algorithm>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "common/ops/pointwise.h"
#include "services/codegen/kernels/blocks.h"
#include "services/codegen/kernels/catalogue.h"
#include "services/codegen/kernels/nests.h"

namespace quench::codegen {
namespace {

bool Pointwise(const KernelRequest& request) {
  return request.node.op == "q.fused" ||  // the groups that lower are pointwise
         ops::IsPointwise(request.node);
}

// An operand of a node that works on each element with the result's dims and element size: its memory can become the
// result's.
int InPlaceInput(const KernelRequest& request) {
  if (UpdatesFirstInput(request)) return 0;
  const std::vector<ValueId>& inputs = request.node.inputs;
  const bool looks_up =  // in memory that is not the result's
      request.node.op == "q.table" && request.graph.value(inputs[1]).constant != nullptr;
  if (!Pointwise(request) && !looks_up) return -1;
  const Type& result = request.graph.value(request.node.outputs[0]).type;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == quench::kNone) continue;
    const Value& value = request.graph.value(inputs[i]);
    if (value.constant == nullptr && value.type.dims == result.dims &&
        DataTypeBits(value.type.dtype) == DataTypeBits(result.dtype)) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

Candidate RowMajorCandidate(const KernelRequest& request) {
  Candidate candidate;
  candidate.inputs.resize(request.node.inputs.size());
  candidate.outputs.resize(request.node.outputs.size());
  candidate.packed.resize(request.node.inputs.size(), false);
  candidate.in_place = InPlaceInput(request);
  candidate.cost = NestCost(request).vectorised;
  candidate.reason = request.target.gpu ? "nest, a thread for each result" : "vectorised nest";
  candidate.slow = WhyNestIsSlow(request.node);
  return candidate;
}

// Operators that keep the channel axis where its size stays: their nests work on blocks of channels as
// they are.
bool KeepsChannels(const Node& node) {
  static constexpr std::string_view kOps[] = {"MaxPool",
                                              "AveragePool",
                                              "GlobalAveragePool",
                                              "GlobalMaxPool",
                                              "BatchNormalization",
                                              "q.average_pool",
                                              "q.table",
                                              "Resize",
                                              "Pad",
                                              "Slice",
                                              "InstanceNormalization",
                                              "ReduceMean",
                                              "ReduceMax",
                                              "ReduceMin",
                                              "ReduceSum",
                                              "Concat"};
  return std::find(std::begin(kOps), std::end(kOps), node.op) != std::end(kOps);
}

// A convolution with a filter of its own for each channel.
bool IsDepthwise(const KernelRequest& request) {
  const Node& node = request.node;
  if (node.op != "Conv" && node.op != "ConvInteger") return false;
  const Type& weight = request.graph.value(node.inputs[1]).type;
  const Type& result = request.graph.value(node.outputs[0]).type;
  return weight.ranked && weight.rank() == 4 && result.rank() == 4 && weight.dims[1].is(1) &&
         result.dims[1].is_static() && result.dims[1].value() == node.Int("group", 1);
}

// Channels that fill no vector are not worth a block.
bool Blockable(const Target& target, const Type& type) {
  const bool fits = type.dtype == DataType::kF32 || IsHalf(type.dtype) ||
                    type.dtype == DataType::kI8 || type.dtype == DataType::kU8;
  return type.ranked && type.dims.size() == 4 && fits && type.dims[1].is_static() &&
         type.dims[1].value() >= target.f32_lanes();
}

// Layouts of activations that keep neighbouring channels together: blocks, or, on GPUs, all of them.
std::vector<Layout> ChannelLayouts(const Target& target, DataType type) {
  if (target.gpu) return {ChannelsLast()};
  std::vector<Layout> layouts;
  for (const int64_t block : ActivationBlocks(target, type))
    layouts.push_back(BlockedLayout(block));
  return layouts;
}

void ProposeInBlocks(const Layout& blocked, const KernelRequest& request,
                     std::vector<Candidate>& candidates) {
  const Node& node = request.node;
  const Type& result = request.graph.value(node.outputs[0]).type;
  Candidate candidate = RowMajorCandidate(request);
  candidate.outputs[0] = blocked;
  bool any = false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == quench::kNone) continue;
    const Value& value = request.graph.value(node.inputs[i]);
    if (!Blockable(request.target, value.type) || value.type.dims[1] != result.dims[1]) continue;
    candidate.inputs[i] = blocked;
    any = true;
  }
  if (!any || candidate.inputs[0].row_major()) return;
  if (candidate.in_place >= 0 &&
      candidate.inputs[static_cast<size_t>(candidate.in_place)].row_major())
    candidate.in_place = -1;
  candidate.reason = request.target.gpu ? "nest over channels that lie together"
                                        : "vectorised nest over blocks of channels";
  candidates.push_back(std::move(candidate));
}

void ProposeBlocked(const KernelRequest& request, std::vector<Candidate>& candidates) {
  const Node& node = request.node;
  if (node.outputs.size() != 1) return;  // else the first may be absent
  const Type& result = request.graph.value(node.outputs[0]).type;
  const bool keeps = Pointwise(request) || KeepsChannels(node) ||
                     (request.target.gpu && IsDepthwise(request));  // CPUs have a kernel for it
  if (!Blockable(request.target, result) || !keeps) return;
  for (const Layout& layout : ChannelLayouts(request.target, result.dtype))
    ProposeInBlocks(layout, request, candidates);
}

// Parts that begin with a block lie in whole blocks of the tensor they are parts of.
bool BeginWithBlocks(const KernelRequest& request, const std::vector<ValueId>& parts,
                     int64_t block) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == quench::kNone) return false;
    const Value& value = request.graph.value(parts[i]);
    if (value.constant != nullptr || !Blockable(request.target, value.type)) return false;
    if (i + 1 < parts.size() && value.type.dims[1].value() % block != 0) return false;
  }
  return true;
}

void MoveBlocks(const Layout& blocked, const KernelRequest& request,
                std::vector<Candidate>& candidates) {
  const bool joins = request.node.op == "Concat";
  Candidate candidate = RowMajorCandidate(request);
  if (joins) {
    std::ranges::fill(candidate.inputs, blocked);
  } else {
    candidate.inputs[0] = blocked;
  }
  std::ranges::fill(candidate.outputs, blocked);
  candidate.reason = joins ? "joins blocks of channels" : "cuts blocks of channels";
  candidates.push_back(std::move(candidate));
}

// Concat and Split of channels over blocks: whole blocks are copied.
void ProposeMovedBlocks(const KernelRequest& request, std::vector<Candidate>& candidates) {
  const Node& node = request.node;
  if (node.op != "Concat" && node.op != "Split") return;
  const bool joins = node.op == "Concat";
  const ValueId whole = joins ? node.outputs[0] : node.inputs[0];
  const Type& type = request.graph.value(whole).type;
  const int64_t axis = node.Int("axis", 0);
  if ((axis != 1 && axis != 1 - type.rank()) || !Blockable(request.target, type)) return;
  for (const Layout& layout : ChannelLayouts(request.target, type.dtype)) {
    if (!BeginWithBlocks(request, joins ? node.inputs : node.outputs, layout.block)) continue;
    MoveBlocks(layout, request, candidates);
  }
}

void ProposeScheduled(const KernelRequest& request, std::vector<Candidate>& candidates) {
  if (!LowersToNest(request)) return;
  candidates.push_back(RowMajorCandidate(request));
  if (request.options.opt_level < 3) return;
  ProposeBlocked(request, candidates);
  ProposeMovedBlocks(request, candidates);
}

absl::StatusOr<Nest> ScheduledNest(const KernelRequest& request, const Candidate& candidate) {
  QUENCH_ASSIGN_OR_RETURN(loops::Function nest, LowerToNest(request));
  return Nest{std::move(nest), NestLayouts(request, candidate), /*vectorise=*/true};
}

}  // namespace

const Kernel& ScheduledKernel() {
  static const Kernel kernel = {
      .name = "scheduled", .gpu = true, .propose = ProposeScheduled, .nest = ScheduledNest};
  return kernel;
}

}  // namespace quench::codegen
