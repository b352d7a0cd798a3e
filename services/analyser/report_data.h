// The data for the script of a report's page.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "services/analyser/analyser.h"

namespace quench::analyser {

// {name, layers, tree, graph, weights, activations}: arrays in the order that page/report.js defines.
nlohmann::json PageData(const ModelReport& report);

}  // namespace quench::analyser
