#include "tests/unit/services/codegen/matrix_targets.h"

#include <fmt/format.h>

#include <algorithm>

#include "services/codegen/targets/host_cpu.h"
#include "services/codegen/targets/resolve.h"

namespace quench::codegen {

std::vector<std::string> MatrixTargets() {
  std::vector<std::string> targets;
#if defined(__x86_64__)
  for (const char* cpu : {"x86-64-v2", "x86-64-v3", "x86-64-v4"}) {
    targets.push_back(
        fmt::format("llvm -mtriple=x86_64-linux-gnu -mcpu={} -emulate-matrices", cpu));
  }
  targets.push_back("x86-64-v4-amx");
#else
  targets.push_back("llvm -emulate-matrices");
#endif
  std::erase_if(targets, [](const std::string& target) {
    return !ThisCpuFeatures().Has(ResolveTarget(target).value()[0].required_features);
  });
  return targets;
}

bool InMatrices(const CompileReport& report) {
  return std::ranges::any_of(report.kernels, [](const KernelReport& kernel) {
    return kernel.reason.find("matrices of") != std::string::npos;
  });
}

}  // namespace quench::codegen
