#include "services/codegen/targets/machines.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "common/runtime/quench_rt.h"
#include "services/codegen/targets/host_cpu.h"

namespace quench::codegen {
namespace {

bool IsX86(uint32_t machine) {
  return machine == QUENCH_MACHINE_X86_64 || machine == QUENCH_MACHINE_X86;
}
bool IsArm32(uint32_t machine) { return machine == QUENCH_MACHINE_ARMV7; }
bool IsArm64(uint32_t machine) { return machine == QUENCH_MACHINE_AARCH64; }
bool IsArm(uint32_t machine) { return IsArm32(machine) || IsArm64(machine); }

#if defined(__x86_64__)
constexpr uint32_t kThisMachine = QUENCH_MACHINE_X86_64;
#elif defined(__i386__)
constexpr uint32_t kThisMachine = QUENCH_MACHINE_X86;
#elif defined(__aarch64__)
constexpr uint32_t kThisMachine = QUENCH_MACHINE_AARCH64;
#elif defined(__arm__)
constexpr uint32_t kThisMachine = QUENCH_MACHINE_ARMV7;
#else
constexpr uint32_t kThisMachine = 0;
#endif

// The runtime's word for bits without a name.
constexpr char kUnnamed[] = "others";

std::string FeatureName(uint64_t bit) {
  std::array<char, 64> name{};
  quench_rt_cpu_feature_names(bit, name.data(), name.size());
  return name.data();
}

}  // namespace

std::span<const Architecture> Architectures() {
  static constexpr Architecture kRows[] = {
#define QUENCH_ARCHITECTURE(...) {__VA_ARGS__},
#include "services/codegen/targets/architectures.def"
#undef QUENCH_ARCHITECTURE
  };
  return kRows;
}

const Architecture* FindArchitecture(uint32_t machine) {
  for (const Architecture& row : Architectures()) {
    if (row.machine == machine) return &row;
  }
  return nullptr;
}

std::span<const Feature> Features() {
  static constexpr Feature kRows[] = {
#define QUENCH_FEATURE(machines, bit, name) {QUENCH_CPU_##bit, name, machines},
#include "services/codegen/targets/features.def"
#undef QUENCH_FEATURE
  };
  return kRows;
}

const HostCpu& ThisCpu() {
  static const auto* const kCpu = [] {
    auto* cpu = new HostCpu;
    if (const Architecture* row = FindArchitecture(kThisMachine)) cpu->machine = row->name;
    const uint64_t features =
        quench_rt_cpu_features();  // a trap for each leaf in a virtual machine
    for (int bit = 0; bit < 64; ++bit) {
      const uint64_t feature = uint64_t{1} << bit;
      if ((features & feature) == 0) continue;
      const std::string name = FeatureName(feature);
      if (name != kUnnamed) cpu->features.push_back(name);
    }
    std::sort(cpu->features.begin(), cpu->features.end());
    cpu->l1_bytes = std::max<int64_t>(::sysconf(_SC_LEVEL1_DCACHE_SIZE), 0);
    cpu->l2_bytes = std::max<int64_t>(::sysconf(_SC_LEVEL2_CACHE_SIZE), 0);
    return cpu;
  }();
  return *kCpu;
}

uint64_t FeatureBits(const HostCpu& cpu) {
  uint64_t features = 0;
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t feature = uint64_t{1} << bit;
    const std::string name = FeatureName(feature);
    if (name != kUnnamed &&
        std::find(cpu.features.begin(), cpu.features.end(), name) != cpu.features.end()) {
      features |= feature;
    }
  }
  return features;
}

}  // namespace quench::codegen
