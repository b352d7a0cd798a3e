// A report as one HTML page.
#pragma once

#include <string>
#include <vector>

#include "services/analyser/analyser.h"

namespace quench::analyser {

// Summary, tree of layers, plots, weights if the report has them, and the graph; needs no other file
// and no network. Two models are shown side by side, and layers of the same name are compared.
// `reports` has one or two.
std::string ReportPage(const std::vector<const ModelReport*>& reports);

}  // namespace quench::analyser
