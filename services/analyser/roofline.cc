#include "services/analyser/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "services/analyser/table_text.h"

namespace quench::analyser {
namespace {

constexpr size_t kWidestNode = 52;

// Sums over the layers with one bound.
struct BoundSum {
  int64_t layers = 0;
  double seconds = 0;
};

BoundSum SumOf(const ModelReport& report, const std::string& bound) {
  BoundSum sum;
  for (const LayerReport& layer : report.layers) {
    if (layer.bound != bound) continue;
    ++sum.layers;
    sum.seconds += layer.predicted_seconds;
  }
  return sum;
}

}  // namespace

absl::Status CheckCeilings(const Ceilings& ceilings) {
  StatusCollector problems;
  for (const auto& [name, value] :
       {std::pair{"gflops", ceilings.gflops}, std::pair{"gbytes", ceilings.gbytes}}) {
    if (!std::isfinite(value) || value <= 0)
      problems.Add(InvalidArgument("ceilings: {} is {}, must be above 0 and finite", name, value));
  }
  return problems.Finish();
}

int64_t MovedBytes(const std::string& op, const LayerReport& layer) {
  const ops::OpDef* definition = ops::FindOp(op);
  if (definition != nullptr && definition->kind == ops::OpKind::kView) return 0;
  const int64_t read = layer.input_bytes + layer.work.weight_bytes + layer.shared_weight_bytes;
  const int64_t written = layer.work.activation_bytes;
  return (layer.work.flops == 0 ? std::min(read, written) : read) + written;
}

double Intensity(int64_t flops, int64_t moved_bytes) {
  return moved_bytes == 0 ? 0 : static_cast<double>(flops) / static_cast<double>(moved_bytes);
}

void AddPredictions(const Ceilings& ceilings, ModelReport& report) {
  report.ceilings = ceilings;
  report.predicted_seconds = 0;
  for (LayerReport& layer : report.layers) {
    const double compute = static_cast<double>(layer.work.flops) / (1e9 * ceilings.gflops);
    const double memory = static_cast<double>(layer.moved_bytes) / (1e9 * ceilings.gbytes);
    layer.predicted_seconds = std::max(compute, memory);
    layer.bound = layer.predicted_seconds == 0 ? "" : compute > memory ? "compute" : "memory";
    report.predicted_seconds += layer.predicted_seconds;
  }
}

std::string RooflineTable(const ModelReport& report) {
  TextTable table;
  for (const auto& [name, number] :
       {std::pair{"layer", false}, std::pair{"flops", true}, std::pair{"bytes", true},
        std::pair{"flops/byte", true}, std::pair{"predicted us", true}, std::pair{"share", true},
        std::pair{"bound", false}})
    table.AddColumn(name, number);
  const double all = std::max(report.predicted_seconds, 1e-300);
  const auto add = [&](const std::string& name, int64_t flops, int64_t bytes, double seconds,
                       const std::string& bound) {
    table.AddRow({name, Grouped(flops), Grouped(bytes),
                  fmt::format("{:.2f}", Intensity(flops, bytes)),
                  fmt::format("{:.2f}", 1e6 * seconds),
                  fmt::format("{:.1f} %", 100 * seconds / all), bound});
  };
  for (const LayerReport& layer : report.layers) {
    add(CutInFront(layer.node, kWidestNode), layer.work.flops, layer.moved_bytes,
        layer.predicted_seconds, layer.bound);
  }
  add("total", report.work.flops, report.moved_bytes, report.predicted_seconds, "");
  if (!report.ceilings) return table.Text();
  const BoundSum compute = SumOf(report, "compute"), memory = SumOf(report, "memory");
  return table.Text() +
         fmt::format(
             "ceilings          {}: {:.1f} GFLOP/s, {:.1f} GB/s, computing takes longer above "
             "{:.1f} flops/byte\n"
             "ceilings from     {}\n"
             "predicted         {:.3f} ms at least: {} layers by computing {:.3f} ms, {} by memory "
             "{:.3f} ms\n",
             report.ceilings->name, report.ceilings->gflops, report.ceilings->gbytes,
             report.ceilings->ridge(), report.ceilings->source, 1e3 * report.predicted_seconds,
             compute.layers, 1e3 * compute.seconds, memory.layers, 1e3 * memory.seconds);
}

}  // namespace quench::analyser
