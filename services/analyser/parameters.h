// Which constants of a graph are parameters, and whose?
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "services/analyser/analyser.h"

namespace quench::analyser {

// Values that no input of the model has a part in: constants, and what is computed from them alone,
// as weights from integers. They are not activations, and what computes them is not a layer.
std::vector<bool> FixedValues(const Graph& graph);
bool IsLayer(const Node& node, const std::vector<bool>& fixed);

// Parameters, counted where layers read them, each once.
class ParameterList {
 public:
  struct Parameter {
    std::string name, layer;
    const Tensor* tensor = nullptr;  // of the graph
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
