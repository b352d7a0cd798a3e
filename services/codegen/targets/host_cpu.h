// The CPU that target `host` stands for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/codegen/targets/cpu_features.h"

namespace quench::codegen {

// As its program sees it.
struct HostCpu {
  std::string machine;                // `x86_64`, `i686`, `aarch64`, `armv7`
  std::vector<std::string> features;  // what it reports, sorted: `avx2`
  // Its first and second level of data cache, as the core reports them that the program started on; 0:
  // not reported (Arm's, mostly).
  int64_t l1_bytes = 0, l2_bytes = 0;
  std::string gpu = {};  // architecture of its first GPU, "sm_86"; "": it has none
};
// This machine's, asked once; `machine` is empty where Quench compiles for none like it.
const HostCpu& ThisCpu();

// Likewise, its first GPU (HostCpu::gpu): looked for once, and only when asked for.
const std::string& ThisGpu();

// Names that are unknown here are left out.
CpuFeatures FeaturesOf(const HostCpu& cpu);
// Features of this machine's CPU.
const CpuFeatures& ThisCpuFeatures();
// The runtime's names of features, in the order of abi.h: "avx2", "amx-tile".
std::vector<std::string> NamesOf(const CpuFeatures& features);

}  // namespace quench::codegen
