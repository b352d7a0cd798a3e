// The layers between which each value is live.
#pragma once

#include <vector>

#include "common/ir/graph.h"
#include "services/analyser/analyser.h"

namespace quench::analyser {

// Layers count from 0, in node order; see ValueLife.
struct Lifetime {
  ValueId value = kNone;
  int first = -1, last = -1;
};

// Lifetimes of the inputs and of computed values. `fixed`: FixedValues(graph).
std::vector<Lifetime> LifetimesOf(const Graph& graph, const std::vector<bool>& fixed);

// Sets `live_bytes` of the layers and the peak from `values`.
void AddLiveBytes(ModelReport& report);

}  // namespace quench::analyser
