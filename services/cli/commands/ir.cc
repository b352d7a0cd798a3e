#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/hash.h"
#include "common/ir/text.h"
#include "common/ir/verify.h"
#include "common/ops/op.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/model_source.h"
#include "services/cli/module_files.h"
#include "services/cli/remote.h"
#include "services/codegen/plan/variants.h"

namespace quench::cli {
namespace {

constexpr char kIrExamples[] = R"(Examples:
  quench ir model.onnx                             canonical IR as text
  quench ir model.onnx --stage imported --no-types the model's own nodes
  quench ir model.ir.txt --pass fold_constants --pass dead_code     run passes one by one
  quench ir model.ir.txt --verify --hash           is edited text valid? prints its hash
  quench ir model.onnx --lower conv1               the loops that node `conv1` computes
  quench ir model.onnx --stage groups              the groups of nodes that kernels are chosen for
  quench ir model.onnx --stage memory --target aarch64    steps, layouts and memory placement of each variant)";

struct IrArgs {
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::string stage = "canonical";
  std::vector<std::string> passes;
  std::string lower;
  std::string target = "host";
  std::string output, format = "text";
  bool no_types = false;
  bool verify = false;
  bool hash = false;
  bool external_weights = false;
};

absl::StatusOr<std::string> LoopsText(const Graph& graph, const std::string& name) {
  for (const Node& node : graph.nodes) {
    if (node.name != name && node.origin != name) continue;
    QUENCH_ASSIGN_OR_RETURN(const loops::Function function,
                            ops::LowerNode(ops::ContextOf(graph, node)));
    return loops::Print(function);
  }
  return absl::NotFoundError(fmt::format("there is no node `{}`", name));
}

absl::Status Write(const IrArgs& args, const std::string& text) {
  if (!args.output.empty()) return WriteFileAtomically(args.output, text);
  fmt::print("{}", text);
  return absl::OkStatus();
}

bool IsPlan(const std::string& stage) { return stage == "program" || stage == "memory"; }
bool IsOfCodegen(const std::string& stage) { return stage == "groups" || IsPlan(stage); }

// The stage of a module that this stage is made of.
std::string ModuleStage(const std::string& stage) {
  return IsOfCodegen(stage) ? "codegen-ready" : stage;
}

// Whether a shell's `>` made a file of what is printed.
bool PrintsToFile() {
  struct stat info = {};
  return ::fstat(STDOUT_FILENO, &info) == 0 && S_ISREG(info.st_mode);
}

// The text with all weights in it: it lasts as long as its file.
absl::StatusOr<std::string> HeldText(const Graph& graph, const PrintOptions& print) {
  QUENCH_ASSIGN_OR_RETURN(const TempDir folder, TempDir::Create());
  const std::filesystem::path file = folder.path() / "module.ir.txt";
  QUENCH_RETURN_IF_ERROR(WriteTextModuleFile(graph, file, WeightsIn::kFile, print));
  return ReadFile(file);
}

absl::StatusOr<Graph> GraphHere(const IrArgs& args, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(importer::Imported model, LoadModel(*args.model, context));
  Graph graph = args.stage == "imported" ? std::move(model.imported) : std::move(model.canonical);
  QUENCH_ASSIGN_OR_RETURN(graph, WithBatch(std::move(graph), *args.model, context));
  const passes::PassOptions options = PassOptionsOf(*args.model);
  if (ModuleStage(args.stage) == "codegen-ready") {
    QUENCH_ASSIGN_OR_RETURN(graph, passes::RunPipeline(std::move(graph), options, context));
  }
  for (const std::string& name : args.passes) {
    QUENCH_ASSIGN_OR_RETURN(
        graph, passes::RunPass(*passes::FindPass(name), std::move(graph), options, context));
  }
  return graph;
}

// Findings of --verify and --hash.
void PrintFindings(const IrArgs& args, const Graph& graph) {
  if (args.format == "json") {
    nlohmann::json json = {{"stage", std::string(StageName(graph.stage))}};
    if (args.verify) json["legal"] = true;
    if (args.hash) {
      json["fingerprint"] = Fingerprint(graph);
      json["structure_hash"] = StructureHash(graph);
    }
    fmt::print("{}\n", json.dump(2));
    return;
  }
  if (args.verify) fmt::print("legal at stage {}\n", StageName(graph.stage));
  if (args.hash)
    fmt::print("fingerprint  {}\nstructure    {}\n", Fingerprint(graph), StructureHash(graph));
}

absl::Status RunIr(const IrArgs& args, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(
      Graph graph,
      UsesGateway(*args.gateway)
          ? ModuleThere({*args.gateway, *args.model, ModuleStage(args.stage), args.passes}, context)
          : GraphHere(args, context));
  if (IsOfCodegen(args.stage)) {
    codegen::CompileOptions options;
    options.target = args.target;
    options.passes = PassOptionsOf(*args.model);
    if (IsPlan(args.stage)) {
      const codegen::PlanStage stage =
          args.stage == "memory" ? codegen::PlanStage::kMemory : codegen::PlanStage::kProgram;
      QUENCH_ASSIGN_OR_RETURN(const std::string text,
                              codegen::PlanText(graph, options, stage, context));
      return Write(args, text);
    }
    QUENCH_ASSIGN_OR_RETURN(graph, codegen::GroupGraph(graph, options, context));
  }
  if (!args.lower.empty()) {
    QUENCH_ASSIGN_OR_RETURN(const std::string text, LoopsText(graph, args.lower));
    return Write(args, text);
  }
  if (args.verify) QUENCH_RETURN_IF_ERROR(VerifyGraph(graph));
  PrintFindings(args, graph);
  PrintOptions print;
  print.types = !args.no_types;
  if (args.output.empty() && (args.verify || args.hash)) return absl::OkStatus();
  if (!args.output.empty()) {
    return WriteTextModuleFile(
        graph, args.output, args.external_weights ? WeightsIn::kBeside : WeightsIn::kFile, print);
  }
  QUENCH_ASSIGN_OR_RETURN(const std::string text,
                          PrintsToFile() ? HeldText(graph, print) : ModuleText(graph, print));
  fmt::print("{}", text);
  return absl::OkStatus();
}

}  // namespace

Action DeclareIr(const Options& options) {
  auto args = std::make_shared<IrArgs>();
  AddModelOptions(options, args->model);
  AddFloat16Flags(options, args->model);
  AddPassFlags(options, args->model, passes::PipelineSwitches());
  std::vector<std::string> names;
  for (const passes::PassInfo& pass : passes::AllPasses()) names.emplace_back(pass.name);
  options
      .Add("--stage", args->stage,
           "imported (the model's own nodes), canonical, codegen-ready (after all passes), groups "
           "(the units that kernels are chosen for), program (steps with the layout of each "
           "value), memory (also the place of each value)",
           "STAGE (default canonical)")
      .OneOf({"imported", "canonical", "codegen-ready", "groups", "program", "memory"});
  options.Add("--pass", args->passes, "Run this pass; may be repeated", "PASS").OneOf(names);
  options.Add("--target", args->target, "Target for the stages program and memory",
              "TARGET (default host)");
  options.Add("--lower", args->lower, "Print the loops of one node", "NODE")
      .Excludes({"--no-types", "--verify", "--hash", "--external-weights"});
  options.In("Output").Add(
      "--output,-o", args->output,
      "Write the text to a file, including all weights (so does redirecting stdout to a file)",
      "FILE");
  AddWeightsFlag(options, args->external_weights);
  options.Flag("--no-types", args->no_types, "Omit types; they are inferred when the text is read");
  options.Flag("--verify", args->verify, "Check that the module is valid for its stage");
  options.Flag("--hash", args->hash, "Print the module's fingerprint and structure hash");
  AddFormat(options, args->format);
  options.AddRule([args] {
    return args->format == "json" && !args->verify && !args->hash
               ? "--format json: the IR is printed as text; JSON is for --verify and --hash"
               : "";
  });
  options.AddRule(
      [args] { return StageProblem(*args->model, ModuleStage(args->stage), args->passes); });
  options.AddRule([args]() -> std::string {
    if (args->target != "host" && !IsPlan(args->stage))
      return "--target needs --stage program or --stage memory";
    if (IsPlan(args->stage) && (!args->lower.empty() || args->verify || args->hash ||
                                args->no_types || args->external_weights))
      return "--stage " + args->stage +
             " does not support --lower, --verify, --hash, --no-types and --external-weights";
    return "";
  });
  options.AddRule([args] {
    return args->no_types && args->output.empty() && (args->verify || args->hash)
               ? "--no-types with --verify or --hash needs --output: no text is printed"
               : "";
  });
  AddWorkOptions(options, args->gateway);
  options.Examples(kIrExamples);
  return [args](const StepContext& context) { return RunIr(*args, context); };
}

}  // namespace quench::cli
