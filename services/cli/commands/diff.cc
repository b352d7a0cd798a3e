#include "services/analyser/diff.h"

#include "common/base/status.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/listing_file.h"
#include "services/cli/model_source.h"
#include "services/cli/remote.h"

namespace quench::cli {
namespace {

constexpr char kDiffExamples[] = R"(Examples:
  quench diff old.onnx new.onnx                    nodes, attributes and weights that differ
  quench diff old.onnx new.onnx --stage canonical  as Quench's operators, so that different spellings of the same computation match
  quench diff a.qir b.qir --exit-code              for scripts: exit code 1 if they differ
  quench diff old.onnx new.onnx --format json -o changes.json

Nodes and weights are matched by their names. `quench compare` shows what a change does to results.)";

struct DiffArgs {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::shared_ptr<ListingFile> file = std::make_shared<ListingFile>();
  std::string other, stage = "imported", format = "text";
  bool exit_code = false;
};

absl::StatusOr<Graph> GraphOf(const DiffArgs& args, const std::string& path,
                              const StepContext& context) {
  ModelOptions model = *args.model;
  model.model = path;
  absl::StatusOr<importer::Imported> loaded = LoadModel(model, context);
  if (!loaded.ok()) return Annotate(loaded.status(), fmt::format("`{}`", path));
  if (args.stage == "imported") return std::move(loaded->imported);
  return WithBatch(std::move(loaded->canonical), model, context);
}

absl::StatusOr<analyser::ModuleDiff> DiffHere(const DiffArgs& args, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const Graph reference, GraphOf(args, args.model->model, context));
  QUENCH_ASSIGN_OR_RETURN(const Graph other, GraphOf(args, args.other, context));
  return analyser::Diff(reference, other, context);
}

absl::Status RunDiff(const DiffArgs& args, const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(CheckListingFile(*args.file));
  QUENCH_ASSIGN_OR_RETURN(
      const analyser::ModuleDiff diff,
      UsesGateway(*args.gateway)
          ? DiffThere({*args.gateway, *args.model, args.stage}, args.other, context)
          : DiffHere(args, context));
  QUENCH_RETURN_IF_ERROR(WriteListing(
      args.format == "json" ? analyser::ToJson(diff) : analyser::ToTable(diff), *args.file));
  if (args.exit_code && !diff.equal)
    return absl::FailedPreconditionError("the models differ (--exit-code)");
  return absl::OkStatus();
}

}  // namespace

Action DeclareDiff(const Options& options) {
  auto args = std::make_shared<DiffArgs>();
  AddModelOptions(options, args->model);
  options.Add("OTHER", args->other, "Model file or IR module to compare with", "FILE").Required();
  options
      .Add("--stage", args->stage,
           "Compare the models' own nodes (imported) or Quench's operators (canonical)",
           "STAGE (default imported)")
      .OneOf({"imported", "canonical"});
  options.Flag("--exit-code", args->exit_code, "Exit with code 1 if the models differ");
  AddFormat(options, args->format);
  AddListingFile(options, args->file);
  options.AddRule([args] { return StageProblem(*args->model, args->stage); });
  AddWorkOptions(options, args->gateway);
  options.Examples(kDiffExamples);
  return [args](const StepContext& context) { return RunDiff(*args, context); };
}

}  // namespace quench::cli
