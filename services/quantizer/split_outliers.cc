#include "services/quantizer/split_outliers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "services/quantizer/channel_regions.h"

namespace quench::quantizer {
namespace {

constexpr double kWorthwhile = 0.9;  // of the largest weight, that may remain at most
constexpr int64_t kEights = 8, kMany = 32;

// max |w| of each column of a kernel, over the largest of all; nothing for a kernel of zeros.
std::vector<double> ColumnShares(const Tensor& kernel) {
  const int64_t columns = kernel.dims()[1];
  const int64_t run = kernel.size() / kernel.dims()[0] / columns;
  std::vector<double> shares(static_cast<size_t>(columns), 0);
  const std::span<const float> values = kernel.as<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    double& share = shares[i / static_cast<size_t>(run) % shares.size()];
    share = std::max(share, std::abs(double{values[i]}));
  }
  const double largest = *std::max_element(shares.begin(), shares.end());
  for (double& share : shares) share /= largest > 0 ? largest : 1;
  return shares;
}

class OutlierSplitter {
 public:
  OutlierSplitter(Graph graph, const OutlierOptions& options, const StepContext& context)
      : graph_(std::move(graph)), options_(options), context_(context), regions_(graph_) {}

  absl::StatusOr<OutlierModule> Run() {
    OutlierModule result;
    const auto nodes = static_cast<NodeId>(graph_.nodes.size());
    for (NodeId id = 0; id < nodes; ++id) {
      QUENCH_RETURN_IF_ERROR(context_.Check());
      context_.Report({"split outliers", graph_.node(id).name, id, nodes});
      const std::optional<Region> region = regions_.RegionOf(id);
      if (!region) continue;
      std::vector<std::vector<double>> readers;  // shares of each
      for (const NodeId reader : region->readers)
        readers.push_back(ColumnShares(*KernelOf(graph_, graph_.node(reader))));
      const std::vector<int64_t> times = TimesOf(readers);
      const double remains = Largest(readers, times);
      if (remains > kWorthwhile) continue;
      const auto channels = static_cast<int64_t>(times.size());
      const int64_t all = std::accumulate(times.begin(), times.end(), int64_t{0});
      result.layers.push_back({graph_.node(id).name, channels, all - channels, 1 / remains});
      Repeat(*region, times);
      regions_.SetRewritten(*region);
    }
    graph_.Compact();
    QUENCH_RETURN_IF_ERROR(ops::InferGraph(graph_));
    result.graph = std::move(graph_);
    return result;
  }

 private:
  // How often each channel is to be there.
  std::vector<int64_t> TimesOf(const std::vector<std::vector<double>>& readers) const {
    std::vector<double> shares(readers[0].size(), 0);  // the largest over all readers
    for (const std::vector<double>& reader : readers) {
      for (size_t c = 0; c < shares.size(); ++c) shares[c] = std::max(shares[c], reader[c]);
    }
    const auto channels = static_cast<int64_t>(shares.size());
    auto copies = static_cast<int64_t>(std::ceil(options_.share * static_cast<double>(channels)));
    if (channels >= kMany)
      copies = (channels + copies + kEights - 1) / kEights * kEights - channels;
    std::vector<int64_t> times(shares.size(), 1);
    for (int64_t i = 0; i < copies; ++i) {
      size_t largest = 0;
      const auto part = [&](size_t c) { return shares[c] / static_cast<double>(times[c]); };
      for (size_t c = 1; c < shares.size(); ++c) largest = part(c) > part(largest) ? c : largest;
      ++times[largest];
    }
    return times;
  }

  // The remainder of the largest weight of the reader that gains least.
  static double Largest(const std::vector<std::vector<double>>& readers,
                        const std::vector<int64_t>& times) {
    double worst = 0;
    for (const std::vector<double>& reader : readers) {
      for (size_t c = 0; c < times.size(); ++c)
        worst = std::max(worst, reader[c] / static_cast<double>(times[c]));
    }
    return worst > 0 ? worst : 1;
  }

  void Repeat(const Region& region, const std::vector<int64_t>& times) {
    Channels order(times.size());
    std::iota(order.begin(), order.end(), 0);
    for (size_t c = 0; c < times.size(); ++c)
      order.insert(order.end(), static_cast<size_t>(times[c] - 1), static_cast<int64_t>(c));
    const auto rows = [&](NodeId id) {
      TakeInput(graph_, id, 1, 0, order);
      TakeInput(graph_, id, 2, 0, order);
    };
    rows(region.source);
    for (const NodeId id : region.between) {
      if (graph_.node(id).op != "Conv") continue;
      rows(id);
      graph_.node(id).attributes["group"] = static_cast<int64_t>(order.size());
    }
    for (const NodeId id : region.readers) {
      Tensor kernel = Take(*KernelOf(graph_, graph_.node(id)), 1, order);
      auto* values = reinterpret_cast<float*>(kernel.mutable_bytes());
      const int64_t run = kernel.size() / kernel.dims()[0] / kernel.dims()[1];
      for (int64_t i = 0; i < kernel.size(); ++i) {
        const int64_t channel = order[static_cast<size_t>(i / run) % order.size()];
        values[i] /= static_cast<float>(times[static_cast<size_t>(channel)]);
      }
      const std::string name = graph_.node(id).name + ".w";
      const ValueId parts = graph_.AddConstant(name, std::move(kernel));
      graph_.node(id).inputs[1] = parts;
    }
  }

  Graph graph_;
  const OutlierOptions& options_;
  const StepContext& context_;
  RegionFinder regions_;
};

}  // namespace

absl::StatusOr<OutlierModule> SplitOutliers(Graph graph, const OutlierOptions& options,
                                            const StepContext& context) {
  if (graph.stage != Stage::kCanonical) {
    return InvalidArgument("the module is at stage `{}`, outliers are split at `canonical`",
                           StageName(graph.stage));
  }
  if (!(options.share > 0 && options.share <= 0.5)) {
    return InvalidArgument("a share of {:g} of the channels, must be above 0 and at most 0.5",
                           options.share);
  }
  QUENCH_RETURN_IF_ERROR(ops::InferGraph(graph));  // a module may come from anywhere
  graph.Compact();                                 // in topological order
  return OutlierSplitter(std::move(graph), options, context).Run();
}

}  // namespace quench::quantizer
