#include "services/analyser/listings.h"

#include <fmt/format.h>

#include <algorithm>

#include "services/analyser/table_text.h"

namespace quench::analyser {
namespace {

constexpr size_t kWidestLabel = 52;

int64_t BandwidthOf(const LayerReport& layer) {
  return layer.first_input_bytes + layer.first_output_bytes;
}

std::string Percent(int64_t part, int64_t all) {
  return fmt::format(
      "{:.2f} %", 100 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(all, 1)));
}

}  // namespace

Bandwidth BandwidthOf(const ModelReport& report) {
  Bandwidth sums;
  for (size_t i = 0; i < report.layers.size(); ++i) {
    const LayerReport& layer = report.layers[i];
    sums.inputs += layer.first_input_bytes;
    sums.outputs += layer.first_output_bytes;
    if (sums.peak_layer >= 0 && BandwidthOf(layer) <= sums.peak) continue;
    sums.peak_layer = static_cast<int>(i);
    sums.peak = BandwidthOf(layer);
  }
  sums.outputs_and_input =
      sums.outputs + (report.layers.empty() ? 0 : report.layers[0].first_input_bytes);
  return sums;
}

std::string BandwidthTable(const ModelReport& report) {
  TextTable table;
  table.AddColumn("layer", /*number=*/false);
  for (const char* name : {"input bytes", "output bytes", "bandwidth"})
    table.AddColumn(name, /*number=*/true);
  for (const LayerReport& layer : report.layers) {
    table.AddRow({CutInFront(layer.node, kWidestLabel), Grouped(layer.first_input_bytes),
                  Grouped(layer.first_output_bytes), Grouped(BandwidthOf(layer))});
  }
  const Bandwidth sums = BandwidthOf(report);
  table.AddRow({"total", Grouped(sums.inputs), Grouped(sums.outputs), ""});
  table.AddRow({"total with the model's input", "", "", Grouped(sums.outputs_and_input)});
  std::string text = table.Text();
  if (sums.peak_layer >= 0) {
    text +=
        fmt::format("peak layer        {}: {} bytes\n",
                    report.layers[static_cast<size_t>(sums.peak_layer)].node, Grouped(sums.peak));
  }
  return text;
}

std::string TimelineTable(const ModelReport& report) {
  TextTable layers;
  layers.AddColumn("#", /*number=*/true);
  layers.AddColumn("layer", /*number=*/false);
  layers.AddColumn("live bytes", /*number=*/true);
  layers.AddColumn("of peak", /*number=*/false);
  const auto peak = static_cast<double>(std::max<int64_t>(report.peak_activation_bytes, 1));
  for (size_t i = 0; i < report.layers.size(); ++i) {
    const LayerReport& layer = report.layers[i];
    layers.AddRow({std::to_string(i), CutInFront(layer.node, kWidestLabel),
                   Grouped(layer.live_bytes), Bar(static_cast<double>(layer.live_bytes) / peak)});
  }
  TextTable values;
  for (const auto& [name, number] :
       {std::pair{"value", false}, std::pair{"type", false}, std::pair{"bytes", true},
        std::pair{"from", true}, std::pair{"to", true}})
    values.AddColumn(name, number);
  for (const ValueLife& value : report.values) {
    values.AddRow({CutInFront(value.name, kWidestLabel), CutAtEnd(value.type, kWidestLabel),
                   Grouped(value.bytes), value.first < 0 ? "input" : std::to_string(value.first),
                   value.last < 0 ? "unread" : std::to_string(value.last)});
  }
  return layers.Text() + "\n" + values.Text();
}

std::string ArenaLine(const MemoryPlan& plan) {
  return fmt::format("arena             {} for {}, at least {}\n", Megabytes(plan.arena_bytes),
                     plan.target, Megabytes(plan.lower_bound_bytes));
}

std::string PlanTable(const ModelReport& report) {
  if (!report.memory_plan) return "";
  const MemoryPlan& plan = *report.memory_plan;
  TextTable kernels, buffers;
  for (const auto& [name, number] : {std::pair{"#", true}, std::pair{"kernel of", false},
                                     std::pair{"used bytes", true}, std::pair{"of arena", false}})
    kernels.AddColumn(name, number);
  const auto arena = static_cast<double>(std::max<int64_t>(plan.arena_bytes, 1));
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const MemoryPlan::Kernel& kernel = plan.kernels[i];
    kernels.AddRow({std::to_string(i), CutInFront(kernel.node, kWidestLabel),
                    Grouped(kernel.used_bytes),
                    Bar(static_cast<double>(kernel.used_bytes) / arena)});
  }
  for (const auto& [name, number] :
       {std::pair{"values", false}, std::pair{"offset", true}, std::pair{"bytes", true},
        std::pair{"from", true}, std::pair{"to", true}})
    buffers.AddColumn(name, number);
  for (const MemoryPlan::Buffer& buffer : plan.buffers) {
    buffers.AddRow({CutAtEnd(buffer.values, kWidestLabel), Grouped(buffer.offset),
                    Grouped(buffer.bytes), std::to_string(buffer.first),
                    std::to_string(buffer.last)});
  }
  return kernels.Text() + "\n" + buffers.Text() + ArenaLine(plan);
}

std::string WeightsTable(const ModelReport& report) {
  TextTable table;
  for (const auto& [name, number] :
       {std::pair{"weight", false}, std::pair{"type", false}, std::pair{"layer", false},
        std::pair{"zeros", true}, std::pair{"min", true}, std::pair{"max", true},
        std::pair{"mean", true}, std::pair{"std", true}, std::pair{"not finite", true},
        std::pair{"histogram", false}})
    table.AddColumn(name, number);
  int64_t zeros = 0, elements = 0;
  for (const WeightReport& weight : report.weights) {
    zeros += weight.zeros;
    elements += weight.elements;
    table.AddRow({CutInFront(weight.name, kWidestLabel), weight.type,
                  CutInFront(weight.layer, kWidestLabel), Percent(weight.zeros, weight.elements),
                  fmt::format("{:.4g}", weight.min), fmt::format("{:.4g}", weight.max),
                  fmt::format("{:.4g}", weight.mean), fmt::format("{:.4g}", weight.std),
                  Grouped(weight.not_finite), "[" + Drawn(weight.histogram) + "]"});
  }
  return table.Text() + fmt::format("sparsity          {} of {} elements are zero ({})\n",
                                    Grouped(zeros), Grouped(elements), Percent(zeros, elements));
}

}  // namespace quench::analyser
