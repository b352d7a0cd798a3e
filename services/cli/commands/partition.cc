#include "services/analyser/partition.h"

#include <absl/strings/str_split.h>
#include <fmt/format.h>

#include <filesystem>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/passes/pass.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/model_source.h"
#include "services/cli/module_files.h"
#include "services/cli/remote.h"

namespace quench::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kPartitionExamples[] = R"(Examples:
  quench partition model.onnx --backend tensorrt                     lists the parts and the nodes that remain
  quench partition model.onnx --backend tensorrt -o parts.qir        writes a module in which each part is one node
  quench partition model.onnx --backend npu.txt --export parts/      the backend's operators are listed in a file; writes each part as ONNX
  quench partition model.onnx --backend tensorrt --gateway build-farm:7450
  quench partition parts.qir --inline -o whole.qir                   puts the parts back into the graph
  quench compile parts.qir                                           compiles everything for the CPU)";

struct PartitionArgs {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::string backend, output, export_folder, format = "text";
  bool keep_no_mac = false, keep_batch_matmul = false, keep_scalar_add = false, keep_stacks = false;
  int64_t min_nodes = 1;
  analyser::PartitionOptions options() const {
    return {.remove_no_mac_subgraphs = !keep_no_mac,
            .simplify_batch_matmul = !keep_batch_matmul,
            .simplify_scalar_add = !keep_scalar_add,
            .remove_stacks = !keep_stacks,
            .min_nodes = min_nodes};
  }
  bool inline_parts = false, force = false;
  bool external_weights = false;
};

// A name, or else a file of operators.
struct BackendChoice {
  analyser::Backend backend;
  std::vector<std::string> operators;  // lines of the file
};

absl::StatusOr<BackendChoice> BackendFor(const std::string& text) {
  std::error_code error;
  absl::StatusOr<analyser::Backend> named = analyser::FindBackend(text);
  if (named.ok()) return BackendChoice{*std::move(named), {}};
  if (!fs::is_regular_file(text, error)) return named.status();
  constexpr uint64_t kMostBytes = 1 << 20;
  if (fs::file_size(text, error) > kMostBytes || error)
    return InvalidArgument("list of operators `{}` is larger than {} bytes", text, kMostBytes);
  QUENCH_ASSIGN_OR_RETURN(const std::string list, ReadFile(text));
  QUENCH_ASSIGN_OR_RETURN(analyser::Backend own,
                          analyser::BackendOf(fs::path(text).stem().string(), list));
  return BackendChoice{std::move(own), absl::StrSplit(list, '\n')};
}

absl::Status RefuseOutputs(const PartitionArgs& args) {
  if (args.force) return absl::OkStatus();
  if (!args.output.empty())
    QUENCH_RETURN_IF_ERROR(RefuseExisting(args.output, args.external_weights));
  return args.export_folder.empty() ? absl::OkStatus() : RefuseExisting(args.export_folder, false);
}

absl::StatusOr<PartitionedThere> PartitionHere(const PartitionArgs& args,
                                               const BackendChoice& choice,
                                               const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(importer::Imported model, LoadModel(*args.model, context));
  QUENCH_ASSIGN_OR_RETURN(Graph graph, WithBatch(std::move(model.canonical), *args.model, context));
  PartitionedThere result;
  if (args.inline_parts) {
    const size_t parts = analyser::SubgraphNames(graph).size();
    QUENCH_ASSIGN_OR_RETURN(result.partitioned.graph, passes::InlinePartitions(std::move(graph)));
    result.inlined =
        static_cast<int64_t>(parts - analyser::SubgraphNames(result.partitioned.graph).size());
    return result;
  }
  QUENCH_ASSIGN_OR_RETURN(
      result.partitioned,
      analyser::PartitionGraph(std::move(graph), choice.backend, args.options(), context));
  return result;
}

absl::Status RunPartition(const PartitionArgs& args, const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(KindOf(args.model->model).status());
  QUENCH_RETURN_IF_ERROR(RefuseOutputs(args));
  BackendChoice choice;
  if (!args.inline_parts) {
    QUENCH_ASSIGN_OR_RETURN(choice, BackendFor(args.backend));
  }
  PartitionedThere result;
  if (UsesGateway(*args.gateway)) {
    QUENCH_ASSIGN_OR_RETURN(
        result, PartitionThere({*args.gateway, *args.model, choice.backend.name, choice.operators,
                                args.options(), args.inline_parts},
                               context));
  } else {
    QUENCH_ASSIGN_OR_RETURN(result, PartitionHere(args, choice, context));
  }
  const auto& [graph, report] = result.partitioned;
  if (!args.output.empty()) {
    QUENCH_RETURN_IF_ERROR(WriteModule(graph, args.output, args.external_weights));
  }
  if (!args.export_folder.empty())
    QUENCH_RETURN_IF_ERROR(importer::ExportParts(graph, args.export_folder, context));
  if (args.inline_parts) {
    fmt::print("{} part{} put back\n", result.inlined, result.inlined == 1 ? "" : "s");
  } else {
    fmt::print("{}", args.format == "json" ? analyser::ToJson(report) : analyser::ToTable(report));
  }
  return absl::OkStatus();
}

}  // namespace

Action DeclarePartition(const Options& options) {
  auto args = std::make_shared<PartitionArgs>();
  AddModelOptions(options, args->model);
  options.Add("--backend", args->backend,
              "Backend that will run the parts: a name, or a file with one operator per line",
              "tensorrt|onnxruntime|FILE");
  options
      .Flag("--inline", args->inline_parts,
            "Put the parts of a partitioned module back into its graph instead")
      .Excludes({"--backend", "--export", "--keep-no-mac-parts", "--keep-batch-matmul",
                 "--keep-scalar-add", "--keep-stacks", "--min-nodes", "--format"});
  options.In("Output").Add("--output,-o", args->output,
                           "IR module to write: text if it ends in .txt, else binary", "FILE");
  options.In("Output").Add("--export", args->export_folder,
                           "Write each part to DIR as an ONNX model", "DIR");
  AddWeightsFlag(options, args->external_weights);
  options.In("Output")
      .Flag("--force,-f", args->force, "Overwrite existing files")
      .Needs({"--output", "--export"});
  options.Rare().Flag("--keep-no-mac-parts", args->keep_no_mac,
                      "Keep parts that contain no convolution, matrix product or recurrent layer");
  options.Rare().Flag(
      "--keep-batch-matmul", args->keep_batch_matmul,
      "Keep batched MatMuls by one constant matrix instead of rewriting them with rank 2");
  options.Rare().Flag("--keep-scalar-add", args->keep_scalar_add,
                      "Keep additions of a scalar instead of expanding it to a full tensor");
  options.Rare().Flag(
      "--keep-stacks", args->keep_stacks,
      "Keep Unsqueeze nodes before a Concat instead of replacing them by one Reshape after it");
  options.Rare()
      .Add("--min-nodes", args->min_nodes,
           "Smallest number of nodes in a part; smaller parts are left to Quench", "N (default 1)")
      .AtLeast(1);
  AddFormat(options, args->format);
  options.AddRule([args]() -> std::string {
    return args->backend.empty() && !args->inline_parts ? "one of --backend and --inline is needed"
                                                        : "";
  });
  AddWorkOptions(options, args->gateway);
  options.Examples(kPartitionExamples);
  return [args](const StepContext& context) { return RunPartition(*args, context); };
}

}  // namespace quench::cli
