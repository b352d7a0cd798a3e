#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "common/runner/open_sizes.h"
#include "services/analyser/json_number.h"
#include "services/analyser/verify.h"

namespace quench::analyser {
namespace {

constexpr size_t kMostNames = 8;  // of a list within a sentence

std::string Tolerance(const ValueError& value) {
  if (value.tolerance == 0) return fmt::format("bit for bit ({})", DataTypeName(value.type));
  return fmt::format("{:.3g} ({})", value.tolerance, DataTypeName(value.type));
}

void PrintValues(const char* title, const std::vector<ValueError>& values, std::string& text) {
  if (values.empty()) return;
  text += fmt::format("{:<48} {:>12}  {}\n", title, "error", "tolerance");
  for (const ValueError& value : values) {
    text += fmt::format("{:<48} {:>12.3g}  {}{}\n", value.name, value.error, Tolerance(value),
                        value.passed() ? "" : "  OUT OF TOLERANCE");
  }
}

// "name, name, name and 5 more".
std::string Names(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMostNames); ++i)
    text += fmt::format("{}`{}`", i == 0 ? "" : ", ", names[i]);
  if (names.size() > kMostNames) text += fmt::format(" and {} more", names.size() - kMostNames);
  return text;
}

void PrintLayers(const LayersReport& layers, const std::string& device, std::string& text) {
  if (!layers.compared) return;
  PrintValues("layer", layers.values, text);
  if (!layers.without_counterpart.empty()) {
    text += fmt::format("{} values of the library have no counterpart in the graph: {}\n",
                        layers.without_counterpart.size(), Names(layers.without_counterpart));
  }
  if (layers.values.empty()) text += "no layer could be compared\n";
  if (layers.device != device) {
    text += fmt::format("layers are those of a build for `{}`; the library ran on `{}`\n",
                        layers.device, device);
  }
}

const char* Verdict(bool passed) { return passed ? "verified" : "MISMATCH"; }

// A level-0 build shares importer and code generator with what it is held against.
std::string OracleText(const std::string& oracle) {
  return oracle == "interpreter" ? "the interpreter"
                                 : "code built at level 0, in place of the interpreter";
}

void PrintKernels(const KernelsReport& kernels, const std::string& device, int samples,
                  std::string& text) {
  PrintLayers(kernels.layers, device, text);
  PrintValues("output", kernels.outputs, text);
  text += fmt::format("kernels   {} samples of the rewritten graph, against {}: {}\n", samples,
                      OracleText(kernels.oracle), Verdict(kernels.passed));
}

void PrintFailures(const RewritesReport& rewrites, std::string& text) {
  for (const GroupFailure& each : rewrites.failures) {
    text += fmt::format(
        "node `{}`: {} of {} integers of `{}` are wrong; the worst, element {}, is {} where the "
        "model has {:.6g} before rounding\n",
        each.node, each.wrong, each.elements, each.value, each.index, each.actual, each.expected);
  }
}

std::string Decibels(double sqnr) {
  return std::isinf(sqnr) && sqnr > 0 ? "no difference" : fmt::format("SQNR {:.1f} dB", sqnr);
}

void PrintRewrites(const RewritesReport& rewrites, int samples, std::string& text) {
  PrintFailures(rewrites, text);
  for (const OutputReport& output : rewrites.outputs) {
    const ValueError& value = output.value;
    text += fmt::format("{:<48} {:>12}  {}\n", value.name, Decibels(output.sqnr_db),
                        rewrites.quantized ? "against the model in float, before any pass"
                                           : "against the model before any pass");
    if (!rewrites.checked || value.passed()) continue;
    text +=
        fmt::format("{:<48} {:>12.3g}  {}  OUT OF TOLERANCE\n", "", value.error, Tolerance(value));
  }
  if (!rewrites.without_counterpart.empty()) {
    text += fmt::format(
        "{} quantized values of the model are computed inside the groups of others: {}\n",
        rewrites.without_counterpart.size(), Names(rewrites.without_counterpart));
  }
  if (!rewrites.checked) {
    text += fmt::format("rewrites  not checked: {}\n", rewrites.reason);
  } else if (rewrites.quantized) {
    text += fmt::format(
        "rewrites  {} samples, {} groups of integers, {} integers, {} of them the other side of a "
        "tie, against the model's Q/DQ form by the interpreter: {}\n",
        samples, rewrites.groups, rewrites.elements, rewrites.ties, Verdict(rewrites.passed));
  } else {
    text += fmt::format(
        "rewrites  {} samples, against the model before any pass, by the "
        "interpreter: {}\n",
        samples, Verdict(rewrites.passed));
  }
}

void PrintMagnitudes(const MagnitudeReport& report, std::string& text) {
  const std::string_view type = DataTypeName(report.type);
  if (!report.checked) {
    text += fmt::format("magnitudes  {}: not checked: {}\n", type, report.reason);
    return;
  }
  PrintValues("output, near the end of the range", report.outputs, text);
  const std::string inputs = report.given ? std::string("inputs as wide as given")
                                          : fmt::format("inputs times 2^{}", report.exponent);
  text += fmt::format("magnitudes  {}: {}, `{}` comes to {:.4g} of {:.6g}{}: {}\n", type, inputs,
                      report.value, report.magnitude, report.limit,
                      report.outputs.empty() ? ", among the samples of both"
                                             : ", against the model before any pass",
                      Verdict(report.passed));
  if (!report.first.empty())
    text += fmt::format("`{}` is the first that is not finite in the library\n", report.first);
}

nlohmann::json ToJson(const ValueError& value) {
  return {{"name", value.name},
          {"error", JsonNumber(value.error)},
          {"tolerance", value.tolerance},
          {"type", DataTypeName(value.type)}};
}

nlohmann::json ToJson(const std::vector<ValueError>& values) {
  nlohmann::json list = nlohmann::json::array();
  for (const ValueError& value : values) list.push_back(ToJson(value));
  return list;
}

nlohmann::json ToJson(const KernelsReport& kernels) {
  return {{"passed", kernels.passed},
          {"oracle", kernels.oracle},
          {"outputs", ToJson(kernels.outputs)},
          {"layers", ToJson(kernels.layers.values)},
          {"layers_device", kernels.layers.device},
          {"layers_without_counterpart", kernels.layers.without_counterpart},
          {"first_layer", kernels.layers.first},
          {"worst_layer", kernels.layers.worst}};
}

nlohmann::json ToJson(const std::vector<MagnitudeReport>& reports) {
  nlohmann::json list = nlohmann::json::array();
  for (const MagnitudeReport& each : reports) {
    nlohmann::json entry = {{"type", DataTypeName(each.type)}, {"checked", each.checked}};
    if (!each.checked) {
      entry["reason"] = each.reason;
    } else {
      entry["passed"] = each.passed;
      if (each.given) {
        entry["inputs"] = "given";
      } else {
        entry["inputs_times"] = std::ldexp(1, each.exponent);
      }
      entry["value"] = each.value;
      entry["magnitude"] = JsonNumber(each.magnitude);
      entry["limit"] = each.limit;
      entry["outputs"] = ToJson(each.outputs);
      if (!each.first.empty()) entry["first_not_finite"] = each.first;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

nlohmann::json ToJson(const RewritesReport& rewrites) {
  nlohmann::json failures = nlohmann::json::array(), outputs = nlohmann::json::array();
  for (const GroupFailure& each : rewrites.failures) {
    failures.push_back({{"node", each.node},
                        {"value", each.value},
                        {"wrong", each.wrong},
                        {"elements", each.elements},
                        {"worst_index", each.index},
                        {"actual", each.actual},
                        {"expected", JsonNumber(each.expected)}});
  }
  for (const OutputReport& output : rewrites.outputs) {
    nlohmann::json entry = ToJson(output.value);
    entry["sqnr_db"] = JsonNumber(output.sqnr_db);
    outputs.push_back(std::move(entry));
  }
  nlohmann::json json = {{"checked", rewrites.checked},
                         {"passed", rewrites.passed},
                         {"oracle", "interpreter"},
                         {"quantized", rewrites.quantized},
                         {"groups", rewrites.groups},
                         {"elements", rewrites.elements},
                         {"ties", rewrites.ties},
                         {"failures", failures},
                         {"without_counterpart", rewrites.without_counterpart},
                         {"outputs", outputs}};
  if (!rewrites.checked) json["reason"] = rewrites.reason;
  return json;
}

}  // namespace

std::string ToTable(const VerifyReport& report, int samples) {
  std::string text;
  if (!report.sizes.empty()) text += fmt::format("sizes      {}\n", SizesText(report.sizes));
  if (!report.device.empty() && report.device != "cpu")
    text += fmt::format("device     {}\n", report.device);
  PrintKernels(report.kernels, report.device, samples, text);
  PrintRewrites(report.rewrites, samples, text);
  for (const MagnitudeReport& each : report.magnitudes) PrintMagnitudes(each, text);
  return text;
}

std::string ToJson(const VerifyReport& report, int samples) {
  const nlohmann::json json = {{"passed", report.passed},
                               {"samples", samples},
                               {"sizes", report.sizes},
                               {"device", report.device},
                               {"kernels", ToJson(report.kernels)},
                               {"rewrites", ToJson(report.rewrites)},
                               {"magnitudes", ToJson(report.magnitudes)}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace quench::analyser
