#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/hash.h"
#include "common/runtime/crypto.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/compile_options.h"
#include "services/cli/compile_summary.h"
#include "services/cli/encryption.h"
#include "services/cli/evidence.h"
#include "services/cli/labels.h"
#include "services/cli/metadata.h"
#include "services/cli/model_source.h"
#include "services/cli/module_files.h"
#include "services/cli/options_file.h"
#include "services/cli/precision.h"
#include "services/cli/precision_check.h"
#include "services/cli/precision_hint.h"
#include "services/cli/progress.h"
#include "services/cli/quantization.h"
#include "services/cli/remote.h"
#include "services/cli/runtime/runtime_files.h"
#include "services/codegen/header.h"
#include "services/codegen/measure.h"
#include "services/codegen/options/rows.h"
#include "services/codegen/package.h"
#include "services/codegen/targets/resolve.h"
#include "services/quantizer/statistics_file.h"

namespace quench::cli {

std::string LibraryName(codegen::Emit emit) {
  return emit == codegen::Emit::kObject    ? "model.o"
         : emit == codegen::Emit::kArchive ? "model.a"
                                           : "model.so";
}

namespace {

namespace fs = std::filesystem;

constexpr char kCompileExamples[] = R"(Examples:
  quench compile resnet50.onnx                               for this machine, into ./compile_output
  quench compile bert.onnx --size seq=1..512 --output bert    one library for every sequence length up to 512
  quench compile yolo.onnx --target aarch64 --batch 1        for a 64-bit Arm CPU
  quench compile m.onnx --target raspberry-pi/5              for a board listed by `quench targets`
  quench compile m.onnx --target "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -num-cores=8"
  quench compile m.onnx --target aarch64 --with-runtime      adds libquench_rt for that CPU, headers and a CMake file
  quench compile m.onnx --encrypt                            only modelKey.bin and its password open model.so
  quench compile m.onnx --target x86-64 --force              SSE4.2, AVX2 and AVX-512 in one library
  quench compile m.onnx --no-freeze fc.weight                  makes that weight an input of the library (all: every weight)
  quench compile m.onnx --opt-level 4 --tune-seconds 120     chooses kernels by timing them on this CPU
  quench compile m.onnx --export-ir --export-metadata        also model.ir.txt and metadata.json
  quench compile m.onnx --no-fold-constants --stop-after dead_code   writes the IR after a pass
  quench compile m.onnx --quantize int8 --per-channel --calibration-data samples   computes in 8-bit integers
  quench compile m.onnx --quantize int8 --calibration-data data --labels data --max-drop 0.5%
                                                             loses at most half a point of accuracy
  quench compile m.onnx --float16                            f16 weights and activations: half the bytes, faster on CPUs with f16 arithmetic
  quench compile m.onnx --bfloat16                           bf16 likewise: faster on CPUs with bf16 products, most with AMX
  quench compile m.onnx --precision fastest                  times f32, f16 and bf16 here and takes the fastest for each layer
  quench compile m.onnx --precision fastest --calibration-data data --labels data --max-drop 0.5%
                                                             8-bit integers too, as far as accuracy allows
  quench compile gpt.onnx --quantize int4                    4-bit weights in matrix products, 32 per scale
  quench compile m.onnx --options project.txtpb              options of a project: target, precision and others, in one file
  quench compile m.onnx --gateway build-farm:7450            compiled on a gateway, byte for byte the same)";

struct CompileArgs {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  codegen::CompileOptions codegen;
  std::string format = "text";
  std::string output = "./compile_output";
  std::string class_names, preprocess;  // files
  std::string options;                  // a file
  std::string stop_after;
  // Not quantized when `quantize` is empty.
  std::string quantize;
  std::shared_ptr<QuantizeFlags> how = std::make_shared<QuantizeFlags>();
  QuantizeJob job;                                  // but `how`
  std::string precision;                            // "fastest", or empty
  std::function<std::vector<std::string>()> given;  // the options that were
  std::shared_ptr<EncryptFlags> encryption = std::make_shared<EncryptFlags>();
  bool export_ir = false;
  bool export_metadata = false;
  bool force = false;
  bool external_weights = false;
  bool with_runtime = false;
  // Once targets are resolved: whose runtime that is, and whether the library registers its model.
  std::string runtime_system;
  bool registers = false;
};

bool Encrypts(const CompileArgs& args) {
  return args.encryption->encrypt || !args.encryption->recipient.empty();
}

// Moves a finished folder into place: as a whole when `output` does not exist, else file by file.
absl::Status Publish(TempDir folder, const fs::path& output) {
  std::error_code error;
  if (!fs::exists(output, error)) {
    fs::permissions(folder.path(), fs::perms(0755), error);
    fs::rename(folder.path(), output, error);
    if (error) return ErrnoStatus(error.value(), "create", output);
    folder.Release();
    return absl::OkStatus();
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.path())) {
    fs::rename(entry.path(), output / entry.path().filename(), error);
    if (error) return ErrnoStatus(error.value(), "replace", output / entry.path().filename());
  }
  return absl::OkStatus();
}

// The folder that the output folder lies in.
fs::path ParentOf(const CompileArgs& args) {
  std::error_code error;
  const fs::path output = fs::absolute(args.output, error).lexically_normal();
  return output.has_filename() ? output.parent_path() : output.parent_path().parent_path();
}

absl::StatusOr<TempDir> PrepareOutput(const CompileArgs& args) {
  std::error_code error;
  const fs::path output = fs::absolute(args.output, error).lexically_normal();
  // An empty folder loses nothing.
  const bool holds = fs::exists(output, error) &&
                     !(fs::is_directory(output, error) && fs::is_empty(output, error));
  if (holds && !args.force) {
    return absl::AlreadyExistsError(
        fmt::format("output `{}` exists; --force replaces the files in it", args.output));
  }
  if (fs::exists(output, error) && !fs::is_directory(output, error)) {
    return absl::AlreadyExistsError(
        fmt::format("output `{}` exists and is not a folder", args.output));
  }
  const fs::path parent = ParentOf(args);
  fs::create_directories(parent, error);
  if (error) return ErrnoStatus(error.value(), "create", parent);
  return TempDir::Create(parent);
}

// Beside an encrypted library weights do not lie in the open: a text that is only read names them by their digests.
absl::Status WriteIr(const CompileArgs& args, const Graph& graph, const fs::path& path) {
  if (Encrypts(args)) return WriteFileAtomically(path, PrintGraph(graph, {.constants = false}));
  return WriteModule(graph, path, args.external_weights);
}

bool WantsGraph(const CompileArgs& args) {
  return args.export_ir || args.export_metadata || !args.stop_after.empty();
}

// Integers wherever options and statistics allow, before kernels are chosen.
absl::StatusOr<QuantizedModel> QuantizeModel(const CompileArgs& args, const QuantizeJob& job,
                                             const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const Graph graph,
                          PrepareForQuantization(*args.model, job.how.rescue, context));
  TapBuild taps(graph);
  std::optional<quantizer::Statistics> statistics;
  if (!job.calibration.empty()) {
    QUENCH_ASSIGN_OR_RETURN(statistics, quantizer::ReadStatistics(job.calibration));
  } else if (WantsRanges(job.how)) {
    QUENCH_ASSIGN_OR_RETURN(statistics, CalibrateHere(taps, job.samples, context));
    WarnOf(*statistics);
  }
  return QuantizeHere(taps, statistics ? &*statistics : nullptr, job.how,
                      PassOptionsOf(*args.model), context);
}

// A mismatch, and what a bug report needs.
absl::Status WithEvidence(const absl::Status& mismatch, const absl::StatusOr<fs::path>& evidence) {
  const std::string left =
      evidence.ok() ? fmt::format("for a bug report, the graph and the sample were saved in `{}`",
                                  evidence->string())
                    : fmt::format("nothing could be saved for a bug report: {}",
                                  MessageOf(evidence.status()));
  return absl::Status(mismatch.code(),
                      fmt::format("{}; no library was made, {}", MessageOf(mismatch), left));
}

// Compiles `graph`, which computes what `source` does.
absl::StatusOr<codegen::CompileReport> CompileHere(const CompileArgs& args, const Graph& graph,
                                                   const Graph& source,
                                                   const passes::PassOptions& passes,
                                                   const fs::path& folder,
                                                   const StepContext& context) {
  codegen::CompileOptions options = args.codegen;
  options.check_source = &source;
  absl::StatusOr<fs::path> evidence = fs::path();  // where a check leaves it
  options.on_mismatch = [&](const codegen::CheckEvidence& found) {
    evidence = WriteEvidence(found, ParentOf(args));
  };
  options.passes = passes;
  absl::StatusOr<codegen::CompileReport> report = codegen::CompileMeasured(
      graph, options, folder / LibraryName(args.codegen.emit), folder / "model.h", context);
  if (!evidence.ok() || !evidence->empty()) return WithEvidence(report.status(), evidence);
  return report;
}

// As --precision wants it: what is compiled was timed before.
absl::StatusOr<Made> MakeFastest(const CompileArgs& args, const QuantizeJob& job,
                                 const fs::path& folder, const StepContext& context) {
  PrecisionSearch search({*args.model, job, args.codegen, folder}, context);
  QUENCH_ASSIGN_OR_RETURN(MixedModel model, search.Run());
  Made made;
  made.graph = std::move(model.graph);
  made.quantized = std::move(model.quantization);
  QUENCH_ASSIGN_OR_RETURN(
      made.report, CompileHere(args, *made.graph, model.source, model.passes, folder, context));
  // The layers of a mixed library are in the report of the search.
  if (!model.passes.node_types.empty()) made.report->kept_float32.clear();
  if (args.codegen.emit == codegen::Emit::kSharedLibrary)
    QUENCH_RETURN_IF_ERROR(search.MeasureWritten(folder / LibraryName(args.codegen.emit)));
  made.precision = std::make_shared<const PrecisionReport>(search.report());
  return made;
}

absl::StatusOr<Made> MakeHere(const CompileArgs& args, const QuantizeJob& job,
                              const fs::path& folder, const StepContext& context) {
  if (!args.precision.empty()) return MakeFastest(args, job, folder, context);
  passes::PassOptions pass_options = PassOptionsOf(*args.model);
  pass_options.stop_after = args.stop_after;
  Made made;
  if (args.quantize.empty()) {
    QUENCH_ASSIGN_OR_RETURN(importer::Imported imported, LoadModel(*args.model, context));
    made.graph = std::move(imported.canonical);
  } else {
    QUENCH_ASSIGN_OR_RETURN(QuantizedModel quantized, QuantizeModel(args, job, context));
    made.graph = std::move(quantized.graph);
    made.quantized = std::move(quantized.quantization);
  }
  const Graph source = *made.graph;  // what the library should compute
  QUENCH_ASSIGN_OR_RETURN(made.graph,
                          passes::RunPipeline(*std::move(made.graph), pass_options, context));
  if (!args.stop_after.empty()) return made;
  QUENCH_ASSIGN_OR_RETURN(made.report, CompileHere(args, *made.graph, source,
                                                   PassOptionsOf(*args.model), folder, context));
  return made;
}

bool IsFourBits(const std::string& dtype) { return dtype == "int4" || dtype == "uint4"; }

absl::Status CheckQuantization(const CompileArgs& args) {
  if (!args.precision.empty()) {
    QuantizeJob job = args.job;
    job.how = *args.how;
    return CheckPrecision(job, args.given());
  }
  const int sources = (args.job.calibration.empty() ? 0 : 1) +
                      (args.job.samples.data.empty() ? 0 : 1) +
                      (args.job.samples.random > 0 ? 1 : 0);
  if (args.quantize.empty()) return absl::OkStatus();
  const bool four_bits = IsFourBits(args.quantize);
  if (four_bits && args.how->type != "any" && args.how->type != "weights") {
    return InvalidArgument(
        "--quantize {} applies to weights only: use --type weights instead of --type {}",
        args.quantize, args.how->type);
  }
  if (four_bits && !args.how->kernel_dtype.empty() && args.how->kernel_dtype != args.quantize) {
    return InvalidArgument("--quantize {} and --kernel-dtype {} give the weights different types",
                           args.quantize, args.how->kernel_dtype);
  }
  if (WantsRanges(*args.how) && !four_bits ? sources != 1 : sources > 0) {
    return InvalidArgument(
        "--quantize needs exactly one of --calibration-data PATH, --calibration FILE and "
        "--calibration-random N (none with int4, uint4, --type weights or --type dynamic)");
  }
  const BudgetFlags& budget = *args.how->budget;
  const bool samples = !args.job.samples.data.empty() || args.job.samples.random > 0;
  QUENCH_RETURN_IF_ERROR(CheckRoundingFlags(*args.how->rounding, samples));
  return CheckBudget(budget, budget.data.empty() ? args.job.samples.data : budget.data);
}

absl::StatusOr<QuantizeJob> JobOf(const CompileArgs& args) {
  QuantizeJob job = args.job;
  job.how = *args.how;
  if (IsFourBits(args.quantize)) {
    job.how.type = "weights";
    job.how.kernel_dtype = args.quantize;
  } else {
    job.how.activation_dtype = args.quantize.empty() ? "int8" : args.quantize;
  }
  job.how.budget = std::make_shared<BudgetFlags>(*args.how->budget);
  QUENCH_ASSIGN_OR_RETURN(job.how.budget->format, SampleFormatOf(job.samples.images));
  if (HasBudget(*job.how.budget) && job.how.budget->data.empty())
    job.how.budget->data = job.samples.data;
  job.how.rounding = std::make_shared<RoundingFlags>(*args.how->rounding);
  SampleOptions& rounding = job.how.rounding->samples;
  if (rounding.data.empty()) rounding = job.samples;
  rounding.images = job.samples.images;
  return job;
}

// Target string of --target and --host; a name, or else a file, is no target string.
absl::StatusOr<std::string> TargetText(const std::string& given) {
  constexpr uint64_t kMostBytes = 16 << 10;
  std::error_code error;
  if (given.empty() || codegen::IsTargetSpec(given) || codegen::IsTargetName(given) ||
      !fs::is_regular_file(given, error)) {
    return given;
  }
  if (fs::file_size(given, error) > kMostBytes || error)
    return InvalidArgument("target file `{}` is larger than {} bytes", given, kMostBytes);
  return ReadFile(given);
}

// Version 4 (RFC 9562).
absl::StatusOr<std::string> RandomUuid() {
  std::array<unsigned char, 16> bytes{};
  if (quench_random(bytes.data(), bytes.size()) == 0) return Internal("no random numbers");
  bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3f) | 0x80);
  return codegen::NormalUuid(fmt::format("{:02x}", fmt::join(bytes, "")));
}

// Reads the facts that users of the library are told.
absl::Status ReadFacts(CompileArgs& args) {
  if (!args.class_names.empty()) {
    QUENCH_ASSIGN_OR_RETURN(args.codegen.class_names, ReadClassNames(args.class_names));
  }
  nlohmann::json preprocessing = nlohmann::json::object();
  const bool given = !args.preprocess.empty() || !args.codegen.preprocessing.empty();
  if (given) {
    std::string text = args.codegen.preprocessing;
    if (!args.preprocess.empty()) {
      QUENCH_ASSIGN_OR_RETURN(text, ReadFile(args.preprocess));
    }
    preprocessing = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!preprocessing.is_object()) {
      return InvalidArgument("preprocessing in `{}` is not a JSON object",
                             args.preprocess.empty() ? args.options : args.preprocess);
    }
  }
  if (!args.job.samples.images.empty()) {
    QUENCH_RETURN_IF_ERROR(ParseImageOptions(args.job.samples.images).status());
    preprocessing[kImagesKey] = args.job.samples.images;
  }
  if (!preprocessing.empty() || given) args.codegen.preprocessing = preprocessing.dump();
  return absl::OkStatus();
}

// A model is called by its file or folder, without the ending, where nobody says otherwise.
std::string DefaultPrefix(const std::string& model) {
  const fs::path path(model);
  const fs::path file = path.has_filename() ? path.filename() : path.parent_path().filename();
  // A module as a text has two endings.
  std::string name = (file.extension() == ".txt" ? file.stem().stem() : file.stem()).string();
  const auto ascii = [](char c) { return static_cast<signed char>(c) > 0; };
  if (std::all_of(name.begin(), name.end(), ascii)) return name;
  return codegen::HeaderPrefix(name).substr(
      0, codegen::kMostPrefix);  // it may not be UTF-8, as requests are
}

// Empty, or what is wrong with it.
std::string PrefixProblem(const std::string& prefix) {
  const auto word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  if (prefix.empty() || (std::isalpha(static_cast<unsigned char>(prefix[0])) &&
                         std::all_of(prefix.begin(), prefix.end(), word))) {
    return "";
  }
  return fmt::format(
      "--prefix `{}` must consist of letters, digits and `_` and begin with a letter", prefix);
}

absl::Status ResolveTargets(CompileArgs& args) {
  QUENCH_ASSIGN_OR_RETURN(args.codegen.target, TargetText(args.codegen.target));
  QUENCH_ASSIGN_OR_RETURN(args.codegen.host_target, TargetText(args.codegen.host_target));
  if (args.codegen.uuid == "random") {
    QUENCH_ASSIGN_OR_RETURN(args.codegen.uuid, RandomUuid());
  }
  QUENCH_RETURN_IF_ERROR(ReadFacts(args));
  if (args.codegen.header_prefix.empty())
    args.codegen.header_prefix = DefaultPrefix(args.model->model);
  const absl::StatusOr<codegen::Emit> emit = codegen::WhatToEmit(args.codegen);
  if (!emit.ok()) return UsageError(emit.status());
  args.codegen.emit = *emit;
  if (args.with_runtime) {
    QUENCH_ASSIGN_OR_RETURN(const codegen::ResolvedTarget resolved,
                            codegen::Resolve(args.codegen.target, "", args.codegen.caller));
    QUENCH_ASSIGN_OR_RETURN(args.runtime_system, RuntimeSystem(resolved));
    args.registers = resolved.spec.system_lib;
  }
  const bool precise = !args.precision.empty();
  if ((args.codegen.opt_level == 4 || precise) && !UsesGateway(*args.gateway)) {
    QUENCH_ASSIGN_OR_RETURN(const auto variants, codegen::ResolveTarget(args.codegen.target));
    QUENCH_ASSIGN_OR_RETURN(const auto here, codegen::ResolveTarget("host"));
    if (!variants.empty() && !here.empty() && variants.back().machine != here.back().machine) {
      return InvalidArgument(
          "{} times kernels by running them, but this machine cannot run code for `{}`: "
          "compile on such a machine, or use {}",
          precise ? "--precision fastest" : "--opt-level 4", args.codegen.target,
          precise ? "--float16, --bfloat16 or --quantize" : "--opt-level 3");
    }
  }
  return absl::OkStatus();
}

// Stages of a compilation, for its progress.
Plan PlanOf(const CompileArgs& args) {
  Plan plan = ImportPlan();
  if (!args.quantize.empty()) {
    if (WantsRanges(*args.how) && args.job.calibration.empty()) {
      plan += BuildPlan();
      plan += {{"calibrate", 60}};
    }
    plan += {{"round", 40}, {"quantize", 5}, {"select", 60}, {"passes", 4}};
  }
  if (!args.precision.empty()) {
    if (HasCalibration(args.job) && args.job.calibration.empty()) {
      plan += BuildPlan();
      plan += {{"calibrate", 60}};
    }
    plan += {{"round", 40}, {"precision", 200}, {"measure", 60}, {"accuracy", 60}, {"select", 60}};
  }
  plan += BuildPlan();
  plan += {{"check", 10}};
  return plan;
}

// Mistakes that can be seen before anything is done.
absl::Status CheckRequest(const CompileArgs& args) {
  QUENCH_RETURN_IF_ERROR(KindOf(args.model->model).status());
  if (!args.precision.empty() && UsesGateway(*args.gateway)) {
    return UsageError(InvalidArgument(
        "--precision fastest times libraries on this machine: it works without a gateway"));
  }
  if (UsesGateway(*args.gateway)) QUENCH_RETURN_IF_ERROR(BeginThere());
  QUENCH_RETURN_IF_ERROR(UsageError(CheckQuantization(args)));
  if (Encrypts(args) && LibraryName(args.codegen.emit) != "model.so") {
    return InvalidArgument("only shared libraries can be encrypted; this command makes {}",
                           LibraryName(args.codegen.emit));
  }
  return absl::OkStatus();
}

absl::Status PublishIr(const CompileArgs& args, TempDir folder) {
  QUENCH_RETURN_IF_ERROR(Publish(std::move(folder), args.output));
  if (args.format == "json") {
    const nlohmann::json json = {{"ir", args.output + "/model.ir.txt"},
                                 {"stopped_after", args.stop_after}};
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("{}/model.ir.txt\n  stopped after pass `{}`: no library was made\n", args.output,
               args.stop_after);
  }
  return absl::OkStatus();
}

absl::Status WriteMetadata(const CompileArgs& args, const Made& made, const fs::path& work) {
  const bool halves =
      args.model->float16 || args.model->bfloat16 || !made.report->kept_float32.empty();
  QUENCH_ASSIGN_OR_RETURN(
      const std::string metadata,
      MetadataOf(made, {.library = work / LibraryName(args.codegen.emit),
                        .model = fs::path(args.model->model).filename().string(),
                        .opt_level = args.codegen.opt_level,
                        .halves = halves}));
  return WriteFileAtomically(work / "metadata.json", metadata);
}

// The library encrypted from `work` to `folder`, and the files beside it as they are.
absl::Status EncryptInto(const Encryption& encryption, const fs::path& work,
                         const fs::path& folder) {
  QUENCH_RETURN_IF_ERROR(
      EncryptLibrary(encryption, work / "model.so", folder / "model.so", folder / "modelKey.bin"));
  std::error_code error;
  for (const char* beside : {"model.h", "model.ir.txt", "model.ir.txt.weights", "metadata.json"}) {
    if (fs::exists(work / beside, error)) fs::copy_file(work / beside, folder / beside, error);
    if (error) return ErrnoStatus(error.value(), "write", folder / beside);
  }
  return absl::OkStatus();
}

void PrintSummary(const CompileArgs& args, const Made& made,
                  const std::optional<Encryption>& encryption) {
  CompileSummary summary{fmt::format("{}/{}", args.output, LibraryName(args.codegen.emit)),
                         *made.report,
                         made.quantized,
                         "",
                         "",
                         "",
                         made.precision};
  const auto variants = codegen::ResolveTarget(args.codegen.target, args.codegen.caller);
  if (variants.ok() && args.precision.empty())
    summary.hint = PrecisionHint(variants->back(), *made.report);
  if (encryption) {
    summary.key = encryption->password ? args.output + "/modelKey.bin (protected by the password)"
                                       : "the identity of " + args.encryption->recipient;
  }
  if (args.with_runtime) {
    summary.runtime =
        fmt::format("{} for {}", fmt::join(RuntimeFileNames(), ", "), args.runtime_system);
  }
  if (args.format == "json") {
    fmt::print("{}\n", CompileSummaryToJson(summary).dump(
                           2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    PrintCompileSummary(summary);
  }
}

absl::Status RunCompile(const CompileArgs& args, const StepContext& context) {
  PlanProgress(PlanOf(args));
  QUENCH_RETURN_IF_ERROR(CheckRequest(args));
  if (args.model->float16 && !args.job.calibration.empty()) {
    QUENCH_ASSIGN_OR_RETURN(args.model->magnitudes, MagnitudesOf(args.job.calibration, *args.model,
                                                                 args.how->rescue, context));
  }
  QUENCH_ASSIGN_OR_RETURN(const QuantizeJob job, JobOf(args));
  QUENCH_ASSIGN_OR_RETURN(const std::optional<Encryption> encryption,
                          EncryptionOf(*args.encryption));
  QUENCH_ASSIGN_OR_RETURN(TempDir folder, PrepareOutput(args));
  std::optional<TempDir> memory;
  if (encryption) {
    QUENCH_ASSIGN_OR_RETURN(memory, MemoryFolder());
  }
  const fs::path work = memory ? memory->path() : folder.path();
  QUENCH_ASSIGN_OR_RETURN(
      const Made made,
      UsesGateway(*args.gateway)
          ? CompileThere({*args.gateway, *args.model, args.codegen, args.stop_after,
                          WantsGraph(args), args.quantize.empty() ? nullptr : &job},
                         work, context)
          : MakeHere(args, job, work, context));
  if (args.export_ir || !made.report) {
    QUENCH_RETURN_IF_ERROR(WriteIr(args, *made.graph, work / "model.ir.txt"));
  }
  if (!made.report) return PublishIr(args, std::move(folder));
  if (args.export_metadata) QUENCH_RETURN_IF_ERROR(WriteMetadata(args, made, work));
  if (encryption) QUENCH_RETURN_IF_ERROR(EncryptInto(*encryption, work, folder.path()));
  if (args.with_runtime) {
    QUENCH_RETURN_IF_ERROR(WriteRuntime(args.runtime_system,
                                        {.library = LibraryName(args.codegen.emit),
                                         .prefix = args.codegen.header_prefix,
                                         .registers = args.registers},
                                        folder.path()));
  }
  QUENCH_RETURN_IF_ERROR(context.Check());
  QUENCH_RETURN_IF_ERROR(Publish(std::move(folder), args.output));
  PrintSummary(args, made, encryption);
  return absl::OkStatus();
}

void AddQuantization(const Options& all, const std::shared_ptr<CompileArgs>& args) {
  const Options options = all.In("Precision");
  options
      .Add("--quantize", args->quantize,
           "Compute in 8-bit integers, or store weights in 4 or 8 bits (--type weights). See the "
           "options of `quench quantize`",
           "int8|uint8|int4|uint4")
      .OneOf({"int8", "uint8", "int4", "uint4"});
  options
      .Add("--precision", args->precision,
           "Choose f32, f16, bf16 or int8 for each layer, whichever is fastest on this machine and "
           "keeps the budget of --min-sqnr or --max-drop (20 dB if neither is given). int8 needs "
           "calibration",
           "fastest")
      .OneOf({"fastest"})
      .Excludes({"--quantize", "--float16", "--bfloat16", "--stop-after"});
  args->given = [options] { return options.Given(); };
  const Options how = options.Under({"--quantize", "--precision"});
  how.Add("--calibration-data", args->job.samples.data,
          "Samples to calibrate on: a file, folder or ZIP archive (see `quench calibrate`)",
          "PATH");
  AddImageFlag(all, args->job.samples.images);
  all.Describe("--images",
               "How .png and .jpg files are scaled for this model, as `quench calibrate` takes it: "
               "recorded in the library, where `quench run` finds it, and used for samples");
  options
      .Add("--calibration", args->job.calibration,
           "Use statistics written by `quench calibrate` instead. With --float16: values close to "
           "the limit of f16 stay f32",
           "FILE")
      .Needs({"--quantize", "--precision", "--float16"});
  how.Add("--calibration-random", args->job.samples.random,
          "Calibrate on N random samples instead, if no real ones are available", "N")
      .AtLeast(1);
  options.AddRule([args]() -> std::string {
    return HasDataSizes(*args->model, SizeIs::kOfModel) && args->job.samples.random == 0
               ? "--size: one symbol has a range and a size; sizes beside a range need "
                 "--calibration-random"
               : "";
  });
  AddQuantizeFlags(how, args->how);
}

void AddOutputs(const Options& options, const std::shared_ptr<CompileArgs>& args) {
  const Options rare = options.Rare();
  options.Add("--output,-o", args->output, "Output folder for model.so and model.h",
              "DIR (default ./compile_output)");
  options.Flag("--force,-f", args->force, "Overwrite files in an existing output folder");
  options.Flag("--with-runtime", args->with_runtime,
               "Also write what a C or C++ program needs to run the library: libquench_rt.so and "
               ".a for the target, headers, a CMake file");
  options.Flag("--export-metadata", args->export_metadata, "Also write metadata.json");
  options.Flag("--export-ir", args->export_ir, "Also write model.ir.txt");
  AddWeightsFlag(rare, args->external_weights, {"--export-ir", "--stop-after"});
  const codegen::OptionRow &names = codegen::OptionRowOf("class_names"),
                           &preprocessing = codegen::OptionRowOf("preprocessing");
  options.Add(names.flag, args->class_names, names.help, names.value);
  options.Add(preprocessing.flag, args->preprocess, preprocessing.help, preprocessing.value);
  rare.Add("--uuid", args->codegen.uuid,
           "UUID of the library (default: derived from model and options, so that equal requests "
           "give identical bytes)",
           "U|random");
  AddCompileOptions(options, "Output", args->codegen);
  options.AddRule([args] { return PrefixProblem(args->codegen.header_prefix); });
  AddEncryptFlags(options, args->encryption);
}

void AddCode(const Options& options, const std::shared_ptr<CompileArgs>& args) {
  const Options rare = options.In("Code").Rare();
  options.Add(
      "--target", args->codegen.target,
      "CPU to compile for: a name from `quench targets`, a target string (`llvm -mtriple=... "
      "-mcpu=... -mattr=...`), JSON with the same keys, or a file that contains one",
      "T (default host)");
  args->codegen.check = codegen::CheckMode::kAuto;  // as requests that say nothing
  AddCompileOptions(options, "Common", args->codegen);
  AddFormat(options, args->format);
  rare.Add("--host", args->codegen.host_target,
           "CPU of the machine that will load the library, in the form of --target: an error if it "
           "could not run the library",
           "T");
  AddCompileOptions(options, "Code", args->codegen);
  std::vector<std::string> names;
  for (const passes::PassInfo& pass : passes::AllPasses()) names.emplace_back(pass.name);
  std::vector<std::string> others = {"--target",          "--host",     "--encrypt",
                                     "--recipient",       "--uuid",     "--with-runtime",
                                     "--export-metadata", "--export-ir"};
  const std::vector<std::string> more = CompileOptionNames();
  others.insert(others.end(), more.begin(), more.end());
  rare.Add("--stop-after", args->stop_after,
           "Stop after this pass and write model.ir.txt instead of a library", "PASS")
      .OneOf(names)
      .Excludes(others);
}

}  // namespace

Action DeclareCompile(const Options& options) {
  auto args = std::make_shared<CompileArgs>();
  AddModelOptions(options, args->model);
  AddFloat16Flags(options, args->model, {"--quantize"});
  AddPassFlags(options, args->model, passes::PipelineSwitches());
  AddPassFlags(options, args->model, passes::CodegenSwitches());
  AddOutputs(options.In("Output"), args);
  AddCode(options, args);
  AddQuantization(options, args);
  AddOptionsFile(options, FileReader::kCompile, args->options, [args](const OptionsFile& file) {
    args->codegen.class_names = file.class_names;
    args->codegen.preprocessing = file.preprocessing;
  });
  AddWorkOptions(options, args->gateway);
  options.Examples(kCompileExamples);
  return [args](const StepContext& context) {
    args->job.samples.sizes = TakeDataSizes(*args->model, SizeIs::kOfModel);
    if (args->stop_after.empty()) QUENCH_RETURN_IF_ERROR(ResolveTargets(*args));
    return RunCompile(*args, context);
  };
}

}  // namespace quench::cli
