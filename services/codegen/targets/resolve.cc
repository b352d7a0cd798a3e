#include "services/codegen/targets/resolve.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "common/base/near_names.h"
#include "common/base/status.h"
#include "services/codegen/targets/cuda.h"
#include "services/codegen/targets/derive.h"
#include "services/codegen/targets/machines.h"

namespace quench::codegen {
namespace {

struct VariantRow {
  std::string name, string;
};

const std::vector<VariantRow>& VariantRows() {
  static const auto* const kRows = new std::vector<VariantRow>{
#define QUENCH_VARIANT(name, string) {name, string},
#include "services/codegen/targets/targets.def"
  };
  return *kRows;
}

const VariantRow& VariantOf(const std::string& name) {
  const auto found = std::find_if(VariantRows().begin(), VariantRows().end(),
                                  [&](const VariantRow& row) { return row.name == name; });
  QUENCH_CHECK(found != VariantRows().end());  // targets.def names a variant that is not there
  return *found;
}

TagKind KindOf(const std::string& string) {
  if (string.rfind("cuda", 0) == 0) return TagKind::kCuda;
  if (string.find("android") != std::string::npos) return TagKind::kAndroid;
  const bool x86 = string.find("mtriple=x86_64") != std::string::npos ||
                   string.find("mtriple=i686") != std::string::npos;
  return x86 ? TagKind::kX86 : TagKind::kArm;
}

struct TargetRow {
  TargetName name;
  std::vector<std::string> variants;
};

const std::vector<TargetRow>& TargetRows() {
  static const auto* const kRows = [] {
    auto* rows = new std::vector<TargetRow>{
#define QUENCH_TARGET(name, description, ...) \
  {{name, TagKind::kX86, description, {}}, {__VA_ARGS__}},
#include "services/codegen/targets/targets.def"
    };
    for (TargetRow& row : *rows) {
      for (const std::string& variant : row.variants)
        row.name.strings.push_back(VariantOf(variant).string);
      row.name.kind = KindOf(row.name.strings[0]);
    }
    return rows;
  }();
  return *kRows;
}

constexpr char kHostOfGpus[] = "x86-64";

// "GeForce RTX 3090 (24 GB, 82 multiprocessors)".
TargetName CudaTag(const char* name, const std::string& arch, int mebibytes, int multiprocessors,
                   const std::string& host, const char* description) {
  std::string string = "cuda -arch=" + arch;
  if (host != kHostOfGpus) string += " -host=" + host;
  std::string facts = fmt::format("{} ({:g} GB, {} multiprocessors)", description,
                                  mebibytes / 1024.0, multiprocessors);
  const std::string older = OlderCodeOf(arch);
  if (!older.empty()) facts += ", " + older;
  return {name, TagKind::kCuda, std::move(facts), {std::move(string)}};
}

const std::vector<TargetName>& TagRows() {
  static const auto* const kRows = [] {
    auto* rows = new std::vector<TargetName>{
#define QUENCH_TAG(name, string, description) {name, TagKind::kX86, description, {string}},
#include "services/codegen/targets/tags.def"
#undef QUENCH_TAG
#define QUENCH_CUDA_TAG(name, arch, mebibytes, multiprocessors, host, description) \
  CudaTag(name, arch, mebibytes, multiprocessors, host, description),
#include "services/codegen/targets/cuda_tags.def"
    };
    for (TargetName& row : *rows) row.kind = KindOf(row.strings[0]);
    return rows;
  }();
  return *kRows;
}

absl::Status UnknownTarget(const std::string& text) {
  std::vector<std::string> names;
  for (const TargetName& target : TargetNames()) names.push_back(target.name);
  for (const TargetName& tag : TagRows()) names.push_back(tag.name);
  const std::string wanted = text.substr(0, kShown);
  return InvalidArgument("unknown target `{}`, similar ones are `{}`", wanted,
                         fmt::join(NearNames(wanted, names, 3), "`, `"));
}

absl::StatusOr<const Architecture*> ArchitectureOf(const HostCpu& cpu) {
  std::vector<std::string> names;
  for (const Architecture& row : Architectures()) {
    if (cpu.machine == row.name) return &row;
    names.emplace_back(row.name);
  }
  return Unsupported("target `host`: unknown machine `{}` (known: {})",
                     cpu.machine.substr(0, kShown), fmt::join(names, ", "));
}

struct Asked {
  std::string name;  // of a variant; "" is derived from the string
  TargetSpec spec;
};

Asked Known(const std::string& name, const std::string& string) {
  absl::StatusOr<TargetSpec> spec = ParseTargetSpec(string);
  QUENCH_CHECK(spec.ok());  // a table has a string that does not parse
  return {name, *std::move(spec)};
}

struct KnownVariant {
  Asked asked;
  CpuFeatures required_features;
};

// The rows of targets.def, derived once: each asks LLVM for a subtarget.
const std::vector<KnownVariant>& KnownVariants() {
  static const auto* const kVariants = [] {
    auto* variants = new std::vector<KnownVariant>;
    for (const VariantRow& row : VariantRows()) {
      Asked asked = Known(row.name, row.string);
      const absl::StatusOr<Derived> derived = DeriveTarget(asked.spec, asked.name);
      QUENCH_CHECK(derived.ok());  // a table has a string that no target follows from
      variants->push_back({std::move(asked), derived->target.required_features});
    }
    return variants;
  }();
  return *kVariants;
}

// The strongest variant that the CPU runs: by what it reports, never by its model name, so that
// equal machines give equal bytes.
absl::StatusOr<Asked> StrongestOf(const HostCpu& cpu) {
  QUENCH_ASSIGN_OR_RETURN(const Architecture* row, ArchitectureOf(cpu));
  const CpuFeatures features = FeaturesOf(cpu);
  const Asked* best = nullptr;
  for (const KnownVariant& variant : KnownVariants()) {
    // Variants of the architecture's other triples have other calling conventions.
    if (variant.asked.spec.mtriple == row->triple && features.Has(variant.required_features))
      best = &variant.asked;
  }
  if (best == nullptr) {
    return Unsupported(
        "target `host`: this CPU is older than every target; name one to cross-compile");
  }
  return *best;
}

// The strings that a text stands for, triples filled in.
absl::StatusOr<std::vector<Asked>> Ask(const std::string& text,
                                       const std::optional<HostCpu>& caller) {
  std::vector<Asked> asked;
  if (text == kHost) {
    QUENCH_ASSIGN_OR_RETURN(asked.emplace_back(), StrongestOf(caller ? *caller : ThisCpu()));
    return asked;
  }
  for (const TargetRow& row : TargetRows()) {
    if (row.name.name != text) continue;
    for (const std::string& variant : row.variants)
      asked.push_back(Known(variant, VariantOf(variant).string));
    return asked;
  }
  for (const TargetName& tag : TagRows()) {
    if (tag.name == text) return std::vector<Asked>{Known(tag.name, tag.strings[0])};
  }
  if (!IsTargetSpec(text)) return UnknownTarget(text);
  absl::StatusOr<TargetSpec> spec = ParseTargetSpec(text);
  if (!spec.ok()) return Annotate(spec.status(), "target");
  QUENCH_RETURN_IF_ERROR(Annotate(CheckKind(*spec), "target"));
  if (spec->mtriple.empty() && spec->kind != "cuda") {
    QUENCH_ASSIGN_OR_RETURN(const Architecture* row, ArchitectureOf(caller ? *caller : ThisCpu()));
    spec->mtriple = row->triple;
  }
  return std::vector<Asked>{{"", *std::move(spec)}};
}

// Cache sizes decide how work is divided. Caches that cores share, or that a virtual machine makes
// up (4 MiB of L2, often), are ignored.
void UseReportedCaches(const HostCpu& cpu, Target& target) {
  constexpr int64_t kLeastL1 = 16 << 10, kMostL1 = 256 << 10;
  constexpr int64_t kLeastL2 = 128 << 10, kMostL2 = 3 << 20;
  if (cpu.l1_bytes >= kLeastL1 && cpu.l1_bytes <= kMostL1) target.l1_bytes = cpu.l1_bytes;
  if (cpu.l2_bytes >= kLeastL2 && cpu.l2_bytes <= kMostL2) target.l2_bytes = cpu.l2_bytes;
}

// A host loads the library and runs its code.
absl::Status CheckHost(const std::string& text, const std::optional<HostCpu>& caller,
                       const Target& weakest) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Asked> asked, Ask(text, caller));
  absl::StatusOr<Derived> host = DeriveTarget(asked.back().spec, asked.back().name);
  if (!host.ok()) return Annotate(host.status(), "target");
  const Target& machine = host->target;
  if (machine.triple != weakest.triple) {
    return InvalidArgument("`{}` cannot load libraries for `{}`; a CPU target needs no host",
                           machine.triple, weakest.triple);
  }
  const CpuFeatures missing = weakest.required_features.Without(machine.required_features);
  if (missing.empty()) return absl::OkStatus();
  std::vector<std::string> names;
  for (const Feature& feature : Features()) {
    if (missing.Has(feature.bit)) names.emplace_back(feature.llvm_name);
  }
  return InvalidArgument("`{}` lacks {}, which code for `{}` uses", machine.name,
                         fmt::join(names, ", "), weakest.name);
}

// Variants of one library read the same panels of weights, as wide as the widest vectors.
void ShareWeights(std::vector<Target>& variants) {
  int64_t widest = 0;
  for (const Target& variant : variants) widest = std::max<int64_t>(widest, variant.f32_lanes());
  if (variants.size() < 2) return;
  for (Target& variant : variants) variant.panel_lanes = widest;
}

}  // namespace

namespace {

std::vector<std::string> ArchsOf(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// The GPU of the machine that asked, or the architecture that code runs on almost everywhere.
std::string ArchHere(const std::optional<HostCpu>& caller) {
  const std::string arch = caller ? caller->gpu : ThisGpu();
  return arch.empty() ? kCommonArch : arch;
}

// The host's variants, then its weakest one with device code for each architecture.
absl::StatusOr<ResolvedTarget> ResolveCuda(TargetSpec spec, const std::string& host,
                                           const std::optional<HostCpu>& caller) {
  if (spec.arch.empty()) spec.arch = ArchHere(caller);
  const std::string inner = spec.host == nullptr ? "" : ToString(*spec.host);
  if (!host.empty() && !inner.empty() && host != inner)
    return InvalidArgument("host is given twice, as `{}` and in the target as `{}`", host, inner);
  const std::string named = !host.empty() ? host : !inner.empty() ? inner : kHostOfGpus;
  absl::StatusOr<ResolvedTarget> resolved = Resolve(named, "", caller);
  if (!resolved.ok()) return Annotate(resolved.status(), "host");
  if (resolved->spec.kind != "llvm")
    return InvalidArgument("host: kind is `{}`, a GPU's host is a CPU", resolved->spec.kind);
  StatusCollector problems;
  const Target weakest = resolved->variants.front();
  std::vector<Target> devices;
  for (const std::string& arch : ArchsOf(spec.arch)) {
    absl::StatusOr<Target> target = WithDevice(weakest, arch);
    problems.Add(Annotate(target.status(), "target"));
    const auto known = [&](const Target& other) { return other.name == target->name; };
    if (target.ok() && std::none_of(devices.begin(), devices.end(), known))
      devices.push_back(*std::move(target));
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  std::stable_sort(devices.begin(), devices.end(), [](const Target& a, const Target& b) {
    return a.device->gpu->features < b.device->gpu->features;
  });
  std::move(devices.begin(), devices.end(), std::back_inserter(resolved->variants));
  spec.num_cores = std::max(spec.num_cores, resolved->spec.num_cores);
  spec.host = std::make_shared<const TargetSpec>(std::move(resolved->spec));
  resolved->spec = std::move(spec);
  return resolved;
}

}  // namespace

absl::StatusOr<ResolvedTarget> Resolve(const std::string& text, const std::string& host,
                                       const std::optional<HostCpu>& caller) {
  QUENCH_ASSIGN_OR_RETURN(std::vector<Asked> asked, Ask(text, caller));
  if (asked.back().spec.kind == "cuda")
    return ResolveCuda(std::move(asked.back().spec), host, caller);
  ResolvedTarget resolved;
  for (const Asked& each : asked) {
    absl::StatusOr<Derived> derived = DeriveTarget(each.spec, each.name);
    if (!derived.ok()) return Annotate(derived.status(), "target");
    if (text == kHost) UseReportedCaches(caller ? *caller : ThisCpu(), derived->target);
    resolved.variants.push_back(std::move(derived->target));
    resolved.unused = std::move(derived->unused);
  }
  ShareWeights(resolved.variants);
  resolved.spec = std::move(asked.back().spec);
  const std::string inner = resolved.spec.host == nullptr ? "" : ToString(*resolved.spec.host);
  for (const std::string& each : {host, inner}) {
    if (each.empty()) continue;
    QUENCH_RETURN_IF_ERROR(Annotate(CheckHost(each, caller, resolved.variants.front()), "host"));
  }
  return resolved;
}

absl::StatusOr<std::vector<Target>> ResolveTarget(const std::string& text,
                                                  const std::optional<HostCpu>& caller) {
  QUENCH_ASSIGN_OR_RETURN(ResolvedTarget resolved, Resolve(text, "", caller));
  return std::move(resolved.variants);
}

bool IsTargetName(const std::string& text) {
  const auto is_it = [&](const TargetName& each) { return each.name == text; };
  const std::vector<TargetName> targets = TargetNames();
  return std::any_of(targets.begin(), targets.end(), is_it) ||
         std::any_of(TagRows().begin(), TagRows().end(), is_it);
}

bool NeedsCaller(const std::string& text) {
  if (text == kHost) return true;
  if (!IsTargetSpec(text)) return false;
  const absl::StatusOr<TargetSpec> spec = ParseTargetSpec(text);
  if (!spec.ok()) return false;
  if (spec->kind != "cuda") return spec->mtriple.empty();
  return spec->arch.empty() || (spec->host != nullptr && NeedsCaller(ToString(*spec->host)));
}

bool NeedsGpu(const std::string& text) {
  if (!IsTargetSpec(text)) return false;
  const absl::StatusOr<TargetSpec> spec = ParseTargetSpec(text);
  return spec.ok() && spec->kind == "cuda" && spec->arch.empty();
}

std::vector<TargetName> TargetNames() {
  const Architecture* row = nullptr;
  for (const Architecture& each : Architectures()) {
    if (ThisCpu().machine == each.name) row = &each;
  }
  const std::string triple = row == nullptr ? "" : std::string("-mtriple=") + row->triple;
  std::vector<TargetName> names = {{kHost, KindOf(triple), "this machine's CPU", {}}};
  for (const TargetRow& each : TargetRows()) names.push_back(each.name);
  return names;
}

std::vector<TargetName> CudaNames() {
  std::vector<TargetName> names = {
      {"cuda",
       TagKind::kCuda,
       fmt::format("the requesting machine's GPU, or else {}", kCommonArch),
       {"cuda"}}};
  for (const CudaArchNote& each : CudaArchNotes()) {
    const std::string string = "cuda -arch=" + each.arch;
    names.push_back({string, TagKind::kCuda, each.note, {string}});
  }
  return names;
}

std::vector<TargetName> TagNames() { return TagRows(); }

}  // namespace quench::codegen
