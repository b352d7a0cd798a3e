#include "services/cli/precision_refine.h"

#include <absl/strings/str_split.h>

#include <algorithm>

namespace quench::cli {
namespace {

constexpr size_t kOfBase = static_cast<size_t>(-1);

// For each layer the first one of its region: neighbours of one type that is not that of `base`.
std::vector<size_t> RegionsOf(const Assignment& mixed, const Assignment& base,
                              std::span<const std::set<size_t>> neighbours) {
  std::vector<size_t> regions(mixed.layers.size(), kOfBase);
  for (size_t first = 0; first < regions.size(); ++first) {
    if (regions[first] != kOfBase || mixed.layers[first] == base.layers[first]) continue;
    std::vector<size_t> open{first};
    regions[first] = first;
    while (!open.empty()) {
      const size_t layer = open.back();
      open.pop_back();
      for (const size_t next : neighbours[layer]) {
        const bool joins = mixed.layers[next] == mixed.layers[first] &&
                           mixed.layers[next] != base.layers[next] && regions[next] == kOfBase;
        if (!joins) continue;
        regions[next] = first;
        open.push_back(next);
      }
    }
  }
  return regions;
}

}  // namespace

std::vector<std::set<size_t>> Neighbours(const Graph& module,
                                         std::span<const PrecisionLayer> layers) {
  std::map<std::string, size_t> layer_of;  // by name of a product
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const std::string& product : layers[i].products) layer_of[product] = i;
  }
  std::vector<std::set<size_t>> neighbours(layers.size());
  std::vector<std::set<size_t>> sources(module.values.size());  // layers that a value comes from
  for (const Node& node : module.nodes) {
    std::set<size_t> from;
    for (const ValueId id : node.inputs) {
      if (id == kNone) continue;
      const std::set<size_t>& more = sources[static_cast<size_t>(id)];
      from.insert(more.begin(), more.end());
    }
    if (const auto layer = layer_of.find(node.name); layer != layer_of.end()) {
      for (const size_t each : from) {
        if (each == layer->second) continue;
        neighbours[each].insert(layer->second);
        neighbours[layer->second].insert(each);
      }
      from = {layer->second};
    }
    for (const ValueId id : node.outputs) {
      if (id != kNone) sources[static_cast<size_t>(id)] = from;
    }
  }
  return neighbours;
}

std::vector<double> LayerTimes(std::span<const PrecisionLayer> layers,
                               std::span<const TimedKernel> kernels) {
  std::map<std::string, size_t> layer_of;  // by name of a member
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const std::string& member : layers[i].members) layer_of[member] = i;
  }
  std::vector<double> times(layers.size(), 0);
  size_t last = 0;
  for (const TimedKernel& kernel : kernels) {
    const std::vector<std::string> names = absl::StrSplit(kernel.nodes, '+');
    for (const std::string& name : names) {
      const auto found = layer_of.find(name);
      if (found == layer_of.end()) continue;
      last = found->second;
      break;
    }
    if (last < times.size()) times[last] += kernel.microseconds;
  }
  return times;
}

Assignment Refined(Assignment mixed, const Assignment& base,
                   std::span<const std::set<size_t>> neighbours, std::span<const double> base_times,
                   std::span<const double> mixed_times) {
  const std::vector<size_t> regions = RegionsOf(mixed, base, neighbours);
  std::vector<double> gains(regions.size(), 0);  // by region
  for (size_t i = 0; i < regions.size(); ++i) {
    const double lost = mixed_times[i] - base_times[i];
    if (regions[i] != kOfBase) {
      gains[regions[i]] -= lost;
      continue;
    }
    std::set<size_t> blamed;
    for (const size_t each : neighbours[i]) {
      if (regions[each] != kOfBase) blamed.insert(regions[each]);
    }
    for (const size_t region : blamed)
      gains[region] -= std::max(lost, 0.0) / static_cast<double>(blamed.size());
  }
  for (size_t i = 0; i < regions.size(); ++i) {
    if (regions[i] == kOfBase || gains[regions[i]] > 0) continue;
    mixed.layers[i] = base.layers[i];
    mixed.reasons[i] = base.reasons[i];
  }
  if (mixed.layers == base.layers) mixed.others = base.others;
  return mixed;
}

}  // namespace quench::cli
