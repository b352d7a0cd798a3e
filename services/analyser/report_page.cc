#include "services/analyser/report_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "services/analyser/html.h"
#include "services/analyser/plots.h"
#include "services/analyser/report_data.h"
#include "services/analyser/svg.h"
#include "services/analyser/table_text.h"

namespace quench::analyser {
namespace {

constexpr std::string_view kReportStyle =
#include "embedded/report.css.inc"
    ;
constexpr std::string_view kReportScript =
#include "embedded/report.js.inc"
#include "embedded/report_graph.js.inc"
#include "embedded/report_lists.js.inc"
    ;

// The figure that needs a memory plan.
constexpr const char* kArena = "arena of compiled code";

using ReportList = std::vector<const ModelReport*>;

struct Figure {
  const char* name;
  double (*value)(const ModelReport& report);
  std::string (*text)(double value);
  const char* full = "";  // how the exact number is told; "" where `text` has it
};

const std::vector<Figure>& Figures() {
  using Report = ModelReport;
  static const auto* const figures = new std::vector<Figure>{
      {"layers", [](const Report& r) { return static_cast<double>(r.layers.size()); }, ShortCount},
      {"parameters", [](const Report& r) { return static_cast<double>(r.work.parameters); },
       ShortCount, "{}"},
      {"weights", [](const Report& r) { return static_cast<double>(r.work.weight_bytes); },
       ShortBytes, "{} bytes"},
      {"MACs", [](const Report& r) { return static_cast<double>(r.work.macs); }, ShortCount, "{}"},
      {"flops", [](const Report& r) { return static_cast<double>(r.work.flops); }, ShortCount,
       "{}"},
      {"activations, in all",
       [](const Report& r) { return static_cast<double>(r.work.activation_bytes); }, ShortBytes,
       "{} bytes"},
      {"activations, at peak",
       [](const Report& r) { return static_cast<double>(r.peak_activation_bytes); }, ShortBytes,
       "{} bytes"},
      {kArena,
       [](const Report& r) {
         return r.memory_plan ? static_cast<double>(r.memory_plan->arena_bytes) : 0;
       },
       ShortBytes, "{} bytes"},
      {"bytes moved", [](const Report& r) { return static_cast<double>(r.moved_bytes); },
       ShortBytes, "{} bytes"},
      {"predicted time", [](const Report& r) { return r.predicted_seconds; }, ShortTime},
  };
  return *figures;
}

bool IsShown(const Figure& figure, const ReportList& reports) {
  if (figure.text == ShortTime) return reports.front()->ceilings.has_value();
  return figure.name != kArena || reports.front()->memory_plan.has_value();
}

std::string InFull(const Figure& figure, double value) {
  return fmt::format(fmt::runtime(figure.full), Grouped(static_cast<int64_t>(value)));
}

// One model: cards. Two: a table with both and their ratio.
std::string FiguresOf(const ReportList& reports) {
  std::string html;
  if (reports.size() == 1) {
    for (const Figure& figure : Figures()) {
      if (!IsShown(figure, reports)) continue;
      const double value = figure.value(*reports[0]);
      html += fmt::format(R"(<div class="card">{}<b>{}</b>{}</div>)", figure.name,
                          figure.text(value), InFull(figure, value));
    }
    return fmt::format("<div class=\"cards\">{}</div>\n", html);
  }
  for (const Figure& figure : Figures()) {
    if (!IsShown(figure, reports)) continue;
    const double a = figure.value(*reports[0]), b = figure.value(*reports[1]);
    html += fmt::format(
        R"(<tr><td>{}</td><td class="number">{}</td><td class="number">{}</td><td class="number">{}</td></tr>)",
        figure.name, figure.text(a), figure.text(b), a > 0 ? fmt::format("{:.3g}", b / a) : "-");
  }
  return fmt::format(
      R"(<div class="scroll"><table class="list"><thead><tr><th></th><th class="number">{}</th><th class="number">{}</th>
<th class="number">ratio</th></tr></thead><tbody>{}</tbody></table></div>
)",
      Escaped(reports[0]->name), Escaped(reports[1]->name), html);
}

std::string Row(const std::vector<std::string>& texts, size_t numbers_from) {
  std::string html = "<tr>";
  for (size_t i = 0; i < texts.size(); ++i)
    html += fmt::format("<td{}>{}</td>", i >= numbers_from ? " class=\"number\"" : "",
                        Escaped(texts[i]));
  return html + "</tr>\n";
}

std::string OperatorsOf(const ModelReport& report) {
  std::string html;
  for (const OperatorReport& each : report.by_operator) {
    html += Row({each.op, each.kind, Grouped(each.layers), Grouped(each.work.parameters),
                 Grouped(each.work.macs), Grouped(each.work.flops),
                 ShortBytes(static_cast<double>(each.work.activation_bytes))},
                2);
  }
  return fmt::format(R"(<div class="scroll"><table class="list">
<thead><tr><th>operator</th><th>kind</th><th class="number">layers</th><th class="number">parameters</th>
<th class="number">MACs</th><th class="number">flops</th><th class="number">activations</th></tr></thead>
<tbody>{}</tbody></table></div>
)",
                     html);
}

std::string InterfaceOf(const ModelReport& report) {
  std::string html;
  for (const auto& [name, type] : report.inputs) html += Row({"input", name, type}, 3);
  for (const auto& [name, type] : report.outputs) html += Row({"output", name, type}, 3);
  for (const auto& [name, size] : report.symbol_sizes)
    html += Row({"counted at", name, std::to_string(size)}, 3);
  if (report.ceilings) {
    html += Row({"ceilings", report.ceilings->name,
                 fmt::format("{:.4g} GFLOP/s, {:.4g} GB/s: {}", report.ceilings->gflops,
                             report.ceilings->gbytes, report.ceilings->source)},
                3);
  }
  html += Row({"fingerprint", "", report.fingerprint}, 3);
  html += Row({"structure", "", report.structure_hash}, 3);
  return fmt::format(
      "<div class=\"scroll\"><table class=\"list facts\"><tbody>{}</tbody></table></div>\n", html);
}

std::string SummaryOf(const ReportList& reports) {
  std::string html = "<section id=\"summary\"><h2>Summary</h2>\n" + FiguresOf(reports);
  html += "<div class=\"models\">";
  for (const ModelReport* report : reports) {
    html += "<article>";
    if (reports.size() > 1) html += fmt::format("<h3>{}</h3>\n", Escaped(report->name));
    html += InterfaceOf(*report) + "</article>\n";
    html += "<article>" + OperatorsOf(*report) + "</article>\n";
  }
  return html + "</div></section>\n";
}

// An element for each model, which the script fills.
std::string Filled(const std::string& id, const std::string& title, const ReportList& reports) {
  const bool both = reports.size() > 1;
  std::string html = fmt::format("<section id=\"{}\"><h2>{}</h2>\n<div{}>\n", id, title,
                                 both && id == "graph" ? " class=\"models\"" : "");
  for (size_t i = 0; i < reports.size(); ++i) {
    html += "<div>";
    if (both) html += fmt::format("<h3>{}</h3>\n", Escaped(reports[i]->name));
    html += fmt::format("<div data-{}=\"{}\"></div></div>\n", id, i);
  }
  return html + "</div></section>\n";
}

std::string PlotsOf(const ReportList& reports) {
  std::string html = "<section id=\"plots\"><h2>Plots</h2>\n<div class=\"models\">\n";
  for (const std::string& kind : PlotKinds()) {
    for (const ModelReport* report : reports) {
      html += fmt::format("<figure id=\"{}\"><figcaption>{}{}</figcaption>\n", kind, kind,
                          reports.size() > 1 ? ": " + Escaped(report->name) : "");
      html += CanPlot(*report, kind) ? PlotInline(*report, kind)
              : kind == "plan" ? "<p>Needs a memory plan: <code>--memory-plan host</code>, or of a "
                                 "target.</p>\n"
                               : "<p>Needs ceilings: <code>--ceilings host</code>, or those "
                                 "of a target.</p>\n";
      html += "</figure>\n";
    }
  }
  return html + "</div></section>\n";
}

std::string RulesOf(const ModelReport& report) {
  std::string html = "<section id=\"rules\"><h2>How things are counted</h2>\n<ul>\n";
  for (const std::string& rule : report.rules) html += fmt::format("<li>{}</li>\n", Escaped(rule));
  if (!report.uncounted.empty()) {
    std::vector<std::string> names;
    for (const auto& [op, layers] : report.uncounted)
      names.push_back(fmt::format("{} ({})", op, layers));
    html += fmt::format("<li>not counted: {}</li>\n",
                        Escaped(fmt::format("{}", fmt::join(names, ", "))));
  }
  return html + "</ul></section>\n";
}

bool HasWeights(const ReportList& reports) {
  return std::any_of(reports.begin(), reports.end(),
                     [](const ModelReport* report) { return !report->weights.empty(); });
}

bool HasActivations(const ReportList& reports) {
  return std::any_of(reports.begin(), reports.end(),
                     [](const ModelReport* report) { return !report->activations.empty(); });
}

}  // namespace

std::string ReportPage(const std::vector<const ModelReport*>& reports) {
  const bool both = reports.size() > 1;
  const bool weights = HasWeights(reports), activations = HasActivations(reports);
  const std::string title = both ? reports[0]->name + " and " + reports[1]->name : reports[0]->name;
  std::string body =
      fmt::format("<h1>{}</h1>\n<nav><a href=\"#summary\">Summary</a>\n", Escaped(title));
  if (both) body += "<a href=\"#differences\">Differences</a>\n";
  body +=
      "<a href=\"#graph\">Graph</a>\n<a href=\"#layers\">Layers</a>\n<a "
      "href=\"#plots\">Plots</a>\n";
  if (weights) body += "<a href=\"#weights\">Weights</a>\n";
  if (activations) body += "<a href=\"#activations\">Activations</a>\n";
  body += "<a href=\"#rules\">Rules</a></nav>\n" + SummaryOf(reports);
  if (both) {
    body +=
        "<section id=\"differences\"><h2>Layers by name</h2>\n<div data-differences=\"0\">"
        "</div></section>\n";
  }
  body += Filled("graph", "Graph", reports) + Filled("layers", "Layers", reports);
  body += PlotsOf(reports);
  if (weights) body += Filled("weights", "Weights", reports);
  if (activations) body += Filled("activations", "Activations of one run", reports);
  body += RulesOf(*reports[0]);
  nlohmann::json data = nlohmann::json::array();
  for (const ModelReport* report : reports) data.push_back(PageData(*report));
  body +=
      fmt::format("<script type=\"application/json\" id=\"data\">{}</script>\n",
                  EscapedJson(data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  return ToHtml(
      {title, fmt::format("{}{}", PlotStyle(), kReportStyle), std::string(kReportScript), body});
}

}  // namespace quench::analyser
