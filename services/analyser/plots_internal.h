// The plots, one by one.
#pragma once

#include <functional>

#include "services/analyser/analyser.h"
#include "services/analyser/svg.h"

namespace quench::analyser::internal {

inline constexpr int kPlotWidth = 760;

// Ceilings over arithmetic intensity, a circle for each layer on them, its area the time; below, how
// much time lies at which intensity. The report has predictions.
Svg RooflinePlot(const ModelReport& report);

// Bytes that live while each layer runs, and the largest values with their lives.
Svg MemoryPlot(const ModelReport& report);

// Buffers over kernels and offsets. The report has a plan.
Svg PlanPlot(const ModelReport& report);

// Scopes and layers as rectangles, their areas as `size` of the work.
Svg TreemapPlot(const ModelReport& report, const std::function<int64_t(const Work&)>& size,
                const std::string& unit);

// Names and colours of the kinds of those layers that `shown` is true for.
void KindLegend(const ModelReport& report, const std::function<bool(const LayerReport&)>& shown,
                double x, double y, Svg& svg);

}  // namespace quench::analyser::internal
