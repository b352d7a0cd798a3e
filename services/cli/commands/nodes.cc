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
  quench nodes model.onnx --op Conv --op 'Reduce*' only some operators
  quench nodes model.onnx --name '/features/*' --format json
  quench nodes model.onnx --stage canonical -o nodes.txt   as Quench's own operators

Nodes inside bodies (of If, Loop, Scan) are listed with the graph they belong to; in JSON they are under `nodes`.)";

struct NodesArgs {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::shared_ptr<ListingFile> file = std::make_shared<ListingFile>();
  std::string stage = "imported";
  std::vector<std::string> sizes;
  analyser::NodesOptions nodes;
  std::string format = "text";
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
  AddModelOptions(options, args->model, SizeIs::kOfData);
  options.Describe("--size",
                   "Size of a symbolic dimension for byte counts, which are omitted without it (a "
                   "batch defaults to 1), or the range of sizes that the model accepts");
  options
      .Add("--stage", args->stage,
           "List the model's own nodes (imported) or Quench's operators (canonical)",
           "STAGE (default imported)")
      .OneOf({"imported", "canonical"});
  options.Add("--op", args->nodes.ops, "Only nodes with a matching operator", "PATTERN");
  options.Add("--name", args->nodes.names, "Only nodes with a matching name", "PATTERN");
  AddFormat(options, args->format);
  AddListingFile(options, args->file);
  options.AddRule([args] { return StageProblem(*args->model, args->stage); });
  AddWorkOptions(options, args->gateway);
  options.Examples(kNodesExamples);
  return [args](const StepContext& context) {
    args->sizes = TakeDataSizes(*args->model);
    return RunNodes(*args, context);
  };
}

}  // namespace quench::cli
