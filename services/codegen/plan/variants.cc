#include "services/codegen/plan/variants.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "services/codegen/plan/assign.h"
#include "services/codegen/plan/bands.h"
#include "services/codegen/plan/place.h"
#include "services/codegen/plan/program_text.h"
#include "services/codegen/plan/program_verify.h"
#include "services/codegen/plan/propose.h"
#include "services/codegen/targets/derive.h"
#include "services/codegen/targets/resolve.h"

namespace quench::codegen {
namespace {

void UseTable(Graph& graph, const std::shared_ptr<SymbolTable>& table) {
  graph.symbols = table;
  for (Node& node : graph.nodes) {
    for (auto& [name, attribute] : node.attributes) {
      GraphPtr* body = std::get_if<GraphPtr>(&attribute);
      if (body == nullptr) continue;
      Graph copy = **body;
      UseTable(copy, table);
      *body = std::make_shared<const Graph>(std::move(copy));
    }
  }
}

}  // namespace

Graph WithOwnSymbols(const Graph& graph) {
  Graph copy = graph;
  UseTable(copy, std::make_shared<SymbolTable>(*graph.symbols));
  return copy;
}

namespace {

// The byte type that the best variant multiplies by weights without changing it.
DataType BytesOf(const Target& target) {
  if (!target.add_products_u8.empty()) return DataType::kU8;
  if (!target.add_products_i8.empty()) return DataType::kI8;
  const bool picks = !target.add_pairs_of_bytes.empty() && !target.pick_of_16.empty();
  return picks ? DataType::kU8 : DataType::kUndefined;
}

}  // namespace

absl::StatusOr<Graph> GroupGraph(const Graph& graph, const CompileOptions& options,
                                 const StepContext& context) {
  // Passes know more than the importer did: sizes that were for the run to tell may be fixed by now.
  Graph copy = WithOwnSymbols(graph);
  QUENCH_RETURN_IF_ERROR(ops::InferGraph(copy));
  passes::PassOptions how = options.passes;
  QUENCH_ASSIGN_OR_RETURN(const ResolvedTarget resolved,
                          Resolve(options.target, options.host_target, options.caller));
  how.activation_bytes = BytesOf(resolved.variants.back());
  how.opt_level = std::min(options.opt_level, 3);
  how.keep_values = options.taps == Taps::kModelValues;
  how.whole_values = options.taps != Taps::kNone;
  return passes::RunCodegenPasses(std::move(copy), how, context);
}

namespace {

struct OwnProgram {
  Graph graph;  // groups as kernels of the target take them
  BuiltProgram built;
};

absl::StatusOr<OwnProgram> ProgramFor(const Target& target, const Graph& groups,
                                      const CompileOptions& options, WeightTable& weights,
                                      const StepContext& context) {
  Graph own = WithOwnSymbols(groups);
  Proposer proposer(target, options);
  OwnProgram result;
  QUENCH_ASSIGN_OR_RETURN(
      result.graph, passes::CutGroups(std::move(own), [&](const Graph& graph, const Node& node) {
        return !proposer.Of(graph, node).candidates.empty();
      }));
  QUENCH_ASSIGN_OR_RETURN(result.built,
                          BuildProgram(result.graph, target, options, proposer, weights, context));
  if (target.device) {
    PlaceOnDevice(result.built.program, result.built.reports, *result.graph.symbols,
                  target.device->gpu->emulated);
  } else if (options.opt_level >= 3) {
    FormBands(result.built.program, result.built.reports, target);
  }
  return result;
}

bool UsesMatrices(const Program& program) {
  bool uses = false;
  ForEachStep(program.steps, [&](const Step& step) {
    const auto* call = step.As<CallStep>();
    uses = uses ||
           (call != nullptr && call->kernel.code != nullptr && call->kernel.code->UsesMatrices());
  });
  return uses;
}

}  // namespace

absl::StatusOr<std::vector<PlannedVariant>> PlanVariants(const Graph& groups,
                                                         const std::vector<Target>& targets,
                                                         const CompileOptions& options,
                                                         WeightTable& weights,
                                                         const StepContext& context) {
  std::vector<PlannedVariant> variants;
  for (const Target& target : targets) {
    QUENCH_ASSIGN_OR_RETURN(OwnProgram own, ProgramFor(target, groups, options, weights, context));
    const bool matrices = UsesMatrices(own.built.program);
    PlannedVariant variant{matrices ? target : WithoutMatrices(target), std::move(own.graph),
                           std::move(own.built)};
    variant.weights_end = weights.entries().size();
    QUENCH_RETURN_IF_ERROR(AssignMemory(variant.built.program, *variant.graph.symbols, target));
    QUENCH_RETURN_IF_ERROR(VerifyProgram(variant.built.program, variant.weights_end));
    variants.push_back(std::move(variant));
  }
  return variants;
}

absl::StatusOr<std::string> PlanText(const Graph& graph, const CompileOptions& options,
                                     PlanStage stage, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const Graph groups, GroupGraph(graph, options, context));
  QUENCH_ASSIGN_OR_RETURN(const ResolvedTarget resolved,
                          Resolve(options.target, options.host_target, options.caller));
  WeightTable weights;
  std::string text;
  for (const Target& target : resolved.variants) {
    QUENCH_ASSIGN_OR_RETURN(OwnProgram own, ProgramFor(target, groups, options, weights, context));
    Program& program = own.built.program;
    if (stage == PlanStage::kMemory)
      QUENCH_RETURN_IF_ERROR(AssignMemory(program, *own.graph.symbols, target));
    QUENCH_RETURN_IF_ERROR(VerifyProgram(program, weights.entries().size()));
    text += fmt::format("{}variant {}\n{}", text.empty() ? "" : "\n", target.name,
                        ProgramText(program, *own.graph.symbols));
  }
  return text;
}

}  // namespace quench::codegen
