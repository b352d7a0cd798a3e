#include "services/codegen/targets/target.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "common/base/status.h"
#include "common/runtime/quench_rt.h"

namespace quench::codegen {
namespace {

// Instructions on bytes: Target's fields of these names.
struct ByteInstructions {
  const char* u8 = "";
  const char* i8 = "";
  const char* pairs = "";
  const char* words = "";
  const char* sign = "";
  const char* of_16 = "";
  const char* of_64 = "";
};
constexpr ByteInstructions kNoBytes;
constexpr ByteInstructions kNeon64{.of_64 = "llvm.aarch64.neon.tbl4.v16i8"};
constexpr ByteInstructions kSse{.pairs = "llvm.x86.ssse3.pmadd.ub.sw.128",
                                .words = "llvm.x86.sse2.pmadd.wd",
                                .sign = "llvm.x86.ssse3.psign.b.128",
                                .of_16 = "llvm.x86.ssse3.pshuf.b.128"};
constexpr ByteInstructions kAvx2{.pairs = "llvm.x86.avx2.pmadd.ub.sw",
                                 .words = "llvm.x86.avx2.pmadd.wd",
                                 .sign = "llvm.x86.avx2.psign.b",
                                 .of_16 = "llvm.x86.avx2.pshuf.b"};
constexpr ByteInstructions kAvx512{.pairs = "llvm.x86.avx512.pmaddubs.w.512",
                                   .words = "llvm.x86.avx512.pmaddw.d.512",
                                   .of_16 = "llvm.x86.avx512.pshuf.b.512"};
constexpr ByteInstructions kVnni{.u8 = "llvm.x86.avx512.vpdpbusd.512",
                                 .of_16 = "llvm.x86.avx512.pshuf.b.512"};
constexpr ByteInstructions kDotprod{.i8 = "llvm.aarch64.neon.sdot.v4i32.v16i8",
                                    .of_64 = "llvm.aarch64.neon.tbl4.v16i8"};

const std::vector<Target>& Variants() {
  static const auto* const kVariants = new std::vector<Target>{
#define QUENCH_VARIANT(name_, triple_, cpu_, features_, emulation_, machine_, elf_machine_,       \
                       elf_flags_, section_, section_flags_, pointer_bits_, vector_bits_,         \
                       registers_, fma_, l1_, l2_, gflops_, gbytes_, rows_, vectors_,             \
                       cpu_features_, bytes_)                                                     \
  Target{                                                                                         \
      .name = name_,                                                                              \
      .triple = triple_,                                                                          \
      .cpu = cpu_,                                                                                \
      .features = features_,                                                                      \
      .linker_emulation = emulation_,                                                             \
      .pointer_bits = pointer_bits_,                                                              \
      .vector_bits = vector_bits_,                                                                \
      .vector_registers = registers_,                                                             \
      .fma = fma_,                                                                                \
      .converts_halves =                                                                          \
          machine_ == QUENCH_MACHINE_AARCH64 || ((cpu_features_) & QUENCH_CPU_F16C) != 0,         \
      .multiply_by_lane = machine_ == QUENCH_MACHINE_AARCH64 || machine_ == QUENCH_MACHINE_ARMV7, \
      .l1_bytes = l1_,                                                                            \
      .l2_bytes = l2_,                                                                            \
      .gflops = gflops_,                                                                          \
      .gbytes = gbytes_,                                                                          \
      .tile_rows = rows_,                                                                         \
      .tile_vectors = vectors_,                                                                   \
      .required_features = cpu_features_,                                                         \
      .machine = machine_,                                                                        \
      .elf_machine = elf_machine_,                                                                \
      .elf_flags = elf_flags_,                                                                    \
      .weight_section = section_,                                                                 \
      .weight_section_flags = section_flags_,                                                     \
      .add_products_u8 = bytes_.u8,                                                               \
      .add_products_i8 = bytes_.i8,                                                               \
      .add_pairs_of_bytes = bytes_.pairs,                                                         \
      .add_pairs_of_words = bytes_.words,                                                         \
      .sign_of_bytes = bytes_.sign,                                                               \
      .pick_of_16 = bytes_.of_16,                                                                 \
      .pick_of_64 = bytes_.of_64},
#include "services/codegen/targets/targets.def"
  };
  return *kVariants;
}

struct Row {
  std::string name;
  std::string description;
  std::vector<std::string> variants;
};

const std::vector<Row>& Rows() {
  static const auto* const kRows = new std::vector<Row>{
#define QUENCH_TARGET(name, description, ...) Row{name, description, {__VA_ARGS__}},
#include "services/codegen/targets/targets.def"
  };
  return *kRows;
}

#if defined(__x86_64__)
constexpr uint32_t kThisMachine = QUENCH_MACHINE_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kThisMachine = QUENCH_MACHINE_AARCH64;
#elif defined(__arm__)
constexpr uint32_t kThisMachine = QUENCH_MACHINE_ARMV7;
#else
constexpr uint32_t kThisMachine = 0;
#endif

// Machines as they are called in requests.
struct MachineName {
  const char* name;
  uint32_t machine;
};
constexpr MachineName kMachines[] = {{"x86_64", QUENCH_MACHINE_X86_64},
                                     {"aarch64", QUENCH_MACHINE_AARCH64},
                                     {"armv7", QUENCH_MACHINE_ARMV7}};

// What the runtime calls bits without a name.
constexpr char kUnnamed[] = "others";

std::string FeatureNames(uint64_t features) {
  std::array<char, 512> names{};
  quench_rt_cpu_feature_names(features, names.data(), names.size());
  return names.data();
}

// The strongest variant that the CPU runs: by what it reports, never by its model name, so that
// equal machines give equal bytes.
absl::StatusOr<std::vector<Target>> ResolveHost(const HostCpu& cpu) {
  const auto machine =
      std::find_if(std::begin(kMachines), std::end(kMachines),
                   [&](const MachineName& each) { return each.name == cpu.machine; });
  if (machine == std::end(kMachines)) {
    return Unsupported("target `host`: machine `{}`, known are x86_64, aarch64 and armv7",
                       cpu.machine.substr(0, 64));
  }
  uint64_t features = 0;
  for (int bit = 0; bit < 64; ++bit) {
    const std::string name = FeatureNames(uint64_t{1} << bit);
    if (name != kUnnamed &&
        std::find(cpu.features.begin(), cpu.features.end(), name) != cpu.features.end()) {
      features |= uint64_t{1} << bit;
    }
  }
  const Target* best = nullptr;
  for (const Target& variant : Variants()) {
    if (variant.machine == machine->machine && (variant.required_features & ~features) == 0)
      best = &variant;
  }
  if (best == nullptr) {
    return Unsupported(
        "target `host`: this CPU is older than every target; name one to cross-compile");
  }
  return std::vector<Target>{*best};
}

// Levenshtein's distance, with single-row dynamic programming.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

absl::Status UnknownTarget(const std::string& name) {
  std::vector<std::pair<size_t, std::string>> near;
  const std::string wanted = name.substr(0, 64);
  for (const TargetName& target : TargetNames())
    near.emplace_back(EditDistance(wanted, target.name), target.name);
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (size_t i = 0; i < near.size() && i < 3; ++i) names.push_back("`" + near[i].second + "`");
  return InvalidArgument("unknown target `{}`, the nearest are {}", wanted, fmt::join(names, ", "));
}

}  // namespace

HostCpu ThisCpu() {
  HostCpu cpu;
  for (const MachineName& each : kMachines) {
    if (each.machine == kThisMachine) cpu.machine = each.name;
  }
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t feature = uint64_t{1} << bit;
    if ((quench_rt_cpu_features() & feature) == 0) continue;
    const std::string name = FeatureNames(feature);
    if (name != kUnnamed) cpu.features.push_back(name);
  }
  std::sort(cpu.features.begin(), cpu.features.end());
  return cpu;
}

absl::StatusOr<std::vector<Target>> ResolveTarget(const std::string& name,
                                                  const std::optional<HostCpu>& host) {
  if (name == "host") return ResolveHost(host ? *host : ThisCpu());
  for (const Row& row : Rows()) {
    if (row.name != name) continue;
    std::vector<Target> result;
    for (const std::string& variant : row.variants) {
      const auto found = std::find_if(Variants().begin(), Variants().end(),
                                      [&](const Target& t) { return t.name == variant; });
      QUENCH_CHECK(found !=
                   Variants().end());  // a row of targets.def names a variant that is not there
      result.push_back(*found);
    }
    return result;
  }
  return UnknownTarget(name);
}

std::vector<TargetName> TargetNames() {
  std::vector<TargetName> names = {{"host", "this machine's CPU"}};
  for (const Row& row : Rows()) names.push_back({row.name, row.description});
  return names;
}

}  // namespace quench::codegen
