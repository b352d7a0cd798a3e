#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "services/analyser/plots_internal.h"

namespace quench::analyser::internal {
namespace {

constexpr double kLiveLeft = 72, kLiveRight = kPlotWidth - 16, kLiveTop = 30;
constexpr double kLane = 9, kAboveLanes = 32, kBelowLanes = 28;
constexpr int kMemoryHeight = 476;
constexpr size_t kMostLives = 40, kMostLanes = 18, kMostTitles = 1500;

// Where the time of a layer begins: layers are equally long.
double TimeOf(size_t layer, const ModelReport& report) {
  return kLiveLeft + (kLiveRight - kLiveLeft) * static_cast<double>(layer) /
                         static_cast<double>(std::max<size_t>(report.layers.size(), 1));
}

void DrawLive(const ModelReport& report, double bottom, Svg& svg) {
  const double peak = static_cast<double>(std::max<int64_t>(report.peak_activation_bytes, 1));
  const auto height = [&](int64_t bytes) {
    return bottom - (bottom - kLiveTop) * static_cast<double>(bytes) / peak;
  };
  for (const double share : {0.25, 0.5, 0.75, 1.0}) {
    const double at = bottom - (bottom - kLiveTop) * share;
    svg.Line(share == 1 ? "peak" : "grid", kLiveLeft, at, kLiveRight, at);
    svg.Text("", kLiveLeft - 6, at + 4, ShortBytes(share * peak), "end");
  }
  std::string area = fmt::format("M{:.1f} {:.1f}", kLiveLeft, bottom);
  for (size_t i = 0; i < report.layers.size(); ++i) {
    area +=
        fmt::format("V{:.1f}H{:.1f}", height(report.layers[i].live_bytes), TimeOf(i + 1, report));
  }
  svg.Path("area", area + fmt::format("V{:.1f}Z", bottom));
  svg.Line("axis", kLiveLeft, bottom, kLiveRight, bottom);
  if (report.layers.empty()) return;
  const auto most = std::max_element(
      report.layers.begin(), report.layers.end(),
      [](const LayerReport& a, const LayerReport& b) { return a.live_bytes < b.live_bytes; });
  svg.Text("strong", kLiveRight, kLiveTop - 10,
           fmt::format("peak {} at layer {}: {}", ShortBytes(peak), most - report.layers.begin(),
                       most->node),
           "end");
  for (size_t i = 0; i < report.layers.size() && report.layers.size() <= kMostTitles; ++i) {
    svg.Rect("hover", TimeOf(i, report), kLiveTop, TimeOf(1, report) - kLiveLeft, bottom - kLiveTop,
             fmt::format("{} {}: {} live", i, report.layers[i].node,
                         ShortBytes(static_cast<double>(report.layers[i].live_bytes))));
  }
}

// The largest values, each in the first lane that is free.
std::vector<std::vector<const ValueLife*>> LanesOf(const ModelReport& report) {
  std::vector<size_t> order(report.values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return report.values[a].bytes > report.values[b].bytes;
  });
  order.resize(std::min(order.size(), kMostLives));
  std::vector<std::vector<const ValueLife*>> lanes;
  for (const size_t index : order) {
    const ValueLife& value = report.values[index];
    const auto free = std::find_if(lanes.begin(), lanes.end(), [&](const auto& lane) {
      return std::all_of(lane.begin(), lane.end(), [&](const ValueLife* other) {
        return value.last < other->first || value.first > other->last;
      });
    });
    if (free == lanes.end() && lanes.size() == kMostLanes) continue;
    const auto lane = static_cast<size_t>(free - lanes.begin());
    if (free == lanes.end()) lanes.emplace_back();
    lanes[lane].push_back(&value);
  }
  return lanes;
}

void DrawLives(const ModelReport& report, const std::vector<std::vector<const ValueLife*>>& lanes,
               double top, Svg& svg) {
  size_t drawn = 0;
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    for (const ValueLife* value : lanes[lane]) {
      const double begin = TimeOf(static_cast<size_t>(std::max(value->first, 0)), report);
      const double end = TimeOf(static_cast<size_t>(std::max(value->last + 1, 1)), report);
      svg.Rect("life", begin, top + kLane * static_cast<double>(lane), end - begin, kLane - 1,
               fmt::format("{} {}: {}, {} to {}", value->name, value->type,
                           ShortBytes(static_cast<double>(value->bytes)),
                           value->first < 0 ? "input" : fmt::format("layer {}", value->first),
                           value->last));
      ++drawn;
    }
  }
  svg.Text("", kLiveLeft, top - 7, fmt::format("lives of the {} largest values", drawn));
}

}  // namespace

Svg MemoryPlot(const ModelReport& report) {
  const std::vector<std::vector<const ValueLife*>> lanes = LanesOf(report);
  Svg svg(kPlotWidth, kMemoryHeight);
  const double lanes_top = kMemoryHeight - kBelowLanes - kLane * static_cast<double>(lanes.size());
  DrawLive(report, lanes_top - kAboveLanes, svg);
  DrawLives(report, lanes, lanes_top, svg);
  svg.Text("", (kLiveLeft + kLiveRight) / 2, svg.height() - 6.0,
           fmt::format("layers 0 to {}, in order of execution", report.layers.size()), "middle");
  return svg;
}

}  // namespace quench::analyser::internal
