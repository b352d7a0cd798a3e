#include "services/codegen/targets/derive.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "common/base/near_names.h"
#include "common/base/status.h"
#include "common/runtime/abi.h"
#include "services/codegen/targets/cpu_names.h"
#include "services/codegen/targets/machines.h"

namespace quench::codegen {
namespace {

std::string NearList(const std::string& name, const std::vector<std::string>& known) {
  return fmt::format("`{}`", fmt::join(NearNames(name, known, 3), "`, `"));
}

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

const Architecture* ArchitectureOf(const std::string& llvm_name) {
  for (const Architecture& row : Architectures()) {
    if (llvm_name == row.llvm_name) return &row;
  }
  return nullptr;
}

// ---- what is asked for ----

struct Place {
  const Architecture* row = nullptr;
  TripleParts parts;
  std::string triple;  // in the form that code is compiled with
};

absl::StatusOr<Place> PlaceOf(const std::string& triple) {
  const std::string shown = triple.substr(0, kShown);
  Place place{nullptr, PartsOf(triple), ""};
  place.row = ArchitectureOf(place.parts.architecture);
  if (place.row == nullptr) {
    std::vector<std::string> names;
    for (const Architecture& each : Architectures()) names.emplace_back(each.name);
    return Unsupported("triple `{}`: code is made for {}", shown, fmt::join(names, ", "));
  }
  if (place.row->machine == QUENCH_MACHINE_ARMV7 &&
      (triple.rfind("armv6", 0) == 0 || triple.rfind("armv5", 0) == 0 ||
       triple.rfind("armv4", 0) == 0)) {
    return Unsupported("triple `{}`: CPUs before armv7 lack NEON", shown);
  }
  static const std::set<std::string> kEnvironments = {"",        "gnu",        "gnueabihf",
                                                      "gnueabi", "android",    "androideabi",
                                                      "musl",    "musleabihf", "musleabi"};
  if (place.parts.system != "linux" || kEnvironments.count(place.parts.environment) == 0 ||
      !place.parts.little_endian) {
    return Unsupported(
        "triple `{}`: libraries are made for Linux and Android, triples like `{}` and "
        "`aarch64-linux-android`",
        shown, place.row->triple);
  }
  place.triple = fmt::format("{}-unknown-linux", place.row->name);
  if (!place.parts.environment.empty()) place.triple += "-" + place.parts.environment;
  return place;
}

// Names that LLVM does not know for this architecture.
absl::Status CheckNames(const TargetSpec& spec, const Place& place) {
  QUENCH_ASSIGN_OR_RETURN(const CpuNames* names, NamesOfCpus(place.triple));
  StatusCollector problems;
  const auto known = [](const std::vector<std::string>& all, const std::string& name) {
    return std::find(all.begin(), all.end(), name) != all.end();
  };
  if (spec.mcpu == "native") {
    problems.Add(InvalidArgument("cpu `native`: the name of the CPU that asks is --target host"));
  } else if (!spec.mcpu.empty() && !known(names->cpus, spec.mcpu)) {
    std::string hint;
    for (const Architecture& other : Architectures()) {
      const absl::StatusOr<const CpuNames*> others = NamesOfCpus(other.triple);
      if (hint.empty() && others.ok() && known((*others)->cpus, spec.mcpu))
        hint = fmt::format("; it is one of {}: -mtriple={}", other.name, other.triple);
    }
    const std::string shown = spec.mcpu.substr(0, kShown);
    problems.Add(InvalidArgument("cpu `{}` is none of {}, similar ones are {}{}", shown,
                                 place.row->name, NearList(shown, names->cpus), hint));
  }
  for (const std::string& feature : spec.mattr) {
    const std::string name = feature.substr(1, kShown);
    if (known(names->features, feature.substr(1))) continue;
    problems.Add(InvalidArgument("feature `{}` is none of {}, similar ones are {}", name,
                                 place.row->name, NearList(name, names->features)));
  }
  return problems.Finish();
}

absl::Status CheckAbi(const TargetSpec& spec, const Place& place) {
  StatusCollector problems;
  const char* floats = place.parts.hard_floats ? "hard" : "soft";
  if (!spec.mfloat_abi.empty() && spec.mfloat_abi != "hard" && spec.mfloat_abi != "soft") {
    problems.Add(InvalidArgument("mfloat-abi is `{}`, it must be `hard` or `soft`",
                                 spec.mfloat_abi.substr(0, kShown)));
  } else if (!spec.mfloat_abi.empty() && spec.mfloat_abi != floats) {
    const bool arm = place.row->machine == QUENCH_MACHINE_ARMV7;
    problems.Add(InvalidArgument("mfloat-abi is `{}`, triple `{}` means `{}`{}", spec.mfloat_abi,
                                 place.triple, floats,
                                 !arm                      ? ""
                                 : place.parts.hard_floats ? "; for soft: gnueabi"
                                                           : "; for hard: gnueabihf"));
  }
  std::string abi = "sysv";
  if (place.row->machine == QUENCH_MACHINE_AARCH64) abi = "lp64";
  if (place.row->machine == QUENCH_MACHINE_ARMV7) abi = "aapcs-linux";
  if (!spec.mabi.empty() && spec.mabi != abi) {
    problems.Add(InvalidArgument("mabi is `{}`, triple `{}` means `{}`",
                                 spec.mabi.substr(0, kShown), place.triple, abi));
  }
  return problems.Finish();
}

// ---- what follows from features ----

class Deriver {
 public:
  Deriver(const Place& place, const CpuFeatures& features) : place_(place), features_(features) {}

  Target Derive() {
    const Architecture& row = *place_.row;
    t_.triple = place_.triple;
    t_.baseline = row.baseline;
    t_.object_format = place_.parts.object_format;
    t_.pointer_bits = row.pointer_bits;
    t_.machine = row.machine;
    t_.required_features = features_;
    t_.soft_float_calls = !place_.parts.hard_floats;
    t_.android = place_.parts.environment.rfind("android", 0) == 0;
    const bool x86 = row.machine == QUENCH_MACHINE_X86_64 || row.machine == QUENCH_MACHINE_X86;
    if (x86) {
      X86();
    } else {
      Arm();
    }
    Tiles();
    return std::move(t_);
  }

 private:
  // QUENCH_CPU_*
  bool Has(uint64_t bits) const { return features_.Has({QUENCH_CPU_FAMILY_FIRST, bits}); }

  void Speeds(int64_t l1, int64_t l2, double gflops, double gbytes) {
    t_.l1_bytes = l1;
    t_.l2_bytes = l2;
    t_.gflops = gflops;
    t_.gbytes = gbytes;
  }

  // Speeds are those of one core of a common part: Westmere, Haswell, Skylake server.
  void X86() {
    const bool wide = t_.machine == QUENCH_MACHINE_X86_64;
    const bool avx512 =
        Has(QUENCH_CPU_AVX512F | QUENCH_CPU_AVX512BW | QUENCH_CPU_AVX512DQ | QUENCH_CPU_AVX512VL);
    t_.fma = Has(QUENCH_CPU_FMA);
    t_.converts_halves = Has(QUENCH_CPU_F16C);
    t_.vector_registers = !wide ? 8 : avx512 ? 32 : 16;
    if (avx512) {
      t_.vector_bits = 512;
      Speeds(32 << 10, 1 << 20, 160, 12);
      t_.pick_of_16 = "llvm.x86.avx512.pshuf.b.512";
      t_.pick_of_16_floats = "llvm.x86.avx512.permvar.sf.512";
      t_.sums_halves = Has(QUENCH_CPU_AVX512FP16);
      if (t_.sums_halves) Speeds(48 << 10, 2 << 20, 160, 12);  // Sapphire Rapids
      if (wide) Matrices();
      if (Has(QUENCH_CPU_AVX512BF16)) t_.narrow_to_bf16 = "llvm.x86.avx512bf16.cvtneps2bf16.512";
      // CPUs that have both multiply bf16 at half the speed of f32 (84 of 178 GFLOP/s on Emerald Rapids).
      if (Has(QUENCH_CPU_AVX512BF16) && !t_.sums_halves)
        t_.add_products_bf16 = "llvm.x86.avx512bf16.dpbf16ps.512";
      if (Has(QUENCH_CPU_AVX512VNNI)) return Vnni("llvm.x86.avx512.vpdpbusd.512");
      t_.add_pairs_of_bytes = "llvm.x86.avx512.pmaddubs.w.512";
      t_.add_pairs_of_words = "llvm.x86.avx512.pmaddw.d.512";
    } else if (Has(QUENCH_CPU_AVX2)) {
      t_.vector_bits = 256;
      Speeds(32 << 10, 512 << 10, 80, 10);
      t_.pick_of_16 = "llvm.x86.avx2.pshuf.b";
      if (Has(QUENCH_CPU_AVXVNNI)) return Vnni("llvm.x86.avx512.vpdpbusd.256");
      t_.add_pairs_of_bytes = "llvm.x86.avx2.pmadd.ub.sw";
      t_.add_pairs_of_words = "llvm.x86.avx2.pmadd.wd";
      t_.sign_of_bytes = "llvm.x86.avx2.psign.b";
    } else {
      t_.vector_bits = 128;
      Speeds(32 << 10, 256 << 10, 20, 6);
      t_.add_pairs_of_words = "llvm.x86.sse2.pmadd.wd";
      if (!Has(QUENCH_CPU_SSSE3)) return;
      t_.add_pairs_of_bytes = "llvm.x86.ssse3.pmadd.ub.sw.128";
      t_.sign_of_bytes = "llvm.x86.ssse3.psign.b.128";
      t_.pick_of_16 = "llvm.x86.ssse3.pshuf.b.128";
    }
  }

  // AMX: Intel's manual, volume 1, chapter 18.
  void Matrices() {
    const auto has = [&](uint64_t bits) {
      return features_.Has({QUENCH_CPU_FAMILY_X86, QUENCH_X86_AMX_TILE | bits});
    };
    MatrixUnit& unit = t_.matrices;
    unit.bfloats = has(QUENCH_X86_AMX_BF16) ? "llvm.x86.tdpbf16ps" : "";
    unit.halves = has(QUENCH_X86_AMX_FP16) ? "llvm.x86.tdpfp16ps" : "";
    if (has(QUENCH_X86_AMX_INT8)) {
      unit.unsigned_bytes = "llvm.x86.tdpbusd";
      unit.signed_bytes = "llvm.x86.tdpbssd";
    }
    if (!has(0)) return;
    unit.configure = "llvm.x86.ldtilecfg";
    unit.release = "llvm.x86.tilerelease";
    unit.zero = "llvm.x86.tilezero";
    unit.load = "llvm.x86.tileloadd64";
    unit.store = "llvm.x86.tilestored64";
    // Measured on Emerald Rapids: a store more than 0.7 us after the one before it takes 0.3 us longer, and the
    // products after it wait. 8 steps take 0.2 to 0.5 us.
    unit.store_within = 8;
  }

  void Vnni(const char* instruction) {
    t_.add_products_u8 = instruction;
    t_.products_u8_take_words = true;
  }

  // Speeds of one Cortex-A76 and one Cortex-A15.
  void Arm() {
    const bool wide = t_.machine == QUENCH_MACHINE_AARCH64;
    t_.vector_bits = 128;
    t_.vector_registers = wide ? 32 : 16;
    t_.multiply_by_lane = true;
    t_.converts_halves = wide;
    if (!wide) {
      Speeds(32 << 10, 512 << 10, 12, 4);
      t_.divides_words = Has(QUENCH_CPU_HWDIV_ARM);
      if (Has(QUENCH_CPU_DOTPROD)) t_.add_products_i8 = "llvm.arm.neon.sdot.v4i32.v16i8";
      return;
    }
    Speeds(64 << 10, 512 << 10, 38, 8);
    t_.pick_of_64 = "llvm.aarch64.neon.tbl4.v16i8";
    if (Has(QUENCH_CPU_DOTPROD)) t_.add_products_i8 = "llvm.aarch64.neon.sdot.v4i32.v16i8";
    t_.sums_halves = Has(QUENCH_CPU_FP16);
    if (Has(QUENCH_CPU_BF16)) t_.add_products_bf16 = "llvm.aarch64.neon.bfdot.v4f32.v8bf16";
    if (Has(QUENCH_CPU_I8MM)) t_.add_products_u8 = "llvm.aarch64.neon.usdot.v4i32.v16i8";
  }

  // Two vectors of weights, a register for the pixel's scalar; where a scalar is a lane of a
  // register, a quarter of the registers hold rows.
  void Tiles() {
    t_.tile_vectors = 2;
    t_.tile_rows = t_.multiply_by_lane ? t_.vector_registers / 4 : (t_.vector_registers - 3) / 2;
  }

  const Place& place_;
  const CpuFeatures features_;
  Target t_;
};

// All products, as plain code.
MatrixUnit EmulatedMatrices() {
  MatrixUnit unit;
  unit.bfloats = unit.halves = unit.unsigned_bytes = unit.signed_bytes = "plain";
  return unit;
}

void UseCaches(const std::string& cpu, Target& target) {
  struct Row {
    const char* name;
    int64_t l1, l2;
  };
  static constexpr Row kRows[] = {
#define QUENCH_CPU_CACHES(name, first, second) {name, first, second},
#include "services/codegen/targets/cpus.def"
#undef QUENCH_CPU_CACHES
  };
  for (const Row& row : kRows) {
    if (cpu != row.name) continue;
    target.l1_bytes = row.l1;
    target.l2_bytes = row.l2;
  }
}

void UseCosts(Target& target) {
  target.costs = CostsOf(target.cpu);
  if (target.costs.gflops > 0) target.gflops = target.costs.gflops;
  if (target.costs.gbytes > 0) target.gbytes = target.costs.gbytes;
}

std::string NameOf(const TargetSpec& spec, const Architecture& row) {
  std::string name = spec.mcpu.empty() ? row.name : spec.mcpu;
  for (const std::string& feature : spec.mattr) name += feature;
  return name;
}

}  // namespace

absl::Status CheckKind(const TargetSpec& spec) {
  StatusCollector problems;
  const bool cuda = spec.kind == "cuda";
  if (spec.kind != "llvm" && !cuda) {
    return Unsupported("kind is `{}`, code is made for `llvm` (CPUs) and `cuda` (NVIDIA's GPUs)",
                       spec.kind.substr(0, kShown));
  }
  for (const std::string& library : spec.libs) {
    if (library == "none") continue;
    problems.Add(Unsupported("libs has `{}`: libraries depend on no other, leave it out",
                             library.substr(0, kShown)));
  }
  if (cuda) {
    for (const auto& [key, value] :
         {std::pair("mtriple", spec.mtriple), std::pair("mcpu", spec.mcpu),
          std::pair("mfloat-abi", spec.mfloat_abi), std::pair("mabi", spec.mabi)}) {
      if (!value.empty())
        problems.Add(InvalidArgument("{} is `{}`, it is of CPUs: give it to `host`", key,
                                     value.substr(0, kShown)));
    }
    if (!spec.mattr.empty())
      problems.Add(InvalidArgument("mattr has features of CPUs: give them to `host`"));
    if (spec.system_lib)
      problems.Add(Unsupported("system-lib is of CPUs: GPU code is opened from a shared library"));
  } else if (!spec.arch.empty()) {
    problems.Add(InvalidArgument("arch is `{}`, it is of GPUs; mcpu names a CPU",
                                 spec.arch.substr(0, kShown)));
  }
  return problems.Finish();
}

Target WithoutMatrices(Target target) {
  const CpuFeatures matrices = {QUENCH_CPU_FAMILY_X86, QUENCH_X86_AMX_TILE | QUENCH_X86_AMX_INT8 |
                                                           QUENCH_X86_AMX_BF16 |
                                                           QUENCH_X86_AMX_FP16};
  target.required_features = target.required_features.Without(matrices);
  std::vector<std::string> used;
  for (const Feature& feature : Features()) {
    if (target.required_features.Has(feature.bit))
      used.push_back(std::string("+") + feature.llvm_name);
  }
  target.features = fmt::format("{}", fmt::join(used, ","));
  target.matrices = {};
  return target;
}

absl::StatusOr<Derived> DeriveTarget(const TargetSpec& spec, const std::string& name) {
  QUENCH_ASSIGN_OR_RETURN(const Place place, PlaceOf(spec.mtriple));
  StatusCollector problems;
  problems.Add(CheckAbi(spec, place));
  problems.Add(CheckNames(spec, place));
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  const Architecture& row = *place.row;
  std::vector<std::string> changes = spec.mattr;
  if (spec.mcpu.empty()) {
    const std::vector<std::string> defaults = Split(row.default_features);
    changes.insert(changes.begin(), defaults.begin(), defaults.end());
  }
  QUENCH_ASSIGN_OR_RETURN(
      const std::vector<std::string> enabled,
      FeaturesOf(place.triple, spec.mcpu.empty() ? row.default_cpu : spec.mcpu, changes));
  const std::set<std::string> has(enabled.begin(), enabled.end());
  for (const std::string& needed : Split(row.needed)) {
    if (has.count(needed) != 0) continue;
    problems.Add(InvalidArgument("cpu `{}` lacks `{}`, which every {} target needs",
                                 NameOf(spec, row), needed, row.name));
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  CpuFeatures bits;
  std::vector<std::string> used;
  std::set<std::string> known;
  for (const Feature& feature : Features()) {
    if (!feature.has(row.machine)) continue;
    known.insert(feature.llvm_name);
    if (has.count(feature.llvm_name) == 0) continue;
    bits |= feature.bit;
    used.push_back(std::string("+") + feature.llvm_name);
  }
  Derived derived{Deriver(place, bits).Derive(), {}};
  derived.target.features = fmt::format("{}", fmt::join(used, ","));
  if (spec.emulate_matrices) {
    derived.target = WithoutMatrices(std::move(derived.target));
    derived.target.matrices = EmulatedMatrices();
  }
  derived.target.cpu = spec.mcpu.empty() ? row.default_cpu : spec.mcpu;
  derived.target.name = name.empty() ? NameOf(spec, row) : name;
  UseCaches(derived.target.cpu, derived.target);
  UseCosts(derived.target);
  for (const std::string& feature : spec.mattr) {
    if (known.count(feature.substr(1)) == 0) derived.unused.push_back(feature);
  }
  return derived;
}

}  // namespace quench::codegen
