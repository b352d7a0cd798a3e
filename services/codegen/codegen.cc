#include "services/codegen/codegen.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <future>
#include <memory>
#include <set>

#include "common/base/build_id.h"
#include "common/base/files.h"
#include "common/base/library_sizes.h"
#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/ir/hash.h"
#include "common/ir/verify.h"
#include "common/ops/op.h"
#include "common/passes/pass.h"
#include "common/runtime/abi.h"
#include "services/codegen/check/check.h"
#include "services/codegen/description.h"
#include "services/codegen/emit/backends.h"
#include "services/codegen/header.h"
#include "services/codegen/link/link.h"
#include "services/codegen/object/weights.h"
#include "services/codegen/options/checks.h"
#include "services/codegen/options/uuid_text.h"
#include "services/codegen/package.h"
#include "services/codegen/plan/arena_buffers.h"
#include "services/codegen/plan/variants.h"
#include "services/codegen/targets/resolve.h"

namespace quench::codegen {
namespace {

constexpr char kProducer[] = "quench " QUENCH_VERSION;

absl::Status CheckChoices(const CompileOptions& options) {
  StatusCollector problems;
  problems.Add(CheckOptions(options));
  if ((options.opt_level == 4) != options.measured.has_value())
    problems.Add(InvalidArgument("measurements belong to opt level 4, and to no other"));
  return problems.Finish();
}

// Inputs and outputs of a run must be tensors of numbers, though nodes between may not even look at
// them.
absl::Status CheckInterface(const Graph& graph) {
  StatusCollector problems;
  const auto check = [&](const std::string& what, ValueId id) {
    const Value& value = graph.value(id);
    if (value.type.kind != ValueKind::kTensor) {
      problems.Add(Unsupported("{} `{}` is not a tensor", what, value.name));
    } else if (value.type.dtype == DataType::kString) {
      problems.Add(Unsupported("{} `{}` is string, compiled models take and give numbers", what,
                               value.name));
    }
  };
  for (const ValueId id : graph.inputs) check("input", id);
  for (const ValueId id : graph.outputs) check("output", id);
  return problems.Finish();
}

// Version 8 (RFC 9562: custom) from what decides the bytes.
std::string DerivedUuid(const std::string& fingerprint, CompileOptions options, Emit emit,
                        const ResolvedTarget& resolved) {
  options.emit = emit;
  std::string text = fmt::format("{} {}{}", kProducer, fingerprint, UuidText(options));
  for (const Target& target : resolved.variants)
    text += fmt::format(" {} {} {} {} {}", target.triple, target.cpu, target.features,
                        target.l1_bytes, target.l2_bytes);
  text += " " + ToString(resolved.spec);
  std::string digits = Sha256Hex(text).substr(0, 32);
  digits[12] = '8';
  digits[16] = "89ab"[(digits[16] <= '9' ? digits[16] - '0' : digits[16] - 'a' + 10) & 3];
  for (const size_t at : {20, 16, 12, 8}) digits.insert(at, "-");
  return digits;
}

// Nests that do more than a hundredth of a model's multiplications: micro-kernels do them several
// times as fast, where one takes the operator and its types.
void NameSlowNests(std::vector<KernelReport>& kernels) {
  constexpr double kShare = 0.01;
  double all = 0;
  for (const KernelReport& kernel : kernels) all += kernel.multiplications;
  for (KernelReport& kernel : kernels) {
    const bool nest = kernel.kernel == "scheduled" || kernel.kernel == "reference";
    if (!nest || !kernel.slow.empty() || kernel.multiplications <= kShare * all) continue;
    kernel.slow =
        fmt::format("{:.0f} % of all multiplications, by a nest: no micro-kernel takes it",
                    100 * kernel.multiplications / all);
  }
}

class Compiler {
 public:
  Compiler(const Graph& graph, const CompileOptions& options, const StepContext& context)
      : source_(graph), options_(options), context_(context) {}

  absl::StatusOr<CompileReport> Run(const std::filesystem::path& library,
                                    const std::filesystem::path& header) {
    begin_ = std::clock();
    QUENCH_RETURN_IF_ERROR(CheckChoices(options_));
    if (source_.stage == Stage::kImported)
      return InvalidArgument("the module is at stage `imported`, codegen takes `canonical`");
    QUENCH_RETURN_IF_ERROR(VerifyGraph(source_));
    QUENCH_RETURN_IF_ERROR(CheckInterface(source_));
    QUENCH_RETURN_IF_ERROR(Refine());
    QUENCH_ASSIGN_OR_RETURN(emit_, WhatToEmit(options_));
    QUENCH_ASSIGN_OR_RETURN(resolved_,
                            Resolve(options_.target, options_.host_target, options_.caller));
    const std::vector<Target>& targets = resolved_.variants;
    QUENCH_RETURN_IF_ERROR(Identify());
    QUENCH_ASSIGN_OR_RETURN(
        folder_, TempDir::Create(library.has_parent_path() ? library.parent_path() : "."));
    QUENCH_ASSIGN_OR_RETURN(const Graph groups, GroupGraph(graph_, options_, context_));
    EndStage("passes");
    QUENCH_ASSIGN_OR_RETURN(variants_, PlanVariants(groups, targets, options_, weights_, context_));
    EndStage("planning");
    QUENCH_ASSIGN_OR_RETURN(const std::vector<uint64_t> offsets, PackWeights(targets[0]));
    EndStage("weights");
    QUENCH_RETURN_IF_ERROR(EmitObjects(offsets));
    EndStage("code");
    QUENCH_RETURN_IF_ERROR(Link(targets[0], library));
    EndStage("link");
    QUENCH_RETURN_IF_ERROR(Check(SecondsSince(begin_)));
    EndStage("check");
    QUENCH_RETURN_IF_ERROR(Publish(library, header));
    FillReport();
    return std::move(report_);
  }

 private:
  // CPU time of all threads.
  static double SecondsSince(std::clock_t begin) {
    return static_cast<double>(std::clock() - begin) / double{CLOCKS_PER_SEC};
  }
  void EndStage(const char* stage) {
    double before = 0;
    for (const StageTime& each : report_.stages) before += each.seconds;
    report_.stages.push_back({stage, SecondsSince(begin_) - before});
  }

  absl::Status Identify() {
    fingerprint_ = Fingerprint(source_);
    const std::string derived = DerivedUuid(fingerprint_, options_, emit_, resolved_);
    // Archives that register themselves meet others in one program.
    if (resolved_.spec.system_lib) {
      link_prefix_ = "quench_" + derived + "_";
      std::replace(link_prefix_.begin(), link_prefix_.end(), '-', '_');
    }
    report_.uuid = derived;
    if (!options_.uuid.empty()) {
      QUENCH_ASSIGN_OR_RETURN(report_.uuid, NormalUuid(options_.uuid));
    }
    return absl::OkStatus();
  }

  std::string SourceDigest() const {
    const auto found = source_.metadata.find(kSourceDigest);
    return found == source_.metadata.end() ? "" : found->second;
  }

  // Passes know more than the importer did: sizes that were for the run to tell may be fixed by
  // now.
  absl::Status Refine() {
    graph_ = WithOwnSymbols(source_);
    return ops::InferGraph(graph_);
  }

  absl::StatusOr<std::vector<uint64_t>> PackWeights(const Target& target) {
    objects_.push_back(folder_->path() / "weights.o");
    QUENCH_ASSIGN_OR_RETURN(const auto writer,
                            WeightsWriter::Create(objects_.back(), target, link_prefix_));
    QUENCH_ASSIGN_OR_RETURN(std::vector<uint64_t> offsets,
                            WriteWeights(weights_, *writer, context_));
    report_.weight_bytes = static_cast<int64_t>(writer->size());
    int64_t begin = 0;
    for (const PlannedVariant& variant : variants_) {
      const int64_t end = variant.weights_end < offsets.size()
                              ? static_cast<int64_t>(offsets[variant.weights_end])
                              : report_.weight_bytes;
      report_.variant_weights.push_back({variant.target.name, end - begin});
      begin = end;
    }
    offsets.push_back(writer->size());  // the end of the last
    QUENCH_RETURN_IF_ERROR(writer->Finish());
    return offsets;
  }

  const Backend& backend() const { return BackendOf(resolved_.spec.kind); }

  // Machine code of each variant on a thread of its own: modules share nothing.
  absl::Status EmitObjects(const std::vector<uint64_t>& offsets) {
    ModelTables model{.graph = &graph_,
                      .num_symbols = graph_.symbols->size(),
                      .uuid = report_.uuid,
                      .fingerprint = fingerprint_,
                      .producer = kProducer,
                      .variants = {},
                      .num_cores = resolved_.spec.num_cores,
                      .labels = options_.class_names,
                      .preprocessing = options_.preprocessing,
                      .target = ToString(resolved_.spec),
                      .producer_revision = SourceRevision(),
                      .source_digest = SourceDigest(),
                      .description = ""};
    std::vector<Target> targets;
    for (size_t i = 0; i < variants_.size(); ++i) {
      model.variants.push_back(fmt::format("{}quench_variant_{}", link_prefix_, i));
      targets.push_back(variants_[i].target);
    }
    model.description = DescriptionOf(model, targets);
    std::vector<std::unique_ptr<CodeModule>> modules;
    for (size_t i = 0; i < variants_.size(); ++i) {
      QUENCH_RETURN_IF_ERROR(context_.Check());
      const PlannedVariant& variant = variants_[i];
      QUENCH_ASSIGN_OR_RETURN(
          auto module, backend().NewModule(variant.target, fmt::format("v{}", i), link_prefix_));
      QUENCH_RETURN_IF_ERROR(module->AddVariant(variant.built.program, offsets, model.variants[i]));
      modules.push_back(std::move(module));
    }
    QUENCH_RETURN_IF_ERROR(modules[0]->AddModel(model));
    // The first variant stands for all, which run beside it.
    const EmissionProgress progress = [this](const char* stage, int64_t done, int64_t total) {
      context_.Report({stage, "", done, total});
    };
    std::vector<std::future<absl::StatusOr<std::string>>> running;
    for (size_t i = 1; i < variants_.size(); ++i) {
      running.push_back(
          std::async(std::launch::async, [&modules, i] { return modules[i]->Finish(nullptr); }));
    }
    QUENCH_RETURN_IF_ERROR(AddObject(modules[0]->Finish(progress), "v0.o"));
    for (size_t i = 0; i < running.size(); ++i)
      QUENCH_RETURN_IF_ERROR(AddObject(running[i].get(), fmt::format("v{}.o", i + 1)));
    if (emit_ != Emit::kSharedLibrary)
      return context_.Check();  // the program it goes into has a C library
    QUENCH_RETURN_IF_ERROR(AddHelpers());
    return context_.Check();
  }

  absl::Status AddHelpers() {
    QUENCH_ASSIGN_OR_RETURN(const auto helpers, backend().NewModule(variants_[0].target, "m", ""));
    QUENCH_RETURN_IF_ERROR(helpers->AddHelpers());
    return AddObject(helpers->Finish(nullptr), "memory.o");
  }

  absl::Status AddObject(const absl::StatusOr<std::string>& bytes, const std::string& name) {
    QUENCH_RETURN_IF_ERROR(bytes.status());
    objects_.push_back(folder_->path() / name);
    std::ofstream file(objects_.back(), std::ios::binary);
    file.write(bytes->data(), static_cast<std::streamsize>(bytes->size()));
    file.close();
    return file ? absl::OkStatus() : ErrnoStatus(errno, "write", objects_.back());
  }

  absl::Status Link(const Target& target, const std::filesystem::path& library) {
    context_.Report({"link", library.filename().string(), 0, 1});
    linked_ = folder_->path() / "linked";
    if (emit_ == Emit::kSharedLibrary) {
      QUENCH_RETURN_IF_ERROR(LinkShared(target, objects_, library.filename().string(), linked_));
      return MeasureParts(linked_);
    }
    const std::filesystem::path object =
        emit_ == Emit::kObject ? linked_ : folder_->path() / "model.o";
    QUENCH_RETURN_IF_ERROR(LinkRelocatable(target, objects_, object));
    QUENCH_RETURN_IF_ERROR(MeasureParts(object));
    if (emit_ == Emit::kObject) return absl::OkStatus();
    return WriteArchive(object, "model.o", ModelSymbol(link_prefix_), linked_);
  }

  absl::Status MeasureParts(const std::filesystem::path& file) {
    QUENCH_ASSIGN_OR_RETURN(const LibrarySizes sizes, SizesOfLibrary(file));
    report_.code_bytes = sizes.code;
    report_.rest_bytes = sizes.file - sizes.code - report_.weight_bytes;
    return absl::OkStatus();
  }

  absl::Status Check(double seconds) {
    if (options_.check == CheckMode::kNo) return absl::OkStatus();
    report_.check.emplace();
    if (options_.taps != Taps::kNone) {
      report_.check->reason = "builds with taps show their values, and others check them";
      return absl::OkStatus();
    }
    std::filesystem::path library = linked_;
    if (emit_ != Emit::kSharedLibrary) {
      if (!link_prefix_.empty()) {
        report_.check->reason = "what registers itself runs in the program that it is linked into";
        return absl::OkStatus();
      }
      library = folder_->path() / "checked";  // the same objects
      QUENCH_RETURN_IF_ERROR(AddHelpers());
      QUENCH_RETURN_IF_ERROR(LinkShared(variants_[0].target, objects_, "checked", library));
    }
    context_.Report({"check", "", 0, 1});
    const Graph& source = options_.check_source == nullptr ? source_ : *options_.check_source;
    QUENCH_ASSIGN_OR_RETURN(report_.check, CheckLibrary({.library = library,
                                                         .source = source,
                                                         .variants = variants_,
                                                         .passes = options_.passes,
                                                         .target = ToString(resolved_.spec),
                                                         .mode = options_.check,
                                                         .tf32 = options_.tf32,
                                                         .on_mismatch = options_.on_mismatch,
                                                         .compile_seconds = seconds},
                                                        context_));
    return absl::OkStatus();
  }

  // Both files are complete beside their places before either appears.
  absl::Status Publish(const std::filesystem::path& library, const std::filesystem::path& header) {
    QUENCH_RETURN_IF_ERROR(context_.Check());
    QUENCH_RETURN_IF_ERROR(Flush(linked_));
    QUENCH_RETURN_IF_ERROR(
        WriteFileAtomically(header, ModelHeader(graph_, {.library = library.filename().string(),
                                                         .uuid = report_.uuid,
                                                         .producer = kProducer,
                                                         .registers = resolved_.spec.system_lib,
                                                         .prefix = options_.header_prefix})));
    std::error_code error;
    std::filesystem::rename(linked_, library, error);
    if (!error) return absl::OkStatus();
    std::error_code ignored;
    std::filesystem::remove(header, ignored);
    return ErrnoStatus(error.value(), "create", library);
  }

  static absl::Status Flush(const std::filesystem::path& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return ErrnoStatus(errno, "open", path);
    const int result = ::fsync(fd);
    const int reason = errno;
    ::close(fd);
    return result == 0 ? absl::OkStatus() : ErrnoStatus(reason, "flush", path);
  }

  void FillReport() {
    const PlannedVariant& best = variants_.back();
    const TargetSpec& spec = resolved_.spec;
    report_.target = fmt::format("{} ({}, {}{}{})",
                                 IsTargetSpec(options_.target) ? best.target.name : options_.target,
                                 best.target.triple, best.target.cpu, spec.mattr.empty() ? "" : " ",
                                 fmt::join(spec.mattr, ","));
    report_.target_string = ToString(spec);
    report_.unused_features = resolved_.unused;
    for (const Target& target : resolved_.variants) report_.variants.push_back(target.name);
    report_.kernels = best.built.reports;
    if (options_.opt_level >= 2) NameSlowNests(report_.kernels);
    if (IsHalf(options_.passes.store_as))
      report_.kept_float32 = passes::KeptInFloat32(graph_, options_.passes);
    report_.arena_bytes = best.built.program.typical_arena_bytes;
    report_.arena_lower_bound = best.built.program.typical_lower_bound;
    report_.device_arena_bytes = best.built.program.typical_device_bytes;
    report_.device_arena_lower_bound = best.built.program.typical_device_lower_bound;
    report_.arena = ArenaBuffersOf(best.built.program);
    AddArenaUse(best.built.program, report_.kernels);
  }

  const Graph& source_;
  Graph graph_;
  const CompileOptions& options_;
  std::clock_t begin_ = 0;
  const StepContext& context_;
  CompileReport report_;
  ResolvedTarget resolved_;
  Emit emit_ = Emit::kSharedLibrary;
  std::string fingerprint_;
  std::string link_prefix_;
  std::optional<TempDir> folder_;
  WeightTable weights_;
  std::vector<PlannedVariant> variants_;
  std::vector<std::filesystem::path> objects_;
  std::filesystem::path linked_;
};

}  // namespace

absl::StatusOr<CompileReport> Compile(const Graph& graph, const CompileOptions& options,
                                      const std::filesystem::path& library,
                                      const std::filesystem::path& header,
                                      const StepContext& context) {
  return Compiler(graph, options, context).Run(library, header);
}

absl::StatusOr<Emit> WhatToEmit(const CompileOptions& options) {
  QUENCH_ASSIGN_OR_RETURN(const ResolvedTarget resolved,
                          Resolve(options.target, options.host_target, options.caller));
  const bool registers = resolved.spec.system_lib;
  if (options.emit == Emit::kByTarget) return registers ? Emit::kArchive : Emit::kSharedLibrary;
  if (registers && options.emit != Emit::kArchive)
    return InvalidArgument("target has system-lib, which is a static archive, and `emit` is not");
  return options.emit;
}

namespace {

const char* NameOf(TagKind kind) {
  switch (kind) {
    case TagKind::kX86:
      return "x86";
    case TagKind::kArm:
      return "arm";
    case TagKind::kAndroid:
      return "android";
    case TagKind::kCuda:
      return "cuda";
  }
  return "";
}

TargetInfo InfoOf(const TargetName& name) {
  TargetInfo info{name.name, NameOf(name.kind), "", {}, name.strings, name.description};
  const absl::StatusOr<ResolvedTarget> resolved = Resolve(name.name, "", std::nullopt);
  if (!resolved.ok()) {  // host, where nothing fits
    info.description = MessageOf(resolved.status());
    return info;
  }
  info.triple = resolved->variants.front().triple;
  if (info.strings.empty()) info.strings = {ToString(resolved->spec)};
  for (const Target& variant : resolved->variants) {
    if (name.kind == TagKind::kCuda && variant.device == nullptr) continue;
    const Target& code = variant.device != nullptr ? *variant.device : variant;
    info.variants.push_back(fmt::format("{}: cpu {} {}", variant.name, code.cpu, code.features));
  }
  return info;
}

}  // namespace

absl::StatusOr<std::vector<TargetInfo>> ListTargets(const std::string& kind) {
  const std::set<std::string> kinds = {"x86", "arm", "android", "cuda", "all"};
  if (!kinds.contains(kind))
    return InvalidArgument("kind is `{}`, it must be x86, arm, android, cuda or all", kind);
  std::vector<TargetName> names = TargetNames();
  for (TargetName& name : CudaNames()) names.push_back(std::move(name));
  for (TargetName& tag : TagNames()) names.push_back(std::move(tag));
  std::vector<TargetInfo> all;
  for (const TargetName& name : names) {
    if (kind == "all" || kind == NameOf(name.kind)) all.push_back(InfoOf(name));
  }
  return all;
}

}  // namespace quench::codegen
