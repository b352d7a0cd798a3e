#include "services/cli/other_runtimes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace quench::cli {
namespace {

struct OtherRuntime {
  const char* name;
  const char* activations;
  const char* kernels;
  const char* biases;
  bool per_channel, symmetric;
  bool single_operators;
};

// Ranges are static for all: none computes DynamicQuantizeLinear with DequantizeLinear in integers.
constexpr std::array kRuntimes = {
    // It replaces each product between integers by a QLinear operator, and leaves one in float that
    // a residual sum follows in float.
    OtherRuntime{"onnxruntime", "uint8", "int8", "int32", false, false, true},
    // Its default settings refuse i8 activations on CPUs with AMX. It fuses residual sums itself.
    OtherRuntime{"openvino", "uint8", "int8", "int32", false, false, false},
    // From its documentation, not tried: zero points are 0, DequantizeLinear takes no i32.
    OtherRuntime{"tensorrt", "int8", "int8", "float32", true, true, false},
};

const OtherRuntime* Find(const std::string& name) {
  const auto* const found =
      std::find_if(kRuntimes.begin(), kRuntimes.end(),
                   [&](const OtherRuntime& each) { return each.name == name; });
  return found == kRuntimes.end() ? nullptr : found;
}

bool IsOnnx(const std::filesystem::path& output) { return output.extension() == ".onnx"; }

bool Has(const std::vector<std::string>& given, const char* option) {
  return std::find(given.begin(), given.end(), option) != given.end();
}

// An option that a runtime decides about, and the variable that holds it.
struct Wanted {
  const char* option;
  const char* value;
  std::string QuantizeFlags::* variable;
};
std::array<Wanted, 4> WantedBy(const OtherRuntime& runtime) {
  return {{{"--activation-dtype", runtime.activations, &QuantizeFlags::activation_dtype},
           {"--kernel-dtype", runtime.kernels, &QuantizeFlags::kernel_dtype},
           {"--bias-dtype", runtime.biases, &QuantizeFlags::bias_dtype},
           {"--type", "static", &QuantizeFlags::type}}};
}

}  // namespace

std::vector<std::string> OtherRuntimes() {
  std::vector<std::string> names;
  for (const OtherRuntime& runtime : kRuntimes) names.emplace_back(runtime.name);
  return names;
}

std::string ProblemOfRuntime(const std::string& runtime, const std::filesystem::path& output,
                             const std::vector<std::string>& given, const QuantizeFlags& flags) {
  const OtherRuntime* const found = Find(runtime);
  if (found == nullptr) return "";
  if (!IsOnnx(output)) {
    return fmt::format("--for {} needs an ONNX file: --output `{}` must end in .onnx", runtime,
                       output.string());
  }
  std::string problems;
  for (const Wanted& wanted : WantedBy(*found)) {
    const std::string& value = flags.*wanted.variable;
    if (!Has(given, wanted.option) || value == wanted.value) continue;
    problems += fmt::format("{}--for {} requires {} {}, not {} {}", problems.empty() ? "" : "; ",
                            runtime, wanted.option, wanted.value, wanted.option, value);
  }
  return problems;
}

void FillTypes(const std::string& runtime, const std::filesystem::path& output,
               const std::vector<std::string>& given, QuantizeFlags& flags) {
  if (const OtherRuntime* const found = Find(runtime)) {
    for (const Wanted& wanted : WantedBy(*found)) flags.*wanted.variable = wanted.value;
    flags.options.per_channel |= found->per_channel;
    flags.options.symmetric |= found->symmetric;
    flags.options.single_operators = found->single_operators;
  } else if (IsOnnx(output) && flags.type != "weights") {
    if (!Has(given, "--activation-dtype")) flags.activation_dtype = "uint8";
    if (!Has(given, "--kernel-dtype")) flags.kernel_dtype = "int8";
  }
}

}  // namespace quench::cli
