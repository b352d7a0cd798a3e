#include <fmt/format.h>

#include <algorithm>

#include "services/analyser/plots_internal.h"

namespace quench::analyser::internal {
namespace {

constexpr double kPlanLeft = 72, kPlanRight = kPlotWidth - 16, kPlanTop = 34, kPlanBottom = 440;
constexpr int kPlanHeight = 476;

}  // namespace

Svg PlanPlot(const ModelReport& report) {
  const MemoryPlan& plan = *report.memory_plan;
  Svg svg(kPlotWidth, kPlanHeight);
  const auto kernels = static_cast<double>(std::max<size_t>(plan.kernels.size(), 1));
  const auto arena = static_cast<double>(std::max<int64_t>(plan.arena_bytes, 1));
  const auto x = [&](int kernel) {
    return kPlanLeft + (kPlanRight - kPlanLeft) * kernel / kernels;
  };
  const auto y = [&](int64_t bytes) {
    return kPlanBottom - (kPlanBottom - kPlanTop) * static_cast<double>(bytes) / arena;
  };
  for (const double share : {0.25, 0.5, 0.75, 1.0}) {
    const double at = kPlanBottom - (kPlanBottom - kPlanTop) * share;
    svg.Line("grid", kPlanLeft, at, kPlanRight, at);
    svg.Text("", kPlanLeft - 6, at + 4, ShortBytes(share * arena), "end");
  }
  for (const MemoryPlan::Buffer& buffer : plan.buffers) {
    const double top = y(buffer.offset + buffer.bytes);
    svg.Rect("life", x(buffer.first), top, x(buffer.last + 1) - x(buffer.first),
             y(buffer.offset) - top,
             fmt::format("{}: {} at {}, kernels {} to {}", buffer.values,
                         ShortBytes(static_cast<double>(buffer.bytes)), buffer.offset, buffer.first,
                         buffer.last));
  }
  svg.Line("axis", kPlanLeft, kPlanBottom, kPlanRight, kPlanBottom);
  svg.Line("peak", kPlanLeft, y(plan.lower_bound_bytes), kPlanRight, y(plan.lower_bound_bytes));
  svg.Text("strong", kPlanRight, 14,
           fmt::format("arena {} for {}, no plan needs less than {} (dashed)", ShortBytes(arena),
                       plan.target, ShortBytes(static_cast<double>(plan.lower_bound_bytes))),
           "end");
  svg.Text("", (kPlanLeft + kPlanRight) / 2, kPlanBottom + 22,
           fmt::format("kernels 0 to {}, in order of execution", plan.kernels.size()), "middle");
  return svg;
}

}  // namespace quench::analyser::internal
