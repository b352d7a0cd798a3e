#include "services/quantizer/channel_regions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/ops/op.h"
#include "common/passes/passes.h"
#include "services/quantizer/parts.h"

namespace quench::quantizer {
namespace {

// max |w| of each row.
std::vector<double> RowRanges(const Tensor& kernel) {
  const int64_t rows = kernel.dims()[0], run = kernel.size() / rows;
  std::vector<double> ranges;
  for (int64_t row = 0; row < rows; ++row) {
    double range = 0;
    for (const float w :
         kernel.as<float>().subspan(static_cast<size_t>(row * run), static_cast<size_t>(run)))
      range = std::max(range, std::abs(double{w}));
    ranges.push_back(range);
  }
  return ranges;
}

bool IsDepthwise(const Graph& graph, const Node& node, int64_t channels) {
  const Tensor* kernel = KernelOf(graph, node);
  return kernel != nullptr && node.Int("group", 1) == channels && kernel->dims()[0] == channels &&
         kernel->dims()[1] == 1;
}

}  // namespace

// Rows (axis 0) or columns (axis 1) of a kernel.
Tensor Take(const Tensor& tensor, int axis, const Channels& channels) {
  std::vector<int64_t> dims = tensor.dims();
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= dims[static_cast<size_t>(i)];
  for (size_t i = static_cast<size_t>(axis) + 1; i < dims.size(); ++i) inner *= dims[i];
  const int64_t all = dims[static_cast<size_t>(axis)];
  dims[static_cast<size_t>(axis)] = static_cast<int64_t>(channels.size());
  const std::span<const float> from = tensor.as<float>();
  std::vector<float> taken;
  for (int64_t o = 0; o < outer; ++o) {
    for (const int64_t channel : channels) {
      const auto first = from.begin() + (o * all + channel) * inner;
      taken.insert(taken.end(), first, first + inner);
    }
  }
  return Tensor::Of(DataType::kF32, dims, taken);
}

const Tensor* F32Constant(const Graph& graph, const Node& node, size_t input) {
  if (input >= node.inputs.size() || node.inputs[input] == kNone) return nullptr;
  const Tensor* tensor = passes::ConstantOf(graph, node.inputs[input]);
  return tensor != nullptr && tensor->dtype() == DataType::kF32 ? tensor : nullptr;
}

const Tensor* KernelOf(const Graph& graph, const Node& node) {
  const Tensor* kernel = node.op == "Conv" ? F32Constant(graph, node, 1) : nullptr;
  if (kernel == nullptr || kernel->rank() < 3 || kernel->size() == 0) return nullptr;
  const bool biased = node.inputs.size() > 2 && node.inputs[2] != kNone;
  return biased && F32Constant(graph, node, 2) == nullptr ? nullptr : kernel;
}

void TakeInput(Graph& graph, NodeId id, size_t input, int axis, const Channels& channels) {
  const Tensor* whole = F32Constant(graph, graph.node(id), input);
  if (whole == nullptr) return;
  const std::string name = fmt::format("{}.{}", graph.node(id).name, input == 1 ? "w" : "b");
  const ValueId taken = graph.AddConstant(name, Take(*whole, axis, channels));
  graph.node(id).inputs[input] = taken;
}

RegionFinder::RegionFinder(const Graph& graph) : graph_(graph) {
  users_.resize(graph_.values.size());
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    for (const ValueId id : graph_.nodes[i].inputs) {
      if (id != kNone) users_[static_cast<size_t>(id)].insert(static_cast<NodeId>(i));
    }
  }
}

void RegionFinder::SetRewritten(const Region& region) {
  rewritten_.insert(region.source);
  rewritten_.insert(region.readers.begin(), region.readers.end());
}

bool RegionFinder::IsDense(NodeId id) const {
  const Node& node = graph_.node(id);
  return KernelOf(graph_, node) != nullptr && node.Int("group", 1) == 1;
}
// Each channel of the output from the same channel of inputs within the region.
bool RegionFinder::IsChannelwise(const Node& node, const std::map<ValueId, size_t>& inside,
                                 int64_t channels) const {
  if (node.outputs.size() != 1) return false;
  if (node.op == "Conv")
    return inside.contains(node.inputs[0]) && IsDepthwise(graph_, node, channels);
  if (IsAmong(node.op, {"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"}))
    return true;
  const ops::OpDef* op = ops::FindOp(node.op);
  if (op == nullptr || op->kind != ops::OpKind::kPointwise) return false;
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
    if (id == kNone || inside.contains(id)) return true;
    const Tensor* constant = passes::ConstantOf(graph_, id);
    return constant != nullptr && constant->size() == 1 && constant->rank() <= 1;
  });
}

std::optional<Region> RegionFinder::RegionOf(NodeId source) const {
  if (!IsDense(source) || rewritten_.contains(source)) return std::nullopt;
  Region region;
  region.source = source;
  const Tensor& kernel = *KernelOf(graph_, graph_.node(source));
  const int64_t channels = kernel.dims()[0];
  region.ranges = {RowRanges(kernel)};
  std::map<ValueId, size_t> inside;  // value -> its point
  std::set<NodeId> next;             // readers of those, in topological order
  const auto enter = [&](ValueId id, size_t point) {
    const std::set<NodeId>& users = users_[static_cast<size_t>(id)];
    inside[id] = point;
    next.insert(users.begin(), users.end());
    return !graph_.IsOutput(id) && !users.empty();
  };
  if (!enter(graph_.node(source).outputs[0], 0)) return std::nullopt;
  while (!next.empty()) {
    const NodeId id = next.extract(next.begin()).value();
    if (rewritten_.contains(id)) return std::nullopt;
    if (IsDense(id)) {
      region.readers.push_back(id);
      continue;
    }
    const Node& node = graph_.node(id);
    if (!IsChannelwise(node, inside, channels)) return std::nullopt;
    const auto first = std::find_if(node.inputs.begin(), node.inputs.end(),
                                    [&](ValueId input) { return inside.contains(input); });
    size_t point = inside.at(*first);
    if (node.op == "Conv") {
      std::vector<double> ranges = RowRanges(*KernelOf(graph_, node));
      for (size_t c = 0; c < ranges.size(); ++c) ranges[c] *= region.ranges[point][c];
      point = region.ranges.size();
      region.ranges.push_back(std::move(ranges));
    }
    if (!enter(node.outputs[0], point)) return std::nullopt;
    region.between.push_back(id);
  }
  return region.readers.empty() ? std::nullopt : std::optional(std::move(region));
}

}  // namespace quench::quantizer
