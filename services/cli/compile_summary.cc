#include "services/cli/compile_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "services/cli/precision_report.h"
#include "services/codegen/check/report.h"

namespace quench::cli {
namespace {

std::map<std::string, int> KernelCounts(const codegen::CompileReport& report) {
  std::map<std::string, int> kernels;
  for (const codegen::KernelReport& kernel : report.kernels) ++kernels[kernel.kernel];
  return kernels;
}

void PrintSizes(const codegen::CompileReport& report) {
  std::string mix;
  for (const auto& [kernel, count] : KernelCounts(report))
    mix += fmt::format("{}{} {}", mix.empty() ? "" : ", ", count, kernel);
  const auto megabytes = [](int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  // Several variants share most of their weights.
  std::string weights = fmt::format("{:.2f} MB", megabytes(report.weight_bytes));
  if (report.variant_weights.size() > 1) {
    std::vector<std::string> parts;
    for (const codegen::VariantWeights& each : report.variant_weights)
      parts.push_back(fmt::format("{} {:.2f}", each.variant, megabytes(each.bytes)));
    weights += fmt::format(" ({})", fmt::join(parts, ", "));
  }
  fmt::print("  target   {}\n  kernels  {}\n", report.target, mix);
  fmt::print("  size     {:.2f} MB: weights {}, code {:.2f} MB, other {:.2f} MB\n",
             megabytes(report.weight_bytes + report.code_bytes + report.rest_bytes), weights,
             megabytes(report.code_bytes), megabytes(report.rest_bytes));
  if (report.measurement) {
    const codegen::Measurement& measured = *report.measurement;
    fmt::print(
        "  measured {:.3f} ms per run ({:.3f} ms with the kernels first predicted; {} builds, {} "
        "rounds)\n",
        measured.measured_choice_ms, measured.predicted_choice_ms, measured.builds,
        measured.rounds);
  }
  fmt::print("  arena    {:.2f} MB (lower bound {:.2f} MB)", megabytes(report.arena_bytes),
             megabytes(report.arena_lower_bound));
  if (report.device_arena_bytes > 0)
    fmt::print(", on the GPU {:.2f} MB (lower bound {:.2f} MB)",
               megabytes(report.device_arena_bytes), megabytes(report.device_arena_lower_bound));
  fmt::print("\n  uuid     {}\n", report.uuid);
}

void PrintUnusedFeatures(const codegen::CompileReport& report) {
  if (report.unused_features.empty()) return;
  fmt::print("  unused   {}: the generated code uses no instructions of these features\n",
             fmt::join(report.unused_features, ", "));
}

void PrintKeptFloat32(const codegen::CompileReport& report) {
  constexpr size_t kMost = 20;
  const std::vector<passes::KeptFloat32>& kept = report.kept_float32;
  for (size_t i = 0; i < std::min(kept.size(), kMost); ++i)
    fmt::print("  f32      {} ({}): {}\n", kept[i].node, kept[i].op, kept[i].reason);
  if (kept.size() > kMost)
    fmt::print("  f32      and {} more: --export-metadata lists them\n", kept.size() - kMost);
}

void PrintTimes(const codegen::CompileReport& report) {
  double all = 0;
  std::vector<std::string> stages;
  for (const codegen::StageTime& stage : report.stages) {
    all += stage.seconds;
    stages.push_back(fmt::format("{} {:.2f}", stage.stage, stage.seconds));
  }
  if (!stages.empty()) fmt::print("  time     {:.2f} s of CPU: {}\n", all, fmt::join(stages, ", "));
}

// Nodes that are slower than one might expect.
void PrintSlow(const codegen::CompileReport& report) {
  for (const codegen::KernelReport& kernel : report.kernels) {
    if (!kernel.slow.empty()) fmt::print("  slow     {}: {}\n", kernel.node, kernel.slow);
  }
}

}  // namespace

void PrintCompileSummary(const CompileSummary& summary) {
  const codegen::CompileReport& report = summary.report;
  fmt::print("{}\n", summary.library);
  PrintSizes(report);
  if (!summary.key.empty()) fmt::print("  key      {}\n", summary.key);
  if (!summary.runtime.empty()) fmt::print("  runtime  {}\n", summary.runtime);
  if (report.check) fmt::print("  check    {}\n", codegen::CheckText(*report.check));
  PrintTimes(report);
  if (!summary.hint.empty()) fmt::print("  hint     {}\n", summary.hint);
  PrintUnusedFeatures(report);
  if (summary.precision != nullptr) {
    if (summary.quantized) PrintWarnings(summary.quantized->report);
    fmt::print("{}", PrecisionText(*summary.precision));
  } else if (summary.quantized) {
    PrintLayers(*summary.quantized);
  }
  PrintKeptFloat32(report);
  PrintSlow(report);
}

nlohmann::json CompileSummaryToJson(const CompileSummary& summary) {
  const codegen::CompileReport& report = summary.report;
  nlohmann::json json = {{"library", summary.library},
                         {"target", report.target},
                         {"uuid", report.uuid},
                         {"kernels", KernelCounts(report)},
                         {"bytes", report.weight_bytes + report.code_bytes + report.rest_bytes},
                         {"weight_bytes", report.weight_bytes},
                         {"code_bytes", report.code_bytes},
                         {"arena_bytes", report.arena_bytes},
                         {"arena_lower_bound", report.arena_lower_bound},
                         {"unused_features", report.unused_features},
                         {"kept_float32", nlohmann::json::array()},
                         {"slow", nlohmann::json::array()}};
  if (report.device_arena_bytes > 0) {
    json["device_arena_bytes"] = report.device_arena_bytes;
    json["device_arena_lower_bound"] = report.device_arena_lower_bound;
  }
  if (!summary.key.empty()) json["key"] = summary.key;
  if (!summary.runtime.empty()) json["runtime"] = summary.runtime;
  if (!summary.hint.empty()) json["hint"] = summary.hint;
  if (report.check) json["check"] = codegen::CheckText(*report.check);
  for (const codegen::StageTime& stage : report.stages)
    json["cpu_seconds"][stage.stage] = stage.seconds;
  if (report.measurement) {
    json["measurement"] = {{"measured_choice_ms", report.measurement->measured_choice_ms},
                           {"predicted_choice_ms", report.measurement->predicted_choice_ms},
                           {"builds", report.measurement->builds},
                           {"rounds", report.measurement->rounds}};
  }
  if (summary.precision != nullptr) json["precision"] = PrecisionToJson(*summary.precision);
  if (summary.quantized) json["quantized_layers"] = summary.quantized->report.layers.size();
  for (const passes::KeptFloat32& kept : report.kept_float32)
    json["kept_float32"].push_back({{"node", kept.node}, {"op", kept.op}, {"reason", kept.reason}});
  for (const codegen::KernelReport& kernel : report.kernels) {
    if (!kernel.slow.empty())
      json["slow"].push_back({{"node", kernel.node}, {"reason", kernel.slow}});
  }
  return json;
}

}  // namespace quench::cli
