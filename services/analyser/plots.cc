#include "services/analyser/plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "services/analyser/plots_internal.h"

namespace quench::analyser {
namespace {

struct PlotKind {
  const char* name;
  const char* label;  // what it shows
  Svg (*plot)(const ModelReport& report);
};

const std::vector<PlotKind>& AllPlots() {
  static const auto* const plots = new std::vector<PlotKind>{
      {"roofline", "roofline: ceilings, and layers by arithmetic intensity",
       internal::RooflinePlot},
      {"memory", "memory: bytes that live while each layer runs", internal::MemoryPlot},
      {"plan", "memory plan: where values lie in the arena of compiled code", internal::PlanPlot},
      {"parameters", "parameters by scope and layer",
       [](const ModelReport& report) {
         return internal::TreemapPlot(
             report, [](const Work& work) { return work.parameters; }, "parameters");
       }},
      {"macs", "multiply-adds by scope and layer",
       [](const ModelReport& report) {
         return internal::TreemapPlot(report, [](const Work& work) { return work.macs; }, "MACs");
       }},
  };
  return *plots;
}

const PlotKind& PlotNamed(const std::string& name) {
  for (const PlotKind& plot : AllPlots()) {
    if (plot.name == name) return plot;
  }
  return AllPlots().front();
}

std::string PlotLabel(const ModelReport& report, const PlotKind& plot) {
  return fmt::format("{}: {}", report.name, plot.label);
}

}  // namespace

namespace internal {

void KindLegend(const ModelReport& report, const std::function<bool(const LayerReport&)>& shown,
                double x, double y, Svg& svg) {
  std::set<std::string> kinds;
  for (const LayerReport& layer : report.layers) {
    if (shown(layer)) kinds.insert(layer.kind);
  }
  for (const std::string& kind : kinds) {
    const std::string name = kind.empty() ? "moves values" : kind;
    svg.Rect(KindClass(kind), x, y - 8, 9, 9);
    svg.Text("", x + 13, y, name);
    x += 26 + 6.0 * static_cast<double>(name.size());
  }
}

}  // namespace internal

const std::vector<std::string>& PlotKinds() {
  static const auto* const names = [] {
    auto* all = new std::vector<std::string>;
    for (const PlotKind& plot : AllPlots()) all->emplace_back(plot.name);
    return all;
  }();
  return *names;
}

bool CanPlot(const ModelReport& report, const std::string& kind) {
  if (kind == "roofline") return report.ceilings.has_value();
  return kind != "plan" || report.memory_plan.has_value();
}

std::string PlotInline(const ModelReport& report, const std::string& kind) {
  const PlotKind& plot = PlotNamed(kind);
  return plot.plot(report).Inline(PlotLabel(report, plot));
}

std::string PlotFile(const ModelReport& report, const std::string& kind) {
  const PlotKind& plot = PlotNamed(kind);
  return plot.plot(report).File(PlotLabel(report, plot));
}

}  // namespace quench::analyser
