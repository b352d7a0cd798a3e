#include "services/quantizer/split_tensors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "common/passes/passes.h"
#include "services/quantizer/parts.h"

namespace quench::quantizer {
namespace {

constexpr int64_t kVector = 8;  // channels of a part come in so many where there are enough

using Channels = std::vector<int64_t>;

// What lies between a convolution and those that read it: every value has the same channels along
// axis 1, and nobody else reads one.
struct Region {
  NodeId source = kNone;
  std::vector<NodeId> between;  // in topological order
  std::vector<NodeId> readers;
  std::vector<std::vector<double>> ranges;  // per point that will be quantized, per channel
};

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

// Cuts channels into parts, of sizes that are multiples of 8 where there are enough, so that they
// lose few bits.
class Cutter {
 public:
  explicit Cutter(const std::vector<std::vector<double>>& points) : points_(points) {
    std::vector<double> weights(points[0].size(), 0);
    for (const std::vector<double>& ranges : points) {
      for (size_t c = 0; c < ranges.size(); ++c)
        weights[c] += std::log(std::max(ranges[c], 1e-300));
    }
    order_.resize(weights.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) {
      return weights[static_cast<size_t>(a)] < weights[static_cast<size_t>(b)];
    });
  }
  int64_t count() const { return static_cast<int64_t>(order_.size()); }

  // Bits that the places [begin, end) of the order lose as one part, per channel of all and point.
  double Loss(int64_t begin, int64_t end) const {
    double loss = 0;
    for (const std::vector<double>& ranges : points_) {
      const auto range = [&](int64_t place) {
        return ranges[static_cast<size_t>(order_[static_cast<size_t>(place)])];
      };
      double largest = 0;
      for (int64_t i = begin; i < end; ++i) largest = std::max(largest, range(i));
      for (int64_t i = begin; i < end; ++i) {
        // A channel of zeros loses nothing, and none more than there are.
        if (range(i) > 0) loss += std::min(8.0, std::log2(largest / range(i)));
      }
    }
    return loss / static_cast<double>(order_.size() * points_.size());
  }

  // Ends of at most `parts` parts in the order: one cut after the other, each where it gains most of
  // some 64 places, as long as it gains `least`.
  std::vector<int64_t> Cut(int parts, double least) const {
    const int64_t unit = count() >= 2 * kVector ? kVector : std::min<int64_t>(4, count() / 2);
    std::vector<int64_t> ends = {count()};
    if (unit == 0) return ends;
    const int64_t step = (count() / (kPlaces * unit) + 1) * unit;
    while (static_cast<int>(ends.size()) < parts) {
      int64_t best = 0;
      double gain = least;
      int64_t begin = 0;
      for (const int64_t end : ends) {
        const double whole = Loss(begin, end);
        for (int64_t cut = (begin / step + 1) * step; cut < end && whole >= gain; cut += step) {
          const double gained = whole - Loss(begin, cut) - Loss(cut, end);
          if (gained >= gain) {
            gain = gained;
            best = cut;
          }
        }
        begin = end;
      }
      if (best == 0) break;
      ends.insert(std::lower_bound(ends.begin(), ends.end(), best), best);
    }
    return ends;
  }
  // Of a part, ascending.
  Channels ChannelsOf(int64_t begin, int64_t end) const {
    Channels channels(order_.begin() + begin, order_.begin() + end);
    std::sort(channels.begin(), channels.end());
    return channels;
  }

 private:
  static constexpr int64_t kPlaces = 64;

  const std::vector<std::vector<double>>& points_;
  std::vector<int64_t> order_;  // channels, by range
};

class Splitter {
 public:
  Splitter(Graph graph, const SplitOptions& options, const StepContext& context)
      : graph_(std::move(graph)),
        options_(options),
        context_(context),
        nodes_(static_cast<NodeId>(graph_.nodes.size())) {}

  absl::StatusOr<SplitModule> Run() {
    SplitModule result;
    FindUses();
    for (NodeId id = 0; id < nodes_; ++id) {
      QUENCH_RETURN_IF_ERROR(context_.Check());
      context_.Report({"split tensors", graph_.node(id).name, id, nodes_});
      const std::optional<Region> region = RegionOf(id);
      if (!region) continue;
      const Cutter cutter(region->ranges);
      const double before = cutter.Loss(0, cutter.count());
      if (before < options_.least_gain) continue;
      // Later cuts gain less; what gains next to nothing is not worth a convolution.
      const std::vector<int64_t> ends = cutter.Cut(options_.parts, options_.least_gain / 4);
      SplitLayer layer{graph_.node(id).name, {}, before, 0};
      std::vector<Channels> parts;
      int64_t begin = 0;
      for (const int64_t end : ends) {
        layer.bits_after += cutter.Loss(begin, end);
        parts.push_back(cutter.ChannelsOf(begin, end));
        layer.channels.push_back(end - begin);
        begin = end;
      }
      if (before - layer.bits_after < options_.least_gain) continue;
      Split(*region, parts);
      result.layers.push_back(std::move(layer));
    }
    graph_.Compact();
    QUENCH_RETURN_IF_ERROR(ops::InferGraph(graph_));
    if (!result.layers.empty()) graph_.metadata["is_split_tensors"] = "true";
    result.graph = std::move(graph_);
    return result;
  }

 private:
  void FindUses() {
    users_.resize(graph_.values.size());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const ValueId id : graph_.nodes[i].inputs) {
        if (id != kNone) users_[static_cast<size_t>(id)].insert(static_cast<NodeId>(i));
      }
    }
  }

  const Tensor* F32(const Node& node, size_t input) const {
    if (input >= node.inputs.size() || node.inputs[input] == kNone) return nullptr;
    const Tensor* tensor = passes::ConstantOf(graph_, node.inputs[input]);
    return tensor != nullptr && tensor->dtype() == DataType::kF32 ? tensor : nullptr;
  }
  // A convolution of f32 constants.
  const Tensor* KernelOf(const Node& node) const {
    const Tensor* kernel = node.op == "Conv" ? F32(node, 1) : nullptr;
    if (kernel == nullptr || kernel->rank() < 3 || kernel->size() == 0) return nullptr;
    const bool biased = node.inputs.size() > 2 && node.inputs[2] != kNone;
    return biased && F32(node, 2) == nullptr ? nullptr : kernel;
  }
  bool IsDense(NodeId id) const {
    const Node& node = graph_.node(id);
    return KernelOf(node) != nullptr && node.Int("group", 1) == 1;
  }
  bool IsDepthwise(const Node& node, int64_t channels) const {
    const Tensor* kernel = KernelOf(node);
    return kernel != nullptr && node.Int("group", 1) == channels && kernel->dims()[0] == channels &&
           kernel->dims()[1] == 1;
  }

  // Each channel of the output from the same channel of inputs within the region.
  bool IsChannelwise(const Node& node, const std::map<ValueId, size_t>& inside,
                     int64_t channels) const {
    if (node.outputs.size() != 1) return false;
    if (node.op == "Conv") return inside.contains(node.inputs[0]) && IsDepthwise(node, channels);
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

  std::optional<Region> RegionOf(NodeId source) {
    if (!IsDense(source) || rewritten_.contains(source)) return std::nullopt;
    Region region;
    region.source = source;
    const Tensor& kernel = *KernelOf(graph_.node(source));
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
        std::vector<double> ranges = RowRanges(*KernelOf(node));
        for (size_t c = 0; c < ranges.size(); ++c) ranges[c] *= region.ranges[point][c];
        point = region.ranges.size();
        region.ranges.push_back(std::move(ranges));
      }
      if (!enter(node.outputs[0], point)) return std::nullopt;
      region.between.push_back(id);
    }
    return region.readers.empty() ? std::nullopt : std::optional(std::move(region));
  }

  // A copy of `node` for one part, whose values are renamed by `to`.
  NodeId Copy(const Node& node, size_t part, const std::map<ValueId, ValueId>& to) {
    std::vector<ValueId> inputs = node.inputs;
    for (ValueId& id : inputs) {
      if (const auto found = to.find(id); found != to.end()) id = found->second;
    }
    const NodeId copy = graph_.AddNode(node.op, PartName(node.name, part), inputs,
                                       static_cast<int>(node.outputs.size()), node.attributes);
    graph_.node(copy).origin = node.origin;
    return copy;
  }
  void TakeInput(NodeId id, size_t input, int axis, const Channels& channels) {
    const Tensor* whole = F32(graph_.node(id), input);
    if (whole == nullptr) return;
    const std::string name = fmt::format("{}.{}", graph_.node(id).name, input == 1 ? "w" : "b");
    const ValueId taken = graph_.AddConstant(name, Take(*whole, axis, channels));
    graph_.node(id).inputs[input] = taken;
  }

  void Split(const Region& region, const std::vector<Channels>& parts) {
    std::map<NodeId, std::vector<ValueId>> sums;  // reader -> results of its parts
    for (size_t p = 0; p < parts.size(); ++p) {
      std::map<ValueId, ValueId> to;
      const Node source = graph_.node(region.source);
      const NodeId first = Copy(source, p, {});
      TakeInput(first, 1, 0, parts[p]);
      TakeInput(first, 2, 0, parts[p]);
      to[source.outputs[0]] = graph_.node(first).outputs[0];
      for (const NodeId id : region.between) {
        const Node node = graph_.node(id);
        const NodeId copy = Copy(node, p, to);
        if (node.op == "Conv") {
          TakeInput(copy, 1, 0, parts[p]);
          TakeInput(copy, 2, 0, parts[p]);
          graph_.node(copy).attributes["group"] = static_cast<int64_t>(parts[p].size());
        }
        to[node.outputs[0]] = graph_.node(copy).outputs[0];
      }
      for (const NodeId id : region.readers) {
        Node node = graph_.node(id);
        if (p > 0) node.inputs.resize(2);  // the bias is added once
        const NodeId copy = Copy(node, p, to);
        TakeInput(copy, 1, 1, parts[p]);
        sums[id].push_back(graph_.node(copy).outputs[0]);
      }
    }
    for (const auto& [id, results] : sums) AddResults(id, results);
    rewritten_.insert(region.source);
    rewritten_.insert(region.readers.begin(), region.readers.end());
  }

  // The sum takes the place of the reader's output, and its name.
  void AddResults(NodeId reader, const std::vector<ValueId>& results) {
    const ValueId out = graph_.node(reader).outputs[0];
    ValueId sum = results[0];
    NodeId last = kNone;
    for (size_t p = 1; p < results.size(); ++p) {
      last = graph_.AddNode("Add", graph_.node(reader).name + ".parts", {sum, results[p]});
      sum = graph_.node(last).outputs[0];
    }
    const std::string spare = graph_.value(out).name + ".whole";
    const ValueId unused = graph_.AddValue(spare, graph_.value(out).type);
    graph_.node(reader).outputs[0] = unused;  // and Compact drops the reader
    graph_.value(unused).producer = reader;
    graph_.node(last).outputs[0] = out;
    graph_.value(out).producer = last;
  }

  Graph graph_;
  const SplitOptions& options_;
  const StepContext& context_;
  const NodeId nodes_;                   // that there were at first, in topological order
  std::vector<std::set<NodeId>> users_;  // per value that there was at first
  std::set<NodeId> rewritten_;
};

}  // namespace

absl::StatusOr<SplitModule> SplitTensors(Graph graph, const SplitOptions& options,
                                         const StepContext& context) {
  if (graph.stage != Stage::kCanonical) {
    return InvalidArgument("the module is at stage `{}`, tensors are split at `canonical`",
                           StageName(graph.stage));
  }
  if (const auto flag = graph.metadata.find("is_split_tensors");
      flag != graph.metadata.end() && flag->second == "true") {
    return absl::FailedPreconditionError("the tensors of this module are split already");
  }
  StatusCollector problems;
  if (options.parts < 2 || options.parts > 8)
    problems.Add(InvalidArgument("{} parts, must be 2 to 8", options.parts));
  if (!(options.least_gain >= 0))
    problems.Add(InvalidArgument("a least gain of {} bits, must be 0 or more", options.least_gain));
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  QUENCH_RETURN_IF_ERROR(ops::InferGraph(graph));  // a module may come from anywhere
  graph.Compact();                                 // in topological order
  return Splitter(std::move(graph), options, context).Run();
}

}  // namespace quench::quantizer
