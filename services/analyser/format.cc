// A ModelReport as text for people.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "services/analyser/analyser.h"
#include "services/analyser/layer_tree.h"
#include "services/analyser/listings.h"
#include "services/analyser/roofline.h"
#include "services/analyser/table_text.h"

namespace quench::analyser {
namespace {

struct Listing {
  const char* name;
  std::string (*text)(const ModelReport& report, const TableOptions& options);
};

const std::vector<Listing>& AllListings() {
  static const auto* const listings = new std::vector<Listing>{
      {"layers", [](const ModelReport& report,
                    const TableOptions& options) { return LayerTable(report, options); }},
      {"bandwidth",
       [](const ModelReport& report, const TableOptions&) { return BandwidthTable(report); }},
      {"roofline",
       [](const ModelReport& report, const TableOptions&) { return RooflineTable(report); }},
      {"timeline",
       [](const ModelReport& report, const TableOptions&) { return TimelineTable(report); }},
      {"plan", [](const ModelReport& report, const TableOptions&) { return PlanTable(report); }},
  };
  return *listings;
}

// " (i8 25,502,912, i32 27,560)"; nothing where all are f32.
std::string Types(const std::map<std::string, int64_t>& parameters) {
  if (parameters.empty() || (parameters.size() == 1 && parameters.contains("f32"))) return "";
  std::vector<std::string> parts;
  for (const auto& [type, count] : parameters)
    parts.push_back(fmt::format("{} {}", type, Grouped(count)));
  return fmt::format(" ({})", fmt::join(parts, ", "));
}

std::string OperatorTable(const ModelReport& report) {
  TextTable table;
  for (const auto& [name, number] :
       {std::pair{"operator", false}, std::pair{"kind", false}, std::pair{"layers", true},
        std::pair{"macs", true}, std::pair{"with bias", true}, std::pair{"no padding", true},
        std::pair{"operations", true}, std::pair{"with padding", true}, std::pair{"flops", true},
        std::pair{"parameters", true}, std::pair{"weights", true}, std::pair{"activations", true}})
    table.AddColumn(name, number);
  const auto add = [&table](const std::string& name, const std::string& kind, int64_t layers,
                            const Work& work) {
    table.AddRow({name, kind, Grouped(layers), Grouped(work.macs), Grouped(work.macs_with_bias),
                  Grouped(work.macs_without_padding), Grouped(work.operations),
                  Grouped(work.operations_with_padding), Grouped(work.flops),
                  Grouped(work.parameters), Grouped(work.weight_bytes),
                  Grouped(work.activation_bytes)});
  };
  for (const OperatorReport& each : report.by_operator)
    add(each.op, each.kind, each.layers, each.work);
  add("total", "", static_cast<int64_t>(report.layers.size()), report.work);
  return table.Text();
}

// 1498377192: "(G): 1.50"
std::string Scaled(int64_t count) {
  for (const auto& [unit, scale] :
       {std::pair{"T", 1e12}, std::pair{"G", 1e9}, std::pair{"M", 1e6}, std::pair{"k", 1e3}}) {
    if (static_cast<double>(count) >= scale)
      return fmt::format("({}): {:.2f}", unit, static_cast<double>(count) / scale);
  }
  return fmt::format(": {}", count);
}

// As torchinfo prints it.
std::string TotalsBlock(const ModelReport& report) {
  const std::string line(78, '=');
  const int64_t sum = report.input_bytes + report.forward_backward_bytes + report.work.weight_bytes;
  const auto megabytes = [](int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  return fmt::format(
      "{0}\nTotal params: {1}\nTrainable params: {2}\nNon-trainable params: {3}\n"
      "Total mult-adds {4}\n{0}\nInput size (MB): {5:.2f}\n"
      "Forward/backward pass size (MB): {6:.2f}\nParams size (MB): {7:.2f}\n"
      "Estimated Total Size (MB): {8:.2f}\n{0}\n",
      line, Grouped(report.work.parameters), Grouped(report.trainable_parameters),
      Grouped(report.work.parameters - report.trainable_parameters),
      Scaled(report.work.macs_with_bias), megabytes(report.input_bytes),
      megabytes(report.forward_backward_bytes), megabytes(report.work.weight_bytes),
      megabytes(sum));
}

std::string MacsSummary(const ModelReport& report) {
  const Work& work = report.work;
  std::string text =
      fmt::format("macs              {} ({:.3f} G), with bias {}, without padding {}\n",
                  Grouped(work.macs), static_cast<double>(work.macs) / 1e9,
                  Grouped(work.macs_with_bias), Grouped(work.macs_without_padding));
  for (const auto& [op, macs] : report.macs_by_op) {
    const double share =
        static_cast<double>(macs) / static_cast<double>(std::max<int64_t>(work.macs, 1));
    text +=
        fmt::format("  {:<15} {:>16} {:>5.1f} % {}\n", op, Grouped(macs), 100 * share, Bar(share));
  }
  return text + fmt::format("flops             {}\n", Grouped(work.flops));
}

std::string OperatorCounts(const ModelReport& report) {
  std::string text = "operators\n";
  std::vector<std::pair<std::string, int64_t>> operators(report.operators.begin(),
                                                         report.operators.end());
  std::stable_sort(operators.begin(), operators.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [op, count] : operators) {
    text += fmt::format(
        "  {:<22} {:>6} {}\n", op, count,
        Bar(static_cast<double>(count) / static_cast<double>(operators.front().second)));
  }
  return text;
}

std::string Summary(const ModelReport& report, bool rules) {
  std::string text;
  for (const auto& [name, type] : report.inputs)
    text += fmt::format("input             {}: {}\n", name, type);
  for (const auto& [name, type] : report.outputs)
    text += fmt::format("output            {}: {}\n", name, type);
  text += fmt::format("parameters        {}{} (shared {}, buffers {})\nweights           {}\n",
                      Grouped(report.work.parameters), Types(report.parameters_by_type),
                      Grouped(report.shared_parameters), Grouped(report.buffers),
                      Megabytes(report.work.weight_bytes));
  text += MacsSummary(report);
  text +=
      fmt::format("activations       {} in all, {} at peak, {} with pools' padding\n",
                  Megabytes(report.work.activation_bytes), Megabytes(report.peak_activation_bytes),
                  Megabytes(report.nested_activation_bytes));
  if (report.memory_plan) text += ArenaLine(*report.memory_plan);
  text += OperatorCounts(report);
  text += fmt::format("fingerprint       {}\nstructure         {}\n", report.fingerprint,
                      report.structure_hash);
  for (const auto& [name, size] : report.symbol_sizes)
    text += fmt::format("counted at        {} = {}\n", name, size);
  for (const auto& [op, layers] : report.uncounted)
    text += fmt::format("not counted       {} ({})\n", op, layers);
  if (!rules) return text;
  for (const std::string& rule : report.rules) text += fmt::format("rule              {}\n", rule);
  return text;
}

}  // namespace

const std::vector<std::string>& Listings() {
  static const auto* const names = [] {
    auto* all = new std::vector<std::string>;
    for (const Listing& listing : AllListings()) all->emplace_back(listing.name);
    return all;
  }();
  return *names;
}

std::string ToTable(const ModelReport& report, const TableOptions& options) {
  std::string text;
  for (const Listing& listing : AllListings()) {
    if (listing.name == options.listing) text = listing.text(report, options);
  }
  if (!report.weights.empty()) text += "\n" + WeightsTable(report);
  if (options.listing != "layers") return text;
  return text + "\n" + OperatorTable(report) + "\n" + TotalsBlock(report) +
         Summary(report, options.rules);
}

}  // namespace quench::analyser
