#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "services/analyser/plots_internal.h"
#include "services/analyser/roofline.h"

namespace quench::analyser::internal {
namespace {

constexpr double kRoofLeft = 58, kRoofRight = kPlotWidth - 16, kRoofTop = 34, kRoofBottom = 300;
constexpr double kBarsTop = 352, kBarsBottom = 440;
constexpr int kBinsPerDecade = 5;

// Powers of ten along a side of the plot; `from` and `to` are where `low` and `high` lie.
struct LogAxis {
  double low, high;  // exponents
  double from, to;

  double Place(double value) const {
    const double share = (std::log10(value) - low) / (high - low);
    return from + std::clamp(share, 0.0, 1.0) * (to - from);
  }
};

bool IsPlotted(const LayerReport& layer) { return layer.work.flops > 0 && layer.moved_bytes > 0; }

// Covers the layers and the ridge.
LogAxis IntensityAxis(const ModelReport& report) {
  double low = report.ceilings->ridge(), high = low;
  for (const LayerReport& layer : report.layers) {
    if (!IsPlotted(layer)) continue;
    const double intensity = Intensity(layer.work.flops, layer.moved_bytes);
    low = std::min(low, intensity);
    high = std::max(high, intensity);
  }
  return {std::floor(std::log10(low / 1.5)), std::ceil(std::log10(high * 1.5)), kRoofLeft,
          kRoofRight};
}

LogAxis SpeedAxis(const Ceilings& ceilings, const LogAxis& intensity) {
  const double least = std::pow(10, intensity.low) * ceilings.gbytes;
  return {std::floor(std::log10(std::min(least, ceilings.gflops / 10))),
          std::ceil(std::log10(1.5 * ceilings.gflops)), kRoofBottom, kRoofTop};
}

std::vector<double> PowersOf(const LogAxis& axis) {
  std::vector<double> powers;
  for (int power = static_cast<int>(axis.low); power <= static_cast<int>(axis.high); ++power)
    powers.push_back(std::pow(10, power));
  return powers;
}

void DrawAxes(const LogAxis& x, const LogAxis& y, Svg& svg) {
  for (const double value : PowersOf(x)) {
    const double at = x.Place(value);
    svg.Line("grid", at, kRoofTop, at, kRoofBottom);
    svg.Line("grid", at, kBarsTop, at, kBarsBottom);
    svg.Text("", at, kBarsBottom + 15, fmt::format("{:g}", value), "middle");
  }
  for (const double value : PowersOf(y)) {
    const double at = y.Place(value);
    svg.Line("grid", kRoofLeft, at, kRoofRight, at);
    svg.Text("", kRoofLeft - 6, at + 4, fmt::format("{:g}", value), "end");
  }
  svg.Line("axis", kRoofLeft, kRoofBottom, kRoofRight, kRoofBottom);
  svg.Line("axis", kRoofLeft, kBarsBottom, kRoofRight, kBarsBottom);
  svg.Text("", (kRoofLeft + kRoofRight) / 2, kBarsBottom + 30, "flops per byte", "middle");
  svg.Text("", kRoofLeft, kRoofTop - 6, "GFLOP/s");
}

std::string RoofTitle(const LayerReport& layer) {
  return fmt::format("{} ({}): {:.2f} flops/byte, {}, bound by {}", layer.node, layer.op,
                     Intensity(layer.work.flops, layer.moved_bytes),
                     ShortTime(layer.predicted_seconds), layer.bound);
}

// Largest first, so that small ones lie on top.
void DrawLayers(const ModelReport& report, const LogAxis& x, const LogAxis& y, Svg& svg) {
  std::vector<const LayerReport*> layers;
  for (const LayerReport& layer : report.layers) {
    if (IsPlotted(layer)) layers.push_back(&layer);
  }
  std::stable_sort(layers.begin(), layers.end(), [](const LayerReport* a, const LayerReport* b) {
    return a->predicted_seconds > b->predicted_seconds;
  });
  for (const LayerReport* layer : layers) {
    const double intensity = Intensity(layer->work.flops, layer->moved_bytes);
    const double speed = std::min(report.ceilings->gflops, intensity * report.ceilings->gbytes);
    const double share = layer->predicted_seconds / report.predicted_seconds;
    svg.Circle(KindClass(layer->kind), x.Place(intensity), y.Place(speed),
               3 + 30 * std::sqrt(share), RoofTitle(*layer));
  }
}

void DrawRoof(const Ceilings& ceilings, const LogAxis& x, const LogAxis& y, Svg& svg) {
  const double left = std::pow(10, x.low);
  const double ridge = ceilings.ridge(), top = y.Place(ceilings.gflops);
  svg.Line("ridge", x.Place(ridge), top, x.Place(ridge), kBarsBottom);
  // The diagonal may begin below the plot, where the axis ends.
  const double begin = std::max(left, std::pow(10, y.low) / ceilings.gbytes);
  svg.Path("roof",
           fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}L{:.1f} {:.1f}", x.Place(begin),
                       y.Place(begin * ceilings.gbytes), x.Place(ridge), top, kRoofRight, top));
  svg.Text("", x.Place(ridge) + 5, kRoofBottom - 6, fmt::format("{:.3g} flops/byte", ridge));
}

// Time at each intensity, stacked by kind.
void DrawBars(const ModelReport& report, const LogAxis& x, Svg& svg) {
  const auto bins = static_cast<size_t>((x.high - x.low) * kBinsPerDecade);
  std::vector<std::map<std::string, double>> stacks(bins);
  for (const LayerReport& layer : report.layers) {
    if (!IsPlotted(layer)) continue;
    const double power = std::log10(Intensity(layer.work.flops, layer.moved_bytes)) - x.low;
    const auto bin = static_cast<size_t>(std::max(power, 0.0) * kBinsPerDecade);
    stacks[std::min(bin, bins - 1)][layer.kind] += layer.predicted_seconds;
  }
  double most = 1e-300;
  for (const auto& stack : stacks) {
    double sum = 0;
    for (const auto& [kind, seconds] : stack) sum += seconds;
    most = std::max(most, sum);
  }
  const double width = (kRoofRight - kRoofLeft) / static_cast<double>(bins);
  for (size_t i = 0; i < bins; ++i) {
    double bottom = kBarsBottom;
    for (const auto& [kind, seconds] : stacks[i]) {
      const double height = (kBarsBottom - kBarsTop) * seconds / most;
      bottom -= height;
      svg.Rect(KindClass(kind), kRoofLeft + width * static_cast<double>(i) + 1, bottom, width - 2,
               height,
               fmt::format("{}: {}", kind.empty() ? "moves values" : kind, ShortTime(seconds)));
    }
  }
  svg.Text("", kRoofLeft, kBarsTop - 6, fmt::format("time, up to {}", ShortTime(most)));
}

}  // namespace

Svg RooflinePlot(const ModelReport& report) {
  Svg svg(kPlotWidth, 476);
  const Ceilings& ceilings = *report.ceilings;
  const LogAxis x = IntensityAxis(report), y = SpeedAxis(ceilings, x);
  DrawAxes(x, y, svg);
  svg.Text("strong", kPlotWidth - 16, 14,
           fmt::format("{}: {:.4g} GFLOP/s, {:.4g} GB/s", ceilings.name, ceilings.gflops,
                       ceilings.gbytes),
           "end");
  KindLegend(report, IsPlotted, kRoofLeft, kRoofBottom + 20, svg);
  DrawLayers(report, x, y, svg);
  DrawRoof(ceilings, x, y, svg);
  DrawBars(report, x, svg);
  return svg;
}

}  // namespace quench::analyser::internal
