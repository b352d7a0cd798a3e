// Pictures of a report.
#pragma once

#include <string>
#include <vector>

#include "services/analyser/analyser.h"

namespace quench::analyser {

// "roofline", "memory", "plan", "parameters", "macs".
const std::vector<std::string>& PlotKinds();
// Whether the report has what the plot shows: "roofline" needs predictions, "plan" a memory
// plan.
bool CanPlot(const ModelReport& report, const std::string& kind);
// As an SVG element of a page with PlotStyle().
std::string PlotInline(const ModelReport& report, const std::string& kind);
// As an SVG file, which needs nothing else.
std::string PlotFile(const ModelReport& report, const std::string& kind);

}  // namespace quench::analyser
