// Listings in addition to the tree of layers.
#pragma once

#include <string>

#include "services/analyser/analyser.h"

namespace quench::analyser {

// The bytes of layers: the first input and the first output of each.
struct Bandwidth {
  int peak_layer = -1;  // -1: there are no layers
  int64_t peak = 0;
  int64_t inputs = 0, outputs = 0;  // over all layers
  int64_t outputs_and_input = 0;    // `outputs` and the first layer's input
};
Bandwidth BandwidthOf(const ModelReport& report);

std::string BandwidthTable(const ModelReport& report);
std::string TimelineTable(const ModelReport& report);
std::string ArenaLine(const MemoryPlan& plan);
std::string PlanTable(const ModelReport& report);  // "" if there is no plan
std::string WeightsTable(const ModelReport& report);

}  // namespace quench::analyser
