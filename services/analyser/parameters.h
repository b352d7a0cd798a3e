// The parameters among a graph's constants, and the layers that they belong to.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "services/analyser/analyser.h"

namespace quench::analyser {

// Values that do not depend on any input of the model: constants, and values computed from constants
// alone, like weights from integers. They are not activations, and nodes that compute them are not layers.
std::vector<bool> FixedValues(const Graph& graph);
bool IsLayer(const Node& node, const std::vector<bool>& fixed);

// Parameters, each counted once, at the first layer that reads it.
class ParameterList {
 public:
  struct Parameter {
    std::string name, layer;
    const Tensor* tensor = nullptr;  // owned by the graph
  };

  // `fixed`: FixedValues(graph).
  void AddLayer(const Graph& graph, const std::vector<bool>& fixed, const Node& node,
                LayerReport& layer);
  const std::vector<Parameter>& found() const { return found_; }
  // Elements of the statistics of batch norms.
  int64_t buffers() const { return buffers_; }

 private:
  void AddValue(const Graph& graph, ValueId id, bool quantized, LayerReport& layer);

  std::set<const Tensor*> seen_, buffers_seen_;
  std::vector<Parameter> found_;
  int64_t buffers_ = 0;
};

// Zeros, range, moments and a histogram of 20 parts.
WeightReport StatisticsOf(const ParameterList::Parameter& parameter);

}  // namespace quench::analyser
