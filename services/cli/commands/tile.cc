#include "services/analyser/tile.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <optional>

#include "common/base/status.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/model_source.h"
#include "services/cli/module_files.h"
#include "services/cli/remote.h"

namespace quench::cli {
namespace {

constexpr char kTileExamples[] = R"(Examples:
  quench tile model.onnx --limits 64,64,64                       lists the products that are split, and the number of tiles
  quench tile model.onnx --limits 64,64,64 -o tiled.onnx         writes the tiled model as ONNX
  quench tile model.onnx --batch 1 --limits 16,64,256 -o t.qir   as an IR module
  quench compile t.qir                                           which compiles like any other module
  quench tile --gemm 32,64,128 --limits 64,64,64 --samples 1000 -o gemm.onnx
                                                                 a graph with a single product: A x B + bias)";

struct TileArgs {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::string gemm, limits, output, format = "text";
  int64_t samples = 20;
  std::optional<uint64_t> seed;
  double tolerance = 1e-5;
  bool force = false;
  bool external_weights = false;
};

// Three sizes, each at least 1 and at most `most`.
absl::StatusOr<std::array<int64_t, 3>> ThreeSizes(const char* option, const char* names,
                                                  const std::string& text, int64_t most) {
  const std::vector<std::string> words = absl::StrSplit(text, ',');
  std::array<int64_t, 3> sizes = {};
  bool right = words.size() == sizes.size();
  for (size_t i = 0; right && i < sizes.size(); ++i)
    right = absl::SimpleAtoi(words[i], &sizes[i]) && sizes[i] >= 1 && sizes[i] <= most;
  if (right) return sizes;
  return InvalidArgument("{}: `{}` should read {}, three numbers from 1 to {}", option, text, names,
                         most);
}

// M, K, N of --gemm, if that is given.
absl::StatusOr<std::optional<std::array<int64_t, 3>>> GemmOf(const TileArgs& args) {
  if (args.gemm.empty()) return std::nullopt;
  QUENCH_RETURN_IF_ERROR(RefuseModelOptions(*args.model, "--gemm"));
  return ThreeSizes("--gemm", "M,K,N", args.gemm, analyser::kMostGemmSize);
}

absl::StatusOr<Graph> GraphToTile(const TileArgs& args, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const auto gemm, GemmOf(args));
  if (gemm) return analyser::GemmGraph((*gemm)[0], (*gemm)[1], (*gemm)[2]);
  QUENCH_ASSIGN_OR_RETURN(importer::Imported model, LoadModel(*args.model, context));
  return WithBatch(std::move(model.canonical), *args.model, context);
}

absl::Status RunTile(const TileArgs& args, const StepContext& context) {
  constexpr int64_t kMostLimit = int64_t{1} << 31;
  QUENCH_ASSIGN_OR_RETURN(const auto sizes,
                          ThreeSizes("--limits", "M,N,K", args.limits, kMostLimit));
  if (!args.output.empty() && !args.force)
    QUENCH_RETURN_IF_ERROR(RefuseExisting(args.output, args.external_weights));
  const analyser::TileLimits limits{.m = sizes[0], .n = sizes[1], .k = sizes[2]};
  const analyser::TileProof proof{args.samples, args.seed.value_or(1), args.tolerance};
  analyser::Tiled tiled;
  if (UsesGateway(*args.gateway)) {
    QUENCH_ASSIGN_OR_RETURN(const auto gemm, GemmOf(args));
    QUENCH_ASSIGN_OR_RETURN(tiled,
                            TileThere({*args.gateway, *args.model, gemm, limits, proof}, context));
  } else {
    QUENCH_ASSIGN_OR_RETURN(const Graph graph, GraphToTile(args, context));
    QUENCH_ASSIGN_OR_RETURN(tiled, analyser::TileAndProve(graph, limits, proof, context));
  }
  if (args.output.ends_with(".onnx")) {
    QUENCH_RETURN_IF_ERROR(importer::ExportOnnx(tiled.graph, args.output, context));
  } else if (!args.output.empty()) {
    QUENCH_RETURN_IF_ERROR(WriteModule(tiled.graph, args.output, args.external_weights));
  }
  fmt::print("{}", args.format == "json" ? analyser::ToJson(tiled.report)
                                         : analyser::ToTable(tiled.report));
  return absl::OkStatus();
}

}  // namespace

Action DeclareTile(const Options& options) {
  auto args = std::make_shared<TileArgs>();
  AddModelOptions(options, args->model, SizeIs::kOfModel, /*required=*/false);
  options
      .Add("--gemm", args->gemm,
           "Create a single M x K by K x N matrix product instead of reading a model", "M,K,N")
      .Excludes({"MODEL"});
  options
      .Add("--limits", args->limits, "Largest allowed sizes of one matrix product [m, k] x [k, n]",
           "M,N,K")
      .Required();
  options.In("Input")
      .Add("--samples", args->samples,
           "Number of random inputs on which original and result are compared", "N (default 20)")
      .AtLeast(1);
  options.In("Input").Add("--random", args->seed, "Seed of the random inputs", "SEED (default 1)");
  options
      .Add("--tolerance", args->tolerance,
           "Largest allowed error, relative to the largest value of each output",
           "X (default 1e-5)")
      .AtLeast(0);
  options.In("Output").Add(
      "--output,-o", args->output,
      "File to write: ONNX if it ends in .onnx, IR text if in .txt, else a binary IR module",
      "FILE");
  AddWeightsFlag(options, args->external_weights);
  options.AddRule([args] { return WeightsProblem(args->output, args->external_weights); });
  options.In("Output")
      .Flag("--force,-f", args->force, "Overwrite an existing file")
      .Needs({"--output"});
  AddFormat(options, args->format);
  options.AddRule([args]() -> std::string {
    return args->model->model.empty() && args->gemm.empty() ? "one of MODEL and --gemm is needed"
                                                            : "";
  });
  AddWorkOptions(options, args->gateway);
  options.Examples(kTileExamples);
  return [args](const StepContext& context) { return RunTile(*args, context); };
}

}  // namespace quench::cli
