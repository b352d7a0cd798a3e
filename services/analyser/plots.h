// Pictures of a report.
#pragma once

#include <string>
#include <vector>

#include "services/analyser/analyser.h"

namespace quench::analyser {

// "roofline", "memory", "plan", "parameters", "macs".
const std::vector<std::string>& PlotKinds();
// Whether the report has the data for the plot: "roofline" needs predictions, "plan" a memory
// plan.
bool CanPlot(const ModelReport& report, const std::string& kind);
// The plot as an SVG element for a page with PlotStyle().
std::string PlotInline(const ModelReport& report, const std::string& kind);
// The plot as a self-contained SVG file.
std::string PlotFile(const ModelReport& report, const std::string& kind);

}  // namespace quench::analyser
