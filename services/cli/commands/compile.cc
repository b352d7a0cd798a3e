#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/hash.h"
#include "common/runtime/crypto.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/encryption.h"
#include "services/cli/evidence.h"
#include "services/cli/metadata.h"
#include "services/cli/model_source.h"
#include "services/cli/module_files.h"
#include "services/cli/quantization.h"
#include "services/cli/remote.h"
#include "services/cli/runtime/runtime_files.h"
#include "services/codegen/header.h"
#include "services/codegen/measure.h"
#include "services/codegen/package.h"
#include "services/codegen/targets/target.h"
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
  quench compile resnet50.onnx                               out in ./compile_output, for this machine
  quench compile bert.onnx --dim seq=1..512 --output bert    any sequence length up to 512 from one library
  quench compile yolo.onnx --target aarch64 --batch 1        for a 64-bit Arm CPU
  quench compile m.onnx --target raspberry-pi/5              for a board that `quench targets` lists
  quench compile m.onnx --target "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -num-cores=8"
  quench compile m.onnx --target aarch64 --with-runtime      also libquench_rt for that CPU, headers, a file for CMake
  quench compile m.onnx --encrypt                            model.so for whoever has modelKey.bin and its password
  quench compile m.onnx --target x86-64 --force              v2, v3 and v4 variants in one library
  quench compile m.onnx --no-freeze fc.weight                  that weight is an input of the library (all: every parameter)
  quench compile m.onnx --opt-level 4 --tune-seconds 120     kernels chosen by measuring them on this CPU
  quench compile m.onnx --export-ir --export-metadata        also model.ir.txt and metadata.json
  quench compile m.onnx --no-fold-constants --stop-after dead_code   look at the IR after a pass
  quench compile m.onnx --quantize int8 --per-channel --calibration-data samples   in 8-bit integers
  quench compile m.onnx --quantize int8 --calibration-data samples --max-drop 0.5% --labels labels.txt
                                                             no more than half a point of accuracy lost
  quench compile m.onnx --float16                            weights and activations as f16: half the bytes, faster where the CPU adds f16
  quench compile m.onnx --bfloat16                           the same as bf16: twice the speed where the CPU multiplies it
  quench compile gpt.onnx --quantize int4                    weights of products in 4 bits, 32 to a scale
  quench compile m.onnx --gateway build-farm:7450            the same bytes, compiled elsewhere)";

struct CompileArgs {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  codegen::CompileOptions codegen;
  std::string check = "auto";
  bool no_winograd = false, no_float16_sums = false;
  double tune_seconds = 0;  // 0: not given
  std::string output = "./compile_output";
  std::string emit;
  std::string class_names, preprocess;  // files
  std::string stop_after;
  // Not quantized when `quantize` is empty.
  std::string quantize;
  std::shared_ptr<QuantizeFlags> how = std::make_shared<QuantizeFlags>();
  QuantizeJob job;  // but `how`
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
  if (Encrypts(args)) return WriteFileAtomically(path, PrintGraph(graph));
  return WriteModule(graph, path, args.external_weights);
}

void PrintSummary(const CompileArgs& args, const codegen::CompileReport& report) {
  std::map<std::string, int> kernels;
  for (const codegen::KernelReport& kernel : report.kernels) ++kernels[kernel.kernel];
  std::string mix;
  for (const auto& [kernel, count] : kernels)
    mix += fmt::format("{}{} {}", mix.empty() ? "" : ", ", count, kernel);
  fmt::print("{}/{}\n", args.output, LibraryName(args.codegen.emit));
  const auto megabytes = [](int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  // Several variants share most of their weights.
  std::string weights = fmt::format("{:.2f} MB", megabytes(report.weight_bytes));
  if (report.variant_weights.size() > 1) {
    std::vector<std::string> parts;
    for (const codegen::VariantWeights& each : report.variant_weights)
      parts.push_back(fmt::format("{} {:.2f}", each.variant, megabytes(each.bytes)));
    weights += fmt::format(" ({})", fmt::join(parts, ", "));
  }
  fmt::print("  target   {}\n  kernels  {}\n", report.target, mix);
  fmt::print("  size     {:.2f} MB: weights {}, code {:.2f} MB, rest {:.2f} MB\n",
             megabytes(report.weight_bytes + report.code_bytes + report.rest_bytes), weights,
             megabytes(report.code_bytes), megabytes(report.rest_bytes));
  if (report.measurement) {
    const codegen::Measurement& measured = *report.measurement;
    fmt::print(
        "  measured {:.3f} ms a run, {:.3f} ms with predicted kernels ({} builds, {} rounds)\n",
        measured.measured_choice_ms, measured.predicted_choice_ms, measured.builds,
        measured.rounds);
  }
  fmt::print("  arena    {:.2f} MB (lower bound {:.2f} MB)\n  uuid     {}\n",
             megabytes(report.arena_bytes), megabytes(report.arena_lower_bound), report.uuid);
}

void PrintUnusedFeatures(const codegen::CompileReport& report) {
  if (report.unused_features.empty()) return;
  fmt::print("  unused   {}: no generated code has instructions of them\n",
             fmt::join(report.unused_features, ", "));
}

void PrintKeptFloat32(const codegen::CompileReport& report) {
  constexpr size_t kMost = 20;
  const std::vector<passes::KeptFloat32>& kept = report.kept_float32;
  for (size_t i = 0; i < std::min(kept.size(), kMost); ++i)
    fmt::print("  f32      {} ({}): {}\n", kept[i].node, kept[i].op, kept[i].reason);
  if (kept.size() > kMost)
    fmt::print("  f32      and {} more: --export-metadata lists them\n", kept.size() - kMost);
}

// What is slower than one might expect.
void PrintSlow(const codegen::CompileReport& report) {
  for (const codegen::KernelReport& kernel : report.kernels) {
    if (!kernel.slow.empty()) fmt::print("  slow     {}: {}\n", kernel.node, kernel.slow);
  }
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
      evidence.ok()
          ? fmt::format("graph and sample for a bug report are in `{}`", evidence->string())
          : fmt::format("nothing is left for a bug report: {}", MessageOf(evidence.status()));
  return absl::Status(mismatch.code(),
                      fmt::format("{}; no library was made, {}", MessageOf(mismatch), left));
}

absl::StatusOr<Made> MakeHere(const CompileArgs& args, const QuantizeJob& job,
                              const fs::path& folder, const StepContext& context) {
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
  codegen::CompileOptions options = args.codegen;
  options.check.source = &source;
  absl::StatusOr<fs::path> evidence = fs::path();  // where a check leaves it
  options.check.on_mismatch = [&](const codegen::CheckEvidence& found) {
    evidence = WriteEvidence(found, ParentOf(args));
  };
  options.passes = PassOptionsOf(*args.model);
  absl::StatusOr<codegen::CompileReport> report = codegen::CompileMeasured(
      *made.graph, options, folder / LibraryName(args.codegen.emit), folder / "model.h", context);
  if (!evidence.ok() || !evidence->empty()) return WithEvidence(report.status(), evidence);
  QUENCH_ASSIGN_OR_RETURN(made.report, std::move(report));
  return made;
}

bool IsFourBits(const std::string& dtype) { return dtype == "int4" || dtype == "uint4"; }

absl::Status CheckQuantization(const CompileArgs& args) {
  const int sources = (args.job.calibration.empty() ? 0 : 1) +
                      (args.job.samples.data.empty() ? 0 : 1) +
                      (args.job.samples.random > 0 ? 1 : 0);
  if (args.quantize.empty()) return absl::OkStatus();
  const bool four_bits = IsFourBits(args.quantize);
  if (four_bits && args.how->type != "any" && args.how->type != "weights") {
    return InvalidArgument("--quantize {} is for weights alone (--type weights), not --type {}",
                           args.quantize, args.how->type);
  }
  if (four_bits && !args.how->kernel_dtype.empty() && args.how->kernel_dtype != args.quantize) {
    return InvalidArgument(
        "--quantize {} and --kernel-dtype {} say different things of the weights", args.quantize,
        args.how->kernel_dtype);
  }
  if (WantsRanges(*args.how) && !four_bits ? sources != 1 : sources > 0) {
    return InvalidArgument(
        "--quantize wants one of --calibration-data PATH, --calibration FILE and "
        "--calibration-random N; of weights alone (int4, uint4, --type weights) and with --type "
        "dynamic none of them");
  }
  const BudgetFlags& budget = *args.how->budget;
  if (!args.job.samples.images.empty() && args.job.samples.data.empty() && budget.data.empty() &&
      args.how->rounding->samples.data.empty()) {
    return InvalidArgument(
        "--images is of --calibration-data, --evaluation-data or --rounding-data, and there are "
        "none");
  }
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
    job.how.activation_dtype = args.quantize;
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

// What --target and --host say; a name, or else a file, is no target string.
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

// What users of the library are told.
absl::Status ReadFacts(CompileArgs& args) {
  if (!args.class_names.empty()) {
    QUENCH_ASSIGN_OR_RETURN(const std::string text, ReadFile(args.class_names));
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      std::string name = text.substr(begin, end - begin);
      if (!name.empty() && name.back() == '\r') name.pop_back();
      args.codegen.class_names.push_back(std::move(name));
      begin = end + 1;
    }
  }
  if (args.preprocess.empty()) return absl::OkStatus();
  QUENCH_ASSIGN_OR_RETURN(const std::string text, ReadFile(args.preprocess));
  const nlohmann::json parsed = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object())
    return InvalidArgument("preprocessing in `{}` is not a JSON object", args.preprocess);
  args.codegen.preprocessing = parsed.dump();
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
  return fmt::format("--prefix `{}` must be letters, digits and `_`, a letter first", prefix);
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
  args.codegen.winograd = !args.no_winograd;
  args.codegen.half_sums = !args.no_float16_sums;
  if (args.tune_seconds > 0) args.codegen.tune_seconds = args.tune_seconds;
  args.codegen.check.mode = args.check == "no"     ? codegen::CheckMode::kNo
                            : args.check == "full" ? codegen::CheckMode::kFull
                                                   : codegen::CheckMode::kAuto;
  args.codegen.emit = args.emit == "so"    ? codegen::Emit::kSharedLibrary
                      : args.emit == "obj" ? codegen::Emit::kObject
                      : args.emit == "a"   ? codegen::Emit::kArchive
                                           : codegen::Emit::kByTarget;
  QUENCH_ASSIGN_OR_RETURN(args.codegen.emit, codegen::WhatToEmit(args.codegen));
  if (args.with_runtime) {
    QUENCH_ASSIGN_OR_RETURN(const codegen::ResolvedTarget resolved,
                            codegen::Resolve(args.codegen.target, "", args.codegen.caller));
    QUENCH_ASSIGN_OR_RETURN(args.runtime_system, RuntimeSystem(resolved));
    args.registers = resolved.spec.system_lib;
  }
  if (args.codegen.opt_level == 4 && !UsesGateway(*args.gateway)) {
    QUENCH_ASSIGN_OR_RETURN(const auto variants, codegen::ResolveTarget(args.codegen.target));
    QUENCH_ASSIGN_OR_RETURN(const auto here, codegen::ResolveTarget("host"));
    if (!variants.empty() && !here.empty() && variants.back().machine != here.back().machine) {
      return InvalidArgument(
          "--opt-level 4 measures kernels by running them, and code for `{}` does not run on this "
          "machine; compile "
          "there, or take --opt-level 3",
          args.codegen.target);
    }
  }
  return absl::OkStatus();
}

absl::Status RunCompile(const CompileArgs& args, const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(KindOf(args.model->model).status());
  if (args.tune_seconds > 0 && args.codegen.opt_level != 4) {
    return InvalidArgument(
        "--tune-seconds is how long --opt-level 4 measures kernels, and the level is {}",
        args.codegen.opt_level);
  }
  if (UsesGateway(*args.gateway)) QUENCH_RETURN_IF_ERROR(BeginThere());
  QUENCH_RETURN_IF_ERROR(CheckQuantization(args));
  if (args.model->float16 && !args.job.calibration.empty()) {
    QUENCH_ASSIGN_OR_RETURN(args.model->magnitudes, MagnitudesOf(args.job.calibration, *args.model,
                                                                 args.how->rescue, context));
  }
  QUENCH_ASSIGN_OR_RETURN(const QuantizeJob job, JobOf(args));
  if (Encrypts(args) && LibraryName(args.codegen.emit) != "model.so") {
    return InvalidArgument("shared libraries are encrypted, and this makes {}",
                           LibraryName(args.codegen.emit));
  }
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
  if (!made.report) {
    QUENCH_RETURN_IF_ERROR(Publish(std::move(folder), args.output));
    fmt::print("{}/model.ir.txt\n  stopped after pass `{}`: no library was made\n", args.output,
               args.stop_after);
    return absl::OkStatus();
  }
  if (args.export_metadata) {
    QUENCH_ASSIGN_OR_RETURN(
        const std::string metadata,
        MetadataOf(made, {.library = work / LibraryName(args.codegen.emit),
                          .model = fs::path(args.model->model).filename().string(),
                          .opt_level = args.codegen.opt_level,
                          .halves = args.model->float16 || args.model->bfloat16}));
    QUENCH_RETURN_IF_ERROR(WriteFileAtomically(work / "metadata.json", metadata));
  }
  if (encryption) {
    QUENCH_RETURN_IF_ERROR(EncryptLibrary(*encryption, work / "model.so",
                                          folder.path() / "model.so",
                                          folder.path() / "modelKey.bin"));
    std::error_code error;
    for (const char* beside :
         {"model.h", "model.ir.txt", "model.ir.txt.weights", "metadata.json"}) {
      if (fs::exists(work / beside, error))
        fs::copy_file(work / beside, folder.path() / beside, error);
      if (error) return ErrnoStatus(error.value(), "write", folder.path() / beside);
    }
  }
  if (args.with_runtime) {
    QUENCH_RETURN_IF_ERROR(WriteRuntime(args.runtime_system,
                                        {.library = LibraryName(args.codegen.emit),
                                         .prefix = args.codegen.header_prefix,
                                         .registers = args.registers},
                                        folder.path()));
  }
  QUENCH_RETURN_IF_ERROR(context.Check());
  QUENCH_RETURN_IF_ERROR(Publish(std::move(folder), args.output));
  PrintSummary(args, *made.report);
  if (encryption && encryption->password)
    fmt::print("  key      {}/modelKey.bin, which the password opens\n", args.output);
  if (encryption && !encryption->password)
    fmt::print("  key      the identity of {}\n", args.encryption->recipient);
  if (args.with_runtime) {
    fmt::print("  runtime  {} for {}\n", fmt::join(RuntimeFileNames(), ", "), args.runtime_system);
  }
  if (made.report->check) fmt::print("  check    {}\n", codegen::CheckText(*made.report->check));
  PrintUnusedFeatures(*made.report);
  if (made.quantized) PrintLayers(*made.quantized);
  PrintKeptFloat32(*made.report);
  PrintSlow(*made.report);
  return absl::OkStatus();
}

void AddQuantization(const Options& options, const std::shared_ptr<CompileArgs>& args) {
  options
      .Add("--quantize", args->quantize,
           "Compute in 8-bit integers, or keep weights in 4 bits (--type weights); the options of "
           "`quench quantize` say how",
           "int8|uint8|int4|uint4")
      .OneOf({"int8", "uint8", "int4", "uint4"});
  const Options how = options.Under({"--quantize"});
  how.Add("--calibration-data", args->job.samples.data,
          "Samples that ranges are taken from: a file or a folder, see `quench calibrate`", "PATH");
  AddImageFlag(how, args->job.samples.images);
  options
      .Add("--calibration", args->job.calibration,
           "Instead: statistics of `quench calibrate` for this model; with --float16: values that "
           "came near f16's end stay f32",
           "FILE")
      .Needs({"--quantize", "--float16"});
  how.Add("--calibration-random", args->job.samples.random,
          "Instead: random samples, where there are no real ones", "N")
      .AtLeast(1);
  AddSampleSizes(options, args->job.samples).Needs({"--calibration-random"});
  AddQuantizeFlags(how, args->how);
}

}  // namespace

Action DeclareCompile(const Options& options) {
  auto args = std::make_shared<CompileArgs>();
  AddModelOptions(options, args->model);
  AddFloat16Flags(options, args->model, {"--quantize"});
  AddPassFlags(options, args->model, passes::PipelineSwitches());
  AddPassFlags(options, args->model, passes::CodegenSwitches());
  options.Add("--output,-o", args->output, "Folder for model.so and model.h",
              "DIR (default ./compile_output)");
  options.Add("--target", args->codegen.target,
              "CPU to compile for: a name that `quench targets` lists, a target string (`llvm "
              "-mtriple=... -mcpu=... -mattr=...`), JSON of the same keys, or a file of it",
              "T (default host)");
  options.Add("--host", args->codegen.host_target,
              "Who loads the library, in the same words: refused where that could not run it", "T");
  options
      .Add("--opt-level", args->codegen.opt_level,
           "0 reference nests, 1 scheduled nests, 2 micro-kernels, 3 fusion and layout choice, 4 "
           "kernels "
           "chosen by measuring them on this CPU",
           "0|1|2|3|4 (default 3)")
      .Range(0, 4);
  options
      .Add("--tune-seconds", args->tune_seconds,
           "With --opt-level 4: about how long kernels are measured", "S (default 60)")
      .Range(codegen::kLeastTuneSeconds, codegen::kMostTuneSeconds);
  options
      .Add("--channel-layout", args->codegen.channel_layout,
           "Where channels lie in images: first or last (default: free choice)", "first|last")
      .OneOf({"first", "last"});
  options.Flag("--no-winograd", args->no_winograd,
               "Convolutions only by their definition: finer rounding, smaller weights, slower");
  options.Flag("--no-float16-sums", args->no_float16_sums,
               "Add products of f16 in f32, also where the CPU adds them in f16: finer, slower");
  options
      .Add("--max-size", args->codegen.max_size,
           "How many times as large copies that make convolutions faster may make the weights",
           "RATIO (default 1.35)")
      .AtLeast(1);
  options.Add("--uuid", args->codegen.uuid,
              "UUID to stamp (default: derived from model and options, so that equal requests give "
              "equal bytes)",
              "U|random");
  options.Add(
      "--prefix", args->codegen.header_prefix,
      "What names in model.h begin with, in capitals: one program can include the headers of "
      "several models",
      "NAME (default the model's name)");
  options.AddRule([args] { return PrefixProblem(args->codegen.header_prefix); });
  options
      .Add("--emit", args->emit, "Shared library, object or static archive",
           "so|obj|a (default so, with system-lib a)")
      .OneOf({"so", "obj", "a"});
  options
      .Add("--check", args->check,
           "Run the library on a sample, before it appears, beside the interpreter: what a second "
           "or "
           "30 % of the time allows, all, or nothing",
           "auto|full|no (default auto)")
      .OneOf({"auto", "full", "no"});
  options.Add("--class-names", args->class_names,
              "Recorded in the library: the name of each class, one a line", "FILE");
  options.Add("--preprocess", args->preprocess,
              "Recorded in the library: how inputs are prepared, a JSON object", "FILE");
  options.Flag(
      "--with-runtime", args->with_runtime,
      "Also write what a program in C or C++ needs to run the library: libquench_rt.so and "
      ".a for the target, headers, a file for CMake");
  AddEncryptFlags(options, args->encryption);
  options.Flag("--export-ir", args->export_ir, "Also write model.ir.txt");
  AddWeightsFlag(options, args->external_weights, {"--export-ir", "--stop-after"});
  options.Flag("--export-metadata", args->export_metadata, "Also write metadata.json");
  options.Flag("--force,-f", args->force, "Replace the files of an existing output folder");
  std::vector<std::string> names;
  for (const passes::PassInfo& pass : passes::AllPasses()) names.emplace_back(pass.name);
  options
      .Add("--stop-after", args->stop_after, "End after this pass and write model.ir.txt", "PASS")
      .OneOf(names)
      .Excludes({"--target", "--host", "--encrypt", "--recipient", "--class-names", "--preprocess",
                 "--opt-level", "--tune-seconds", "--channel-layout", "--no-winograd",
                 "--no-float16-sums", "--max-size", "--uuid", "--prefix", "--emit", "--check",
                 "--with-runtime", "--export-metadata", "--export-ir"});
  AddQuantization(options, args);
  AddWorkOptions(options, args->gateway);
  options.Examples(kCompileExamples);
  return [args](const StepContext& context) {
    if (args->stop_after.empty()) QUENCH_RETURN_IF_ERROR(ResolveTargets(*args));
    return RunCompile(*args, context);
  };
}

}  // namespace quench::cli
