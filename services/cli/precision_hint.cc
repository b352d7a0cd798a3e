#include "services/cli/precision_hint.h"

#include <string_view>

namespace quench::cli {
namespace {

// Multiplications of layers whose input is of this type, and all.
double ShareOf(const codegen::CompileReport& report, std::string_view dtype) {
  double all = 0, those = 0;
  for (const codegen::KernelReport& kernel : report.kernels) {
    all += kernel.multiplications;
    if (kernel.dtype == dtype) those += kernel.multiplications;
  }
  constexpr double kWorthAHint = 1e7;
  return all < kWorthAHint ? 0 : those / all;
}

}  // namespace

std::string PrecisionHint(const codegen::Target& target, const codegen::CompileReport& report) {
  constexpr double kMost = 0.5;
  const bool matrices = target.matrices.in_registers() && !target.matrices.bfloats.empty();
  if (matrices && ShareOf(report, "f32") > kMost)
    return "the target multiplies bf16 more than twice as fast as f32: see --bfloat16";
  const bool widens = !matrices && target.add_products_bf16.empty();
  if (widens && ShareOf(report, "bf16") > kMost) {
    return "the target has no fast products of bf16: they are widened, which saves memory but "
           "takes "
           "longer than f32";
  }
  return "";
}

}  // namespace quench::cli
