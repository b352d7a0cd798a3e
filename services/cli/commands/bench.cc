#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/runner/runner.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/encryption.h"
#include "services/cli/model_source.h"
#include "services/cli/remote.h"

namespace quench::cli {
namespace {

constexpr char kBenchExamples[] = R"(Examples:
  quench bench out/model.so                        three seconds of runs on random inputs, one thread
  quench bench out/model.so --threads 2 --seconds 10 --json
  quench bench out/model.so --size batch=8         symbolic dims at a chosen size
  quench bench out/model.so --gateway build-farm:7450      on the CPU of its analyser)";

struct BenchArgs {
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::string artifact;
  std::shared_ptr<KeyFlags> key = std::make_shared<KeyFlags>();
  int threads = 1;
  double seconds = 3;
  bool json = false;
  std::vector<std::string> sizes;
  uint64_t seed = 1;
};

absl::StatusOr<BenchResult> BenchHere(const BenchArgs& args,
                                      const std::map<std::string, int64_t>& sizes,
                                      const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const ArtifactKey key, KeyOf(*args.key));
  std::vector<Tensor> inputs;
  {
    QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact,
                            Artifact::Open(args.artifact, 1, key));
    QUENCH_ASSIGN_OR_RETURN(inputs, RandomInputs(artifact->inputs(), args.seed, sizes, kAnyIndex));
  }
  return Benchmark(args.artifact, inputs, args.threads, args.seconds, context, key);
}

absl::Status RunBench(const BenchArgs& args, const StepContext& context) {
  const bool sealed = !args.key->key.empty();
  if (sealed && AsksForGateway(*args.gateway)) {
    return InvalidArgument(
        "--key: keys and passwords stay in this process; measure encrypted libraries without a "
        "gateway");
  }
  QUENCH_ASSIGN_OR_RETURN(const auto sizes, ParseSizes(args.sizes));
  QUENCH_ASSIGN_OR_RETURN(
      const BenchResult result,
      !sealed && UsesGateway(*args.gateway)
          ? BenchThere({*args.gateway, args.artifact, args.threads, args.seconds, sizes, args.seed},
                       context)
          : BenchHere(args, sizes, context));
  if (args.json) {
    const nlohmann::json json = {{"median_ms", result.median_ms},
                                 {"min_ms", result.min_ms},
                                 {"p99_ms", result.p99_ms},
                                 {"arena_bytes", result.arena_bytes},
                                 {"arena_lower_bound", result.arena_lower_bound},
                                 {"load_ms", result.load_ms},
                                 {"first_run_ms", result.first_run_ms},
                                 {"runs", result.runs},
                                 {"threads", args.threads}};
    fmt::print("{}\n", json.dump(2));
    return absl::OkStatus();
  }
  fmt::print("median {:.3f} ms   min {:.3f} ms   p99 {:.3f} ms   ({} runs, {} thread{})\n",
             result.median_ms, result.min_ms, result.p99_ms, result.runs, args.threads,
             args.threads == 1 ? "" : "s");
  fmt::print("load {:.2f} ms   first run {:.2f} ms   arena {:.2f} MB (lower bound {:.2f} MB)\n",
             result.load_ms, result.first_run_ms, static_cast<double>(result.arena_bytes) / 1e6,
             static_cast<double>(result.arena_lower_bound) / 1e6);
  return absl::OkStatus();
}

}  // namespace

Action DeclareBench(const Options& options) {
  auto args = std::make_shared<BenchArgs>();
  options.Add("LIBRARY", args->artifact, "The compiled library", "MODEL.so").Required();
  options.Add("--threads", args->threads, "Threads to run on", "N (default 1)").Range(1, 1024);
  options.Add("--seconds", args->seconds, "How long to measure", "S (default 3)")
      .Range(0.01, 86400.0);
  options.Add("--size", args->sizes, "Size of a symbolic dim", "NAME=N");
  options.Add("--seed", args->seed, "Seed of the random inputs", "N (default 1)");
  AddKeyFlags(options, args->key);
  options.Flag("--json", args->json,
               "Output for scripts: median_ms, min_ms, p99_ms, arena_bytes, ...");
  AddGatewayOptions(options, args->gateway);
  options.Examples(kBenchExamples);
  return [args](const StepContext& context) { return RunBench(*args, context); };
}

}  // namespace quench::cli
