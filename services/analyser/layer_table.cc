// The tree of layers for people.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "services/analyser/layer_tree.h"
#include "services/analyser/roofline.h"
#include "services/analyser/table_text.h"

namespace quench::analyser {
namespace {

constexpr size_t kWidestName = 52, kWidestShapes = 40;

// `layer`: of the row, or the one that the text of a scope is taken from.
struct Column {
  const char* name;
  bool number;
  std::string (*text)(const ModelReport& report, const TreeRow& row);
};

const LayerReport& LayerAt(const ModelReport& report, int index) {
  return report.layers[static_cast<size_t>(index)];
}

std::string Share(int64_t part, int64_t all) {
  return all == 0
             ? "-"
             : fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(all));
}

// Scopes have the input of their first layer and the output of their last one.
const std::vector<Column>& AllColumns() {
  static const auto* const columns = new std::vector<Column>{
      {"op", false,
       [](const ModelReport& report, const TreeRow& row) {
         return row.layer < 0 ? std::string() : LayerAt(report, row.layer).op;
       }},
      {"kind", false,
       [](const ModelReport& report, const TreeRow& row) {
         return row.layer < 0 ? std::string() : LayerAt(report, row.layer).kind;
       }},
      {"kernel", false,
       [](const ModelReport& report, const TreeRow& row) {
         return row.layer < 0 ? std::string() : LayerAt(report, row.layer).kernel;
       }},
      {"input", false,
       [](const ModelReport& report, const TreeRow& row) {
         return CutAtEnd(fmt::format("{}", fmt::join(LayerAt(report, row.first).inputs, " ")),
                         kWidestShapes);
       }},
      {"output", false,
       [](const ModelReport& report, const TreeRow& row) {
         return CutAtEnd(fmt::format("{}", fmt::join(LayerAt(report, row.last).outputs, " ")),
                         kWidestShapes);
       }},
      {"parameters", true,
       [](const ModelReport&, const TreeRow& row) { return Grouped(row.work.parameters); }},
      {"weights", true,
       [](const ModelReport&, const TreeRow& row) { return Grouped(row.work.weight_bytes); }},
      {"macs", true, [](const ModelReport&, const TreeRow& row) { return Grouped(row.work.macs); }},
      {"macs-with-bias", true,
       [](const ModelReport&, const TreeRow& row) { return Grouped(row.work.macs_with_bias); }},
      {"macs-without-padding", true,
       [](const ModelReport&, const TreeRow& row) {
         return Grouped(row.work.macs_without_padding);
       }},
      {"share", true,
       [](const ModelReport& report, const TreeRow& row) {
         return Share(row.work.macs, report.work.macs);
       }},
      {"operations", true,
       [](const ModelReport&, const TreeRow& row) { return Grouped(row.work.operations); }},
      {"flops", true,
       [](const ModelReport&, const TreeRow& row) { return Grouped(row.work.flops); }},
      {"activations", true,
       [](const ModelReport&, const TreeRow& row) { return Grouped(row.work.activation_bytes); }},
      {"live", true,
       [](const ModelReport& report, const TreeRow& row) {
         int64_t most = 0;
         for (int i = row.first; i <= row.last; ++i)
           most = std::max(most, LayerAt(report, i).live_bytes);
         return Grouped(most);
       }},
      {"moved", true,
       [](const ModelReport&, const TreeRow& row) { return Grouped(row.moved_bytes); }},
      {"intensity", true,
       [](const ModelReport&, const TreeRow& row) {
         return fmt::format("{:.2f}", Intensity(row.work.flops, row.moved_bytes));
       }},
      {"predicted", true,
       [](const ModelReport&, const TreeRow& row) {
         return fmt::format("{:.2f} us", 1e6 * row.predicted_seconds);
       }},
      {"bound", false,
       [](const ModelReport& report, const TreeRow& row) {
         return row.layer < 0 ? std::string() : LayerAt(report, row.layer).bound;
       }},
  };
  return *columns;
}

std::vector<Column> ChosenColumns(const std::vector<std::string>& names) {
  static const std::vector<std::string> usual = {"op",   "output", "parameters", "weights",
                                                 "macs", "share",  "activations"};
  std::vector<Column> chosen;
  for (const std::string& name : names.empty() ? usual : names) {
    for (const Column& column : AllColumns()) {
      if (column.name == name) chosen.push_back(column);
    }
  }
  return chosen;
}

}  // namespace

const std::vector<std::string>& Columns() {
  static const auto* const names = [] {
    auto* all = new std::vector<std::string>;
    for (const Column& column : AllColumns()) all->emplace_back(column.name);
    return all;
  }();
  return *names;
}

bool NeedsCeilings(const std::string& column) { return column == "predicted" || column == "bound"; }

std::string LayerTable(const ModelReport& report, const TableOptions& options) {
  const std::vector<Column> columns = ChosenColumns(options.columns);
  TextTable table;
  table.AddColumn("layer", /*number=*/false);
  for (const Column& column : columns) table.AddColumn(column.name, column.number);
  for (const TreeRow& row : LayerTree(report, options.depth)) {
    const size_t indent = 2 * static_cast<size_t>(std::min(row.depth - 1, 12));
    std::vector<std::string> cells = {std::string(indent, ' ') +
                                      CutInFront(row.name, kWidestName - indent)};
    for (const Column& column : columns) cells.push_back(column.text(report, row));
    table.AddRow(std::move(cells));
  }
  return table.Text();
}

}  // namespace quench::analyser
