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
bool IsX86Of64Bits(uint32_t machine) { return machine == QUENCH_MACHINE_X86_64; }
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

struct NamedFeature {
  CpuFeatures feature;
  std::string name;
};

// Features with a name, in order.
const std::vector<NamedFeature>& NamedFeatures() {
  static const auto* const kFeatures = [] {
    auto* features = new std::vector<NamedFeature>;
    for (uint32_t family = 0; family < QUENCH_CPU_FAMILIES; ++family) {
      for (int bit = 0; bit < 64; ++bit) {
        std::array<char, 64> name{};
        quench_rt_cpu_family_names(family, uint64_t{1} << bit, name.data(), name.size());
        if (name.data() != std::string_view(kUnnamed))
          features->push_back({CpuFeature(family, bit), name.data()});
      }
    }
    return features;
  }();
  return *kFeatures;
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
#define QUENCH_FEATURE(machines, bit, name) \
  {{QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_##bit}, name, machines},
#define QUENCH_FEATURE_OF(machines, family, bit, name) \
  {{QUENCH_CPU_FAMILY_##family, QUENCH_##family##_##bit}, name, machines},
#include "services/codegen/targets/features.def"
#undef QUENCH_FEATURE
#undef QUENCH_FEATURE_OF
  };
  return kRows;
}

const HostCpu& ThisCpu() {
  static const auto* const kCpu = [] {
    auto* cpu = new HostCpu;
    if (const Architecture* row = FindArchitecture(kThisMachine)) cpu->machine = row->name;
    cpu->features = NamesOf(ThisCpuFeatures());
    std::sort(cpu->features.begin(), cpu->features.end());
    cpu->l1_bytes = std::max<int64_t>(::sysconf(_SC_LEVEL1_DCACHE_SIZE), 0);
    cpu->l2_bytes = std::max<int64_t>(::sysconf(_SC_LEVEL2_CACHE_SIZE), 0);
    return cpu;
  }();
  return *kCpu;
}

const std::string& ThisGpu() {
  static const auto* const kGpu = [] {
    quench_rt_gpu gpu = {};
    gpu.size = sizeof gpu;
    const bool found = quench_rt_find_gpu(0, &gpu, nullptr) == QUENCH_RT_OK;
    return new std::string(found ? std::data(gpu.arch) : "");
  }();
  return *kGpu;
}

CpuFeatures FeaturesOf(const HostCpu& cpu) {
  CpuFeatures features;
  for (const auto& [feature, name] : NamedFeatures()) {
    if (std::find(cpu.features.begin(), cpu.features.end(), name) != cpu.features.end())
      features |= feature;
  }
  return features;
}

const CpuFeatures& ThisCpuFeatures() {
  static const CpuFeatures kFeatures = [] {
    CpuFeatures features;
    for (uint32_t family = 0; family < QUENCH_CPU_FAMILIES; ++family)
      features |=
          {family, quench_rt_cpu_family(family)};  // a trap for each leaf in a virtual machine
    return features;
  }();
  return kFeatures;
}

std::vector<std::string> NamesOf(const CpuFeatures& features) {
  std::vector<std::string> names;
  for (const auto& [feature, name] : NamedFeatures()) {
    if (features.Has(feature)) names.push_back(name);
  }
  return names;
}

}  // namespace quench::codegen
