#include "services/cli/compare_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "services/analyser/html.h"

namespace quench::cli {
namespace {

using analyser::CompareReport;
using analyser::Escaped;
using analyser::ValueComparison;

constexpr size_t kMostWorst = 10;
constexpr std::string_view kCompareStyle =
#include "embedded/compare.css.inc"
    ;

// `kind` is a class of the style.
std::string Cell(const char* kind, const std::string& html) {
  return fmt::format(R"(<td class="{}">{}</td>)", kind, html);
}

std::string Shown(double value, const char* format) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return fmt::format(fmt::runtime(format), value);
}

// Nothing is known of values without elements.
std::string SqnrShown(const ValueComparison& value) {
  return value.elements == 0 ? "&ndash;" : Shown(value.sqnr_db, "{:.2f}");
}

std::string SaturationShown(const ValueComparison& value) {
  return value.saturation ? Shown(100 * *value.saturation, "{:.3f} %") : "&ndash;";
}

std::string DetailsShown(const ValueComparison& value) {
  if (value.elements == 0) return "nothing to compare";
  return fmt::format("cosine {}, max error {}, relative {}", Shown(value.cosine, "{:.6f}"),
                     Shown(value.max_error, "{:.4g}"), Shown(value.error, "{:.2g}"));
}

// Ticks at round numbers, zero among them.
struct PageAxis {
  double step = 1;
  int first = 0, last = 1;  // in steps

  PageAxis(double low, double high) {
    const double least = (high - low) / 5;
    const double power = std::pow(10, std::floor(std::log10(least)));
    for (const int factor : {10, 5, 2, 1}) {
      if (least <= factor * power * 1.0001) step = factor * power;
    }
    first = static_cast<int>(std::floor(low / step));
    last = static_cast<int>(std::ceil(high / step));
  }
  double Percent(double value) const { return 100 * (value / step - first) / (last - first); }
  std::string Ticks() const {
    std::string svg = R"(<svg class="axis" aria-hidden="true">)";
    for (int i = first; i <= last; ++i) {
      const char* anchor = i == first ? "start" : i == last ? "end" : "middle";
      svg += fmt::format(R"(<text x="{:.2f}%" y="12" text-anchor="{}">{:g}</text>)",
                         Percent(i * step), anchor, i * step);
    }
    return svg + "</svg>";
  }
  // From zero to the value; along the whole axis if it has no place there.
  std::string Bar(double value, const char* kind) const {
    const double begin = std::isfinite(value) ? Percent(std::min(value, 0.0)) : 0;
    const double end = std::isfinite(value) ? Percent(std::max(value, 0.0)) : 100;
    return fmt::format(
        R"(<svg aria-hidden="true"><rect class="{}" x="{:.2f}%" y="4" width="{:.2f}%" height="14" rx="2"/></svg>)",
        kind, begin, end - begin);
  }
  // A cell with a line at zero and grid lines, one to a step.
  std::string Plot(const char* kind, const std::string& bar) const {
    return fmt::format(
        R"(<td class="{}" style="background-size:1px 100%,{:.4f}% 100%;background-position:{:.2f}% 0,0 0">{}</td>)",
        kind, 100.0 / (last - first), Percent(0), bar);
  }
};

// Indices of layers, worst first: NaN and -inf, then by SQNR; at most a quarter of them.
std::vector<size_t> WorstOf(const std::vector<ValueComparison>& layers) {
  std::vector<size_t> worst;
  for (size_t i = 0; i < layers.size(); ++i) {
    const double sqnr = layers[i].sqnr_db;
    if (layers[i].elements > 0 && (std::isnan(sqnr) || sqnr < HUGE_VAL)) worst.push_back(i);
  }
  const auto rank = [&](size_t i) {
    return std::isnan(layers[i].sqnr_db) ? -HUGE_VAL : layers[i].sqnr_db;
  };
  std::stable_sort(worst.begin(), worst.end(),
                   [&](size_t a, size_t b) { return rank(a) < rank(b); });
  worst.resize(std::min({worst.size(), kMostWorst, (layers.size() + 3) / 4}));
  return worst;
}

std::string Card(const std::string& title, const std::string& number, const std::string& details) {
  return fmt::format(R"(<div class="card">{}<b>{}</b>{}</div>)", title, number, details);
}

std::string CardsOf(const CompareReport& report) {
  std::string html = R"(<div class="cards">)";
  for (const ValueComparison& output : report.outputs) {
    const char* unit = output.elements > 0 && std::isfinite(output.sqnr_db) ? " dB" : "";
    html += Card(fmt::format("SQNR of output {}", Escaped(output.value)), SqnrShown(output) + unit,
                 DetailsShown(output));
  }
  if (report.accuracy) {
    const analyser::Accuracy& accuracy = *report.accuracy;
    html += Card("Agreement of classes", Shown(100 * accuracy.agreement, "{:.2f} %"),
                 fmt::format("of {} rows", accuracy.rows));
    const auto top = [&](const char* title, std::optional<double> a, std::optional<double> b) {
      if (!a || !b) return;
      html += Card(title, Shown(100 * *b, "{:.2f} %"),
                   fmt::format("the reference {}, {} points", Shown(100 * *a, "{:.2f} %"),
                               Shown(100 * (*b - *a), "{:+.2f}")));
    };
    top("Top-1", accuracy.reference_top1, accuracy.other_top1);
    top("Top-5", accuracy.reference_top5, accuracy.other_top5);
  }
  return html + "</div>\n";
}

const char* KindOfBar(double sqnr_db, bool worst) {
  if (std::isfinite(sqnr_db)) return worst ? "worst" : "bar";
  return sqnr_db > 0 ? "equal" : "broken";
}

std::string ChartRows(const std::vector<ValueComparison>& layers, const std::vector<size_t>& worst,
                      const PageAxis& sqnr, const std::optional<PageAxis>& saturation) {
  std::string html;
  for (size_t i = 0; i < layers.size(); ++i) {
    const ValueComparison& layer = layers[i];
    const bool is_worst = std::find(worst.begin(), worst.end(), i) != worst.end();
    html += fmt::format("<tr id=\"layer-{}\"{} title=\"{}\">", i + 1,
                        is_worst ? " class=\"worst\"" : "", DetailsShown(layer));
    html += Cell("number order", std::to_string(i + 1)) + Cell("name", Escaped(layer.value)) +
            Cell("number sqnr", SqnrShown(layer));
    html += sqnr.Plot("plot", layer.elements == 0
                                  ? ""
                                  : sqnr.Bar(layer.sqnr_db, KindOfBar(layer.sqnr_db, is_worst)));
    if (saturation) {
      html += Cell("number", SaturationShown(layer));
      html += saturation->Plot(
          "small", layer.saturation ? saturation->Bar(100 * *layer.saturation, "saturation") : "");
    }
    html += "</tr>\n";
  }
  return html;
}

std::string ChartOf(const std::vector<ValueComparison>& layers, const std::vector<size_t>& worst) {
  double low = 0, high = 1, most = 1e-3;  // dB, dB, %
  bool saturates = false;
  for (const ValueComparison& layer : layers) {
    saturates |= layer.saturation.has_value();
    most = std::max(most, 100 * layer.saturation.value_or(0));
    if (!std::isfinite(layer.sqnr_db)) continue;
    low = std::min(low, layer.sqnr_db);
    high = std::max(high, layer.sqnr_db);
  }
  const PageAxis sqnr(low, high);
  std::optional<PageAxis> saturation;
  if (saturates) saturation.emplace(0, most);
  std::string html = fmt::format(R"(
<h2>SQNR of each layer, in order of execution</h2>
<p><i class="bar"></i>dB, longer is better<i class="worst"></i>the worst {}<i class="equal"></i>inf: no error at all
<i class="broken"></i>NaN or -inf</p>
<div class="scroll"><table class="chart">
<thead><tr><th class="number">#</th><th>layer</th><th class="number">SQNR dB</th><th class="plot">{}</th>)",
                                 worst.size(), sqnr.Ticks());
  if (saturation) {
    html += fmt::format(R"(<th class="number">saturated %</th><th class="small">{}</th>)",
                        saturation->Ticks());
  }
  return html + "</tr></thead>\n<tbody>\n" + ChartRows(layers, worst, sqnr, saturation) +
         "</tbody></table></div>\n";
}

std::string WorstTable(const std::vector<ValueComparison>& layers,
                       const std::vector<size_t>& worst) {
  if (worst.empty()) return "";
  std::string html = R"(
<h2>The worst layers</h2>
<div class="scroll"><table class="list">
<thead><tr><th class="number">#</th><th>layer</th>)";
  for (const char* title : {"SQNR dB", "cosine", "max error", "relative", "saturated", "elements"})
    html += fmt::format(R"(<th class="number">{}</th>)", title);
  html += "</tr></thead>\n<tbody>\n";
  for (const size_t i : worst) {
    const ValueComparison& layer = layers[i];
    html += "<tr>" + Cell("number order", std::to_string(i + 1));
    html += Cell("name", fmt::format(R"(<a href="#layer-{}">{}</a>)", i + 1, Escaped(layer.value)));
    for (const std::string& text :
         {SqnrShown(layer), Shown(layer.cosine, "{:.6f}"), Shown(layer.max_error, "{:.4g}"),
          Shown(layer.error, "{:.2g}"), SaturationShown(layer), std::to_string(layer.elements)})
      html += Cell("number", text);
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

constexpr char kNoLayers[] = R"(
<h2>Layers</h2>
<p>None were compared; --layers compares the values of every layer.</p>
)";

constexpr char kComparePageEnd[] = R"(
<h2>What the numbers are</h2>
<p>SQNR: 10 log10 of the squares of the reference's values over those of the differences; 6 dB are one bit.
Relative: the largest error over the reference's largest value. Saturated: quantized values at either end of their type
that are not zero. &ndash;: not known.</p>
)";

}  // namespace

std::string ComparePage(const Compared& compared, const CompareReport& report) {
  const std::vector<size_t> worst = WorstOf(report.layers);
  std::string html = fmt::format(R"(<h1>{0} &rarr; {1}</h1>
<p>The second compared with the first, its reference. Samples: {2}, {3}.</p>
)",
                                 Escaped(compared.reference), Escaped(compared.other),
                                 report.samples, Escaped(compared.samples));
  html += CardsOf(report);
  html += report.layers.empty() ? kNoLayers
                                : ChartOf(report.layers, worst) + WorstTable(report.layers, worst);
  return analyser::ToHtml({fmt::format("{} and {} compared", compared.reference, compared.other),
                           std::string(kCompareStyle), "", html + kComparePageEnd});
}

}  // namespace quench::cli
