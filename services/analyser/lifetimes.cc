#include "services/analyser/lifetimes.h"

#include <algorithm>

#include "services/analyser/parameters.h"

namespace quench::analyser {
namespace {

// Bodies capture nothing: what they read are inputs of the node that has them.
void ExtendLives(const std::vector<ValueId>& read, int until, std::vector<int>& place,
                 std::vector<Lifetime>& lives) {
  for (const ValueId id : read) {
    if (id == kNone) continue;
    const int at = place[static_cast<size_t>(id)];
    if (at >= 0) lives[static_cast<size_t>(at)].last = until;
  }
}

}  // namespace

std::vector<Lifetime> LifetimesOf(const Graph& graph, const std::vector<bool>& fixed) {
  std::vector<Lifetime> lives;
  std::vector<int> place(graph.values.size(), -1);  // in `lives`
  const auto begin = [&](ValueId id, int at) {
    place[static_cast<size_t>(id)] = static_cast<int>(lives.size());
    lives.push_back({id, at, at});
  };
  for (const ValueId id : graph.inputs) begin(id, -1);
  int layer = -1;
  for (const Node& node : graph.nodes) {
    if (!IsLayer(node, fixed)) continue;
    ++layer;
    ExtendLives(node.inputs, layer, place, lives);
    for (const ValueId id : node.outputs) {
      if (id != kNone && !fixed[static_cast<size_t>(id)]) begin(id, layer);
    }
  }
  ExtendLives(graph.outputs, layer, place, lives);
  return lives;
}

void AddLiveBytes(ModelReport& report) {
  // Bytes that appear with a layer, and that are gone after it; inputs without readers take no
  // part.
  const size_t layers = report.layers.size();
  std::vector<int64_t> change(layers + 2, 0);  // change[i + 1]: from layer i - 1 to layer i
  for (const ValueLife& value : report.values) {
    change[static_cast<size_t>(value.first + 1)] += value.bytes;
    change[static_cast<size_t>(std::max(value.last, -1) + 2)] -= value.bytes;
  }
  int64_t live = change[0];  // before the first layer
  report.peak_activation_bytes = live;
  for (size_t i = 0; i < layers; ++i) {
    live += change[i + 1];
    report.layers[i].live_bytes = live;
    report.peak_activation_bytes = std::max(report.peak_activation_bytes, live);
  }
}

}  // namespace quench::analyser
