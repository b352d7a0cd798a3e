#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/base/status.h"
#include "common/ir/hash.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/model_source.h"
#include "services/cli/module_files.h"

namespace quench::cli {
namespace {

constexpr char kImportExamples[] = R"(Examples:
  quench import model.onnx                              is it supported? inputs, outputs, size, identity
  quench import model.onnx --check                      also checked by libonnx: structure and shapes
  quench import model.onnx --output model.qir           a binary IR module with its weights
  quench import model.onnx --output model.ir.txt --stage codegen-ready    text, after all passes
  quench import model.onnx --export renamed.onnx        as ONNX again, with every node named and overrides applied
  quench import big.onnx --outputs features --shape x=1,3,224,224 --export cut.onnx

Warnings (on stderr; `warnings` with --format json) name nodes that are imported otherwise than they read:
  a branch of If that cannot run with these shapes: only a run that takes it fails
  Dropout with training_mode true: compiled as in inference, so that nothing is dropped
  BatchNormalization with training_mode 1: normalises by the statistics of each run's own batch
  several Constant nodes of one name: the last one counts)";

struct ImportArgs {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::string output;
  std::string stage = "canonical";
  std::string export_path;
  bool check = false;
  bool force = false;
  std::string format = "text";
  bool external_weights = false;
};

absl::Status RefuseOutputs(const ImportArgs& args) {
  if (args.force) return absl::OkStatus();
  if (!args.output.empty())
    QUENCH_RETURN_IF_ERROR(RefuseExisting(args.output, args.external_weights));
  return args.export_path.empty() ? absl::OkStatus() : RefuseExisting(args.export_path, false);
}

absl::StatusOr<Graph> AtStage(const ImportArgs& args, importer::Imported model,
                              const StepContext& context) {
  if (args.stage == "imported") return std::move(model.imported);
  if (args.stage == "canonical") return WithBatch(std::move(model.canonical), *args.model, context);
  return passes::RunPipeline(std::move(model.canonical), PassOptionsOf(*args.model), context);
}

void PrintSummary(const ImportArgs& args, const Graph& graph,
                  const std::optional<std::vector<std::string>>& disagreements) {
  if (args.format == "json") {
    nlohmann::json json = {{"name", graph.name},
                           {"stage", std::string(StageName(graph.stage))},
                           {"nodes", graph.nodes.size()},
                           {"fingerprint", Fingerprint(graph)},
                           {"structure_hash", StructureHash(graph)},
                           {"metadata", graph.metadata},
                           {"warnings", importer::WarningsOf(graph)}};
    for (const auto& [key, ids] :
         {std::pair{"inputs", &graph.inputs}, std::pair{"outputs", &graph.outputs}}) {
      json[key] = nlohmann::json::array();
      for (const ValueId id : *ids) {
        json[key].push_back({{"name", graph.value(id).name},
                             {"type", TypeText(graph.value(id).type, *graph.symbols)}});
      }
    }
    if (args.check) {
      json["supported"] = true;
      json["disagreements"] = disagreements ? nlohmann::json(*disagreements) : nlohmann::json();
    }
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  if (args.check) fmt::print("supported    yes\n");
  fmt::print("model        {}\nstage        {}\nnodes        {}\n", graph.name,
             StageName(graph.stage), graph.nodes.size());
  for (const ValueId id : graph.inputs)
    fmt::print("input        {}: {}\n", graph.value(id).name,
               TypeText(graph.value(id).type, *graph.symbols));
  for (const ValueId id : graph.outputs)
    fmt::print("output       {}: {}\n", graph.value(id).name,
               TypeText(graph.value(id).type, *graph.symbols));
  fmt::print("fingerprint  {}\nstructure    {}\n", Fingerprint(graph), StructureHash(graph));
  if (!args.check) return;
  if (!disagreements) {
    fmt::print("libonnx      not asked: it checks ONNX models only\n");
  } else if (disagreements->empty()) {
    fmt::print("libonnx      agrees\n");
  } else {
    for (const std::string& line : *disagreements) fmt::print("libonnx      {}\n", line);
  }
}

absl::Status RunImport(const ImportArgs& args, const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(KindOf(args.model->model).status());
  QUENCH_RETURN_IF_ERROR(RefuseOutputs(args));
  QUENCH_ASSIGN_OR_RETURN(importer::Imported model, LoadModel(*args.model, context));
  QUENCH_ASSIGN_OR_RETURN(const FileKind kind, KindOf(args.model->model));
  std::optional<std::vector<std::string>> disagreements;
  // A module of what was ONNX is none any more.
  if (args.check && kind == FileKind::kModel && model.imported.metadata.contains("ir_version")) {
    QUENCH_ASSIGN_OR_RETURN(disagreements,
                            importer::CheckWithLibonnx(args.model->model, model.imported));
  }
  QUENCH_ASSIGN_OR_RETURN(const Graph graph, AtStage(args, std::move(model), context));
  if (!args.output.empty()) {
    QUENCH_RETURN_IF_ERROR(WriteModule(graph, args.output, args.external_weights));
  }
  if (!args.export_path.empty())
    QUENCH_RETURN_IF_ERROR(importer::ExportOnnx(graph, args.export_path, context));
  PrintSummary(args, graph, disagreements);
  return absl::OkStatus();
}

}  // namespace

Action DeclareImport(const Options& options) {
  auto args = std::make_shared<ImportArgs>();
  AddModelOptions(options, args->model);
  AddPassFlags(options, args->model, passes::PipelineSwitches());
  options.In("Output").Add("--output,-o", args->output,
                           "IR module to write: text if it ends in .txt, else binary", "FILE");
  options
      .Add("--stage", args->stage,
           "imported: the model's own nodes; canonical: Quench's operators; codegen-ready: after "
           "all passes",
           "STAGE (default canonical)")
      .OneOf({"imported", "canonical", "codegen-ready"});
  options.In("Output").Add("--export", args->export_path, "Write the graph as an ONNX file",
                           "FILE.onnx");
  options.Flag(
      "--check", args->check,
      "Report whether the model is supported, and (for ONNX) whether libonnx's checker accepts it");
  AddWeightsFlag(options, args->external_weights);
  options.In("Output")
      .Flag("--force,-f", args->force, "Overwrite existing files")
      .Needs({"--output", "--export"});
  AddFormat(options, args->format);
  options.AddRule([args] { return StageProblem(*args->model, args->stage); });
  options.Examples(kImportExamples);
  return [args](const StepContext& context) { return RunImport(*args, context); };
}

}  // namespace quench::cli
