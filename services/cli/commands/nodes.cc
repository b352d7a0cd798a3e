#include "services/analyser/nodes.h"

#include "common/base/status.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/listing_file.h"
#include "services/cli/model_source.h"
#include "services/cli/remote.h"

namespace quench::cli {
namespace {

constexpr char kNodesExamples[] = R"(Examples:
  quench nodes model.onnx                          every node: attributes, inputs and outputs with types and bytes
  quench nodes model.onnx --op Conv --op 'Reduce*' those of some operators
  quench nodes model.onnx --name '/features/*' --format json
  quench nodes model.onnx --stage canonical -o nodes.txt   as Quench's own operators

Nodes of bodies are listed with the graph that they are in; JSON has them under `nodes`.)";

struct NodesArgs {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::shared_ptr<ListingFile> file = std::make_shared<ListingFile>();
  std::string stage = "imported";
  std::vector<std::string> sizes;
  analyser::NodesOptions nodes;
  std::string format = "table";
};

absl::StatusOr<Graph> GraphAtStage(const NodesArgs& args, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(importer::Imported model, LoadModel(*args.model, context));
  if (args.stage == "imported") return std::move(model.imported);
  return WithBatch(std::move(model.canonical), *args.model, context);
}

absl::Status RunNodes(const NodesArgs& args, const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(CheckListingFile(*args.file));
  analyser::NodesOptions nodes = args.nodes;
  QUENCH_ASSIGN_OR_RETURN(nodes.sizes, ParseSizes(args.sizes));
  analyser::ModuleFacts facts;
  if (UsesGateway(*args.gateway)) {
    QUENCH_ASSIGN_OR_RETURN(
        facts, IntrospectThere({*args.gateway, *args.model, args.stage}, nodes, context));
  } else {
    QUENCH_ASSIGN_OR_RETURN(const Graph graph, GraphAtStage(args, context));
    QUENCH_ASSIGN_OR_RETURN(facts, analyser::Introspect(graph, nodes));
  }
  return WriteListing(args.format == "json" ? analyser::ToJson(facts) : analyser::ToTable(facts),
                      *args.file);
}

}  // namespace

Action DeclareNodes(const Options& options) {
  auto args = std::make_shared<NodesArgs>();
  AddModelOptions(options, args->model);
  options
      .Add("--stage", args->stage, "imported: the model's own nodes; canonical",
           "STAGE (default imported)")
      .OneOf({"imported", "canonical"});
  options.Add("--op", args->nodes.ops, "Only nodes of these operators", "PATTERN");
  options.Add("--name", args->nodes.names, "Only nodes of these names", "PATTERN");
  options.Add(
      "--size", args->sizes,
      "Size at which a symbolic dim is counted; without it (but for a batch) bytes are left out",
      "NAME=N");
  options.Add("--format", args->format, "Output format", "table|json").OneOf({"table", "json"});
  AddListingFile(options, args->file);
  options.AddRule([args] { return StageProblem(*args->model, args->stage); });
  AddWorkOptions(options, args->gateway);
  options.Examples(kNodesExamples);
  return [args](const StepContext& context) { return RunNodes(*args, context); };
}

}  // namespace quench::cli
