#include "services/quantizer/split_tensors.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "common/base/status.h"
#include "common/ir/metadata.h"
#include "common/ops/op.h"
#include "services/quantizer/channel_regions.h"
#include "services/quantizer/parts.h"

namespace quench::quantizer {
namespace {

constexpr int64_t kVector = 8;  // channels of a part come in so many where there are enough

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
  // Channels of a part, ascending.
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
        regions_(graph_),
        nodes_(static_cast<NodeId>(graph_.nodes.size())) {}

  absl::StatusOr<SplitModule> Run() {
    SplitModule result;
    for (NodeId id = 0; id < nodes_; ++id) {
      QUENCH_RETURN_IF_ERROR(context_.Check());
      context_.Report({"split tensors", graph_.node(id).name, id, nodes_});
      const std::optional<Region> region = regions_.RegionOf(id);
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
    if (!result.layers.empty()) graph_.metadata[kSplitTensorsKey] = "true";
    result.graph = std::move(graph_);
    return result;
  }

 private:
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
  void Split(const Region& region, const std::vector<Channels>& parts) {
    std::map<NodeId, std::vector<ValueId>> sums;  // reader -> results of its parts
    for (size_t p = 0; p < parts.size(); ++p) {
      std::map<ValueId, ValueId> to;
      const Node source = graph_.node(region.source);
      const NodeId first = Copy(source, p, {});
      TakeInput(graph_, first, 1, 0, parts[p]);
      TakeInput(graph_, first, 2, 0, parts[p]);
      to[source.outputs[0]] = graph_.node(first).outputs[0];
      for (const NodeId id : region.between) {
        const Node node = graph_.node(id);
        const NodeId copy = Copy(node, p, to);
        if (node.op == "Conv") {
          TakeInput(graph_, copy, 1, 0, parts[p]);
          TakeInput(graph_, copy, 2, 0, parts[p]);
          graph_.node(copy).attributes["group"] = static_cast<int64_t>(parts[p].size());
        }
        to[node.outputs[0]] = graph_.node(copy).outputs[0];
      }
      for (const NodeId id : region.readers) {
        Node node = graph_.node(id);
        if (p > 0) node.inputs.resize(2);  // the bias is added once
        const NodeId copy = Copy(node, p, to);
        TakeInput(graph_, copy, 1, 1, parts[p]);
        sums[id].push_back(graph_.node(copy).outputs[0]);
      }
    }
    for (const auto& [id, results] : sums) AddResults(id, results);
    regions_.SetRewritten(region);
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
  RegionFinder regions_;
  const NodeId nodes_;  // that there were at first, in topological order
};

}  // namespace

absl::StatusOr<SplitModule> SplitTensors(Graph graph, const SplitOptions& options,
                                         const StepContext& context) {
  if (graph.stage != Stage::kCanonical) {
    return InvalidArgument("the module is at stage `{}`, tensors are split at `canonical`",
                           StageName(graph.stage));
  }
  if (const auto flag = graph.metadata.find(kSplitTensorsKey);
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
