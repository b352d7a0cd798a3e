// A report as one HTML page.
#pragma once

#include <string>
#include <vector>

#include "services/analyser/analyser.h"

namespace quench::analyser {

// Summary, tree of layers, plots, weights where the report has them, and the graph; needs no other
// file and no network. For two models, both side by side, and layers of the same name compared.
// `reports` has one or two.
std::string ReportPage(const std::vector<const ModelReport*>& reports);

}  // namespace quench::analyser
