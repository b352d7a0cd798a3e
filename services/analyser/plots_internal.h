// The plots, one by one.
#pragma once

#include <functional>

#include "services/analyser/analyser.h"
#include "services/analyser/svg.h"

namespace quench::analyser::internal {

inline constexpr int kPlotWidth = 760;

// Ceilings over arithmetic intensity, with a circle for each layer on them whose area is its time;
// below, the time spent at each intensity. The report must have predictions.
Svg RooflinePlot(const ModelReport& report);

// Live bytes while each layer runs, and the lifetimes of the largest values.
Svg MemoryPlot(const ModelReport& report);

// Buffers over kernels and offsets. The report must have a memory plan.
Svg PlanPlot(const ModelReport& report);

// Scopes and layers as rectangles, whose areas are `size` of their work.
Svg TreemapPlot(const ModelReport& report, const std::function<int64_t(const Work&)>& size,
                const std::string& unit);

// Names and colours of the kinds of the layers for which `shown` is true.
void KindLegend(const ModelReport& report, const std::function<bool(const LayerReport&)>& shown,
                double x, double y, Svg& svg);

}  // namespace quench::analyser::internal
