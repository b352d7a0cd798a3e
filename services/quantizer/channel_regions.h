// Convolutions, and the nodes between them and their readers: regions where channels can be split,
// scaled or reordered without changing what a model computes.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "common/ir/graph.h"

namespace quench::quantizer {

using Channels = std::vector<int64_t>;

// The nodes between a convolution of group 1 and the convolutions of group 1 that read it: every
// value has the same channels along axis 1 and no other reader.
struct Region {
  NodeId source = kNone;
  std::vector<NodeId> between;  // in topological order
  std::vector<NodeId> readers;
  std::vector<std::vector<double>> ranges;  // per point that will be quantized, per channel
};

// Finds the regions of a graph in topological order, which are then rewritten one by one.
class RegionFinder {
 public:
  explicit RegionFinder(const Graph& graph);

  // The region whose source the node is; none if it is not such a convolution, or a part of the
  // region was rewritten.
  std::optional<Region> RegionOf(NodeId source) const;
  // Removes its source and readers from all regions.
  void SetRewritten(const Region& region);

 private:
  bool IsDense(NodeId id) const;
  bool IsChannelwise(const Node& node, const std::map<ValueId, size_t>& inside,
                     int64_t channels) const;

  const Graph& graph_;
  std::vector<std::set<NodeId>> users_;  // per value that there was at first
  std::set<NodeId> rewritten_;
};

// Kernel of a convolution whose parameters are f32 constants, else null.
const Tensor* KernelOf(const Graph& graph, const Node& node);
// An f32 constant that a node reads, else null.
const Tensor* F32Constant(const Graph& graph, const Node& node, size_t input);

// Rows (axis 0) or columns (axis 1) of a tensor, in this order; one may be taken more than once.
Tensor Take(const Tensor& tensor, int axis, const Channels& channels);
// The same in place of an input that is an f32 constant; does nothing if it is not one.
void TakeInput(Graph& graph, NodeId id, size_t input, int axis, const Channels& channels);

}  // namespace quench::quantizer
