// Listings beside the tree of layers.
#pragma once

#include <string>

#include "services/analyser/analyser.h"

namespace quench::analyser {

// One layer's bandwidth is its first input and its first output.
struct Bandwidth {
  int peak_layer = -1;  // -1: there are no layers
  int64_t peak = 0;
  int64_t inputs = 0, outputs = 0;  // over all layers
  int64_t outputs_and_input = 0;    // and the first layer's input once
};
Bandwidth BandwidthOf(const ModelReport& report);

std::string BandwidthTable(const ModelReport& report);
std::string TimelineTable(const ModelReport& report);
std::string ArenaLine(const MemoryPlan& plan);
std::string PlanTable(const ModelReport& report);  // "" where there is no plan
std::string WeightsTable(const ModelReport& report);

}  // namespace quench::analyser
