#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/runner/machine_load.h"
#include "common/runner/open_sizes.h"
#include "common/runner/runner.h"
#include "common/runtime/quench_rt.h"
#include "services/cli/ceilings.h"
#include "services/cli/colour.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/device_flag.h"
#include "services/cli/encryption.h"
#include "services/cli/model_source.h"
#include "services/cli/profile.h"
#include "services/cli/remote.h"

namespace quench::cli {
namespace {

constexpr char kBenchExamples[] = R"(Examples:
  quench bench out/model.so                        three seconds on random inputs, one thread
  quench bench out/model.so --threads 2 --seconds 10 --format json
  quench bench out/model.so --size height=320 --size width=320   sizes of the model's symbolic dimensions
  quench bench out/model.so --device cuda          a library for GPUs on the first one; --device cpu: beside it
  quench bench out/model.so --profile              time spent in each kernel
  quench bench out/model.so --trace run.json       the same as a trace for Perfetto or chrome://tracing
  quench bench --machine                           measures this machine's peak compute and bandwidth
  quench bench out/model.so --gateway build-farm:7450      on the gateway's analyser)";

struct BenchArgs {
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::string artifact;
  std::shared_ptr<KeyFlags> key = std::make_shared<KeyFlags>();
  int threads = 1;
  double seconds = 3;
  std::string format = "text";
  bool profile = false, machine = false, remeasure = false;
  std::string trace, metadata, device;
  std::vector<std::string> sizes;
  uint64_t seed = 1;
};

absl::Status PrintMachine(const BenchArgs& args, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const analyser::Ceilings ceilings,
                          HostCeilings(HostUse::kAfresh, context));
  const auto cache = [](int name) { return std::max<int64_t>(::sysconf(name), 0); };
  const int64_t l1 = cache(_SC_LEVEL1_DCACHE_SIZE), l2 = cache(_SC_LEVEL2_CACHE_SIZE),
                l3 = cache(_SC_LEVEL3_CACHE_SIZE);
  const uint32_t cores = quench_rt_cpus();
  if (args.format == "json") {
    const nlohmann::json json = {{"gflops", ceilings.gflops},
                                 {"gbytes", ceilings.gbytes},
                                 {"source", ceilings.source},
                                 {"cores", cores},
                                 {"l1_bytes", l1},
                                 {"l2_bytes", l2},
                                 {"l3_bytes", l3}};
    fmt::print("{}\n", json.dump(2));
    return absl::OkStatus();
  }
  fmt::print("f32      {:.1f} GFLOP/s on {} cores\n", ceilings.gflops, cores);
  fmt::print("memory   {:.1f} GB/s\n", ceilings.gbytes);
  fmt::print("caches   {} KiB L1, {} KiB L2, {} KiB L3\n", l1 >> 10, l2 >> 10, l3 >> 10);
  fmt::print("{}\n", ceilings.source);
  return absl::OkStatus();
}

std::filesystem::path MetadataOf(const BenchArgs& args) {
  if (!args.metadata.empty()) return args.metadata;
  return std::filesystem::path(args.artifact).parent_path() / "metadata.json";
}

// metadata.json beside the library is used where it describes it; one that --metadata names must.
absl::Status DescribeProfile(const BenchArgs& args, Artifact& artifact,
                             std::span<const Tensor> inputs, Profile& profile,
                             const StepContext& context) {
  const absl::Status status = Describe(MetadataOf(args), artifact, inputs, profile);
  if (!args.metadata.empty()) QUENCH_RETURN_IF_ERROR(status);
  if (!profile.described && args.remeasure) {
    return absl::InvalidArgumentError(
        fmt::format("--remeasure needs `{}`, which `quench compile --export-metadata` writes: "
                    "without it kernels are not compared with the machine's peak",
                    MetadataOf(args).string()));
  }
  if (!profile.described) return absl::OkStatus();
  QUENCH_ASSIGN_OR_RETURN(
      profile.ceilings, HostCeilings(args.remeasure ? HostUse::kAfresh : HostUse::kKept, context));
  if (!args.remeasure && PeakOf(profile).kernel != nullptr) {
    QUENCH_ASSIGN_OR_RETURN(profile.ceilings, HostCeilings(HostUse::kRaised, context));
  }
  return absl::OkStatus();
}

void PrintWarnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) PrintWarning(warning);
}

// Only where it is not the usual one.
void PrintDevice(const std::string& device) {
  if (!device.empty() && device != "cpu") fmt::print("on {}\n", device);
}

absl::Status RunProfile(const BenchArgs& args, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const ArtifactKey key, KeyOf(*args.key));
  QUENCH_ASSIGN_OR_RETURN(auto sizes, ParseSizes(args.sizes));
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact,
                          Artifact::Open(args.artifact, {args.threads, args.device}, key));
  sizes.merge(CountedSizes(MetadataOf(args), *artifact));
  QUENCH_ASSIGN_OR_RETURN(sizes, ChooseSizes(artifact->inputs(), sizes));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs,
                          RandomInputs(artifact->inputs(), args.seed, sizes, kAnyIndex));
  BenchResult load;
  load.threads = args.threads;
  const MachineLoad machine;
  QUENCH_ASSIGN_OR_RETURN(Profile profile,
                          MeasureProfile(*artifact, inputs, args.seconds, args.threads, context));
  if (const std::optional<double> taken = machine.Taken()) {
    load.cores = machine.cores();
    load.taken_cores = *taken;
  }
  QUENCH_RETURN_IF_ERROR(DescribeProfile(args, *artifact, inputs, profile, context));
  if (!args.trace.empty()) {
    const std::string name = std::filesystem::path(args.artifact).filename().string();
    QUENCH_RETURN_IF_ERROR(WriteFileAtomically(args.trace, ProfileTrace(profile, name)));
  }
  const std::vector<std::string> warnings = BenchWarnings(load);
  if (args.format == "json") {
    nlohmann::json json = ProfileToJson(profile);
    json["variant"] = artifact->variant();
    json["device"] = artifact->device();
    json["sizes"] = sizes;
    json["warnings"] = warnings;
    fmt::print("{}\n", json.dump(2));
    return absl::OkStatus();
  }
  PrintWarnings(warnings);
  PrintDevice(artifact->device());
  if (!sizes.empty()) fmt::print("at {}\n", SizesText(sizes));
  fmt::print("{}", ProfileTable(profile));
  return absl::OkStatus();
}

absl::StatusOr<BenchResult> BenchHere(const BenchArgs& args,
                                      const std::map<std::string, int64_t>& sizes,
                                      const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const ArtifactKey key, KeyOf(*args.key));
  return Benchmark(args.artifact, {args.threads, args.seconds, sizes, args.seed, args.device},
                   context, key);
}

nlohmann::json ToJson(const BenchResult& result) {
  nlohmann::json json = {{"median_ms", result.median_ms},
                         {"min_ms", result.min_ms},
                         {"lower_quartile_ms", result.lower_quartile_ms},
                         {"upper_quartile_ms", result.upper_quartile_ms},
                         {"p99_ms", result.p99_ms},
                         {"arena_bytes", result.arena_bytes},
                         {"arena_lower_bound", result.arena_lower_bound},
                         {"load_ms", result.load_ms},
                         {"first_run_ms", result.first_run_ms},
                         {"runs", result.runs},
                         {"runs_per_second", result.runs_per_second()},
                         {"threads", result.threads},
                         {"variant", result.variant},
                         {"sizes", result.sizes},
                         {"warnings", BenchWarnings(result)}};
  if (!result.device.empty()) json["device"] = result.device;
  if (result.batch > 0) {
    json["batch"] = result.batch;
    json["samples_per_second"] = static_cast<double>(result.batch) * result.runs_per_second();
  }
  if (result.cores > 0) {
    json["cores"] = result.cores;
    json["taken_cores"] = result.taken_cores;
  }
  return json;
}

void PrintResult(const BenchResult& result) {
  PrintWarnings(BenchWarnings(result));
  PrintDevice(result.device);
  if (!result.sizes.empty()) fmt::print("at {}\n", SizesText(result.sizes));
  fmt::print("median {:.3f} ms   min {:.3f} ms   p99 {:.3f} ms   ({} runs, {} thread{})\n",
             result.median_ms, result.min_ms, result.p99_ms, result.runs, result.threads,
             result.threads == 1 ? "" : "s");
  fmt::print("{:.4g} inferences/s", result.runs_per_second());
  if (result.batch > 1) {
    fmt::print("   {:.4g} samples/s (batches of {})",
               static_cast<double>(result.batch) * result.runs_per_second(), result.batch);
  }
  fmt::print("\nload {:.2f} ms   first run {:.2f} ms   arena {:.2f} MB (lower bound {:.2f} MB)\n",
             result.load_ms, result.first_run_ms, static_cast<double>(result.arena_bytes) / 1e6,
             static_cast<double>(result.arena_lower_bound) / 1e6);
}

absl::Status RunBench(const BenchArgs& args, const StepContext& context) {
  if (args.machine) return PrintMachine(args, context);
  if (args.artifact.empty()) {
    return InvalidArgument("LIBRARY is required (or --machine)");
  }
  if (args.profile || !args.trace.empty()) {
    if (AsksForGateway(*args.gateway))
      return InvalidArgument("--profile and --trace run on this machine only: remove --gateway");
    return RunProfile(args, context);
  }
  const bool sealed = !args.key->key.empty();
  if (sealed && AsksForGateway(*args.gateway)) {
    return InvalidArgument(
        "--key: keys and passwords stay in this process; measure encrypted libraries without a "
        "gateway");
  }
  QUENCH_ASSIGN_OR_RETURN(const auto sizes, ParseSizes(args.sizes));
  QUENCH_ASSIGN_OR_RETURN(const BenchResult result,
                          !sealed && UsesGateway(*args.gateway)
                              ? BenchThere({*args.gateway, args.artifact, args.threads,
                                            args.seconds, sizes, args.seed, args.device},
                                           context)
                              : BenchHere(args, sizes, context));
  if (args.format == "json") {
    fmt::print("{}\n", ToJson(result).dump(2));
  } else {
    PrintResult(result);
  }
  return absl::OkStatus();
}

}  // namespace

Action DeclareBench(const Options& options) {
  auto args = std::make_shared<BenchArgs>();
  options.Add("LIBRARY", args->artifact, "Compiled library", "MODEL.so");
  options.Add("--threads", args->threads, "Number of threads", "N (default 1)").Range(1, 1024);
  options.Add("--seconds", args->seconds, "Duration of the measurement", "S (default 3)")
      .Range(0.01, 86400.0);
  options.Add("--size", args->sizes,
              "Value of a symbolic dimension (required, except for a batch, which defaults to 1; "
              "with --profile the default is the value in metadata.json)",
              "NAME=N");
  options.In("Input").Rare().Add("--seed", args->seed, "Seed of the random inputs",
                                 "N (default 1)");
  AddDeviceFlag(options, args->device).Excludes({"--machine"});
  AddKeyFlags(options, args->key);
  AddFormat(options, args->format);
  options.Flag("--profile", args->profile,
               "Show time, GFLOP/s, bytes and bottleneck of each kernel");
  options.In("Output").Add("--trace", args->trace,
                           "Write the profile as a trace file for Perfetto or chrome://tracing",
                           "FILE.json");
  options.Rare()
      .Add("--metadata", args->metadata,
           "metadata.json written by `quench compile --export-metadata` (default: the one beside "
           "LIBRARY, if it belongs to it)",
           "FILE")
      .Needs({"--profile", "--trace"});
  options.Rare()
      .Flag("--remeasure", args->remeasure,
            "Measure this machine's peak compute and bandwidth again instead of using the saved "
            "values")
      .Needs({"--profile", "--trace"});
  options.Flag("--machine", args->machine,
               "Measure this machine's f32 speed and memory bandwidth instead of a library, and "
               "save them for profiles");
  AddGatewayOptions(options, args->gateway);
  options.Examples(kBenchExamples);
  return [args](const StepContext& context) { return RunBench(*args, context); };
}

}  // namespace quench::cli
