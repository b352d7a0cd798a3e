#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/status.h"
#include "common/ops/fresh_symbols.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

// The standard pipeline, with the reason for each place.
constexpr std::string_view kPipeline[] = {
    "set_batch_size",    // first: everything below sees the sizes that will run
    "identities",        // before folding: a dropped Cast or Dropout exposes Conv + BatchNorm pairs
    "shape_arithmetic",  // Shape/Gather/Concat chains become constants that folding can use
    "fold_constants",    // weights computed in the model (transposed, cast) become plain constants
    "fold_batch_norms",  // after folding: its scale and shift must be constants by now
    "identities",        // folding leaves scales of 1 and shifts of 0 behind
    "sink_transposes",   // weights are plain constants by now, which move along
    "fold_batch_norms",  // again: between layers with channels last stood Transposes until now
    "scale_batch_norms",        // no weights absorb what is left
    "transposed_convolutions",  // kernels are final by now, and what follows may be moved along
    "store_float16",            // weights are final by now
    "common_subexpressions",    // last of the rewrites: equal nodes are equal now
    "dead_code",
};

// Conditions of codegen's passes.
bool Always(const PassOptions&) { return true; }
bool Rewrites(const PassOptions& options) { return !options.keep_values; }
bool Retypes(const PassOptions& options) { return Rewrites(options) && !options.whole_values; }
bool Fuses(const PassOptions& options) { return options.opt_level >= 3; }

struct CodegenPass {
  std::string_view name;
  bool (*runs)(const PassOptions&);
};

// Codegen's passes for the result. Integers replace floats at every level: results are the same.
constexpr CodegenPass kCodegenPasses[] = {
    {"recurrent_products", Rewrites},    // its products become integers like others
    {"sink_dequantize", Rewrites},       // then scales are next to the products that they belong to
    {"average_integers", Rewrites},      // while the DequantizeLinear before an average is in place
    {"cancel_quantize", Rewrites},       // sinking brought pairs together
    {"signed_weights", Rewrites},        // of the model's own integer products
    {"integer_products", Rewrites},      // before the next: integers on both sides are better
    {"weight_only_products", Rewrites},  // of what is left
    {"requantize", Rewrites},            // products are final
    {"attention", Rewrites},             // of the products that stay in float
    {"fold_dequantized", Always},        // for what stays in float
    {"pointwise_tables", Rewrites},      // what follows an integer product stays in its group
    {"byte_activations", Retypes},       // products and tables are final
    {"widen_integers", Always},          // who reads 4 bits as they are has been chosen
    {"fuse_groups", Fuses},              // last: groups hide their nodes from all passes
};

template <class T>
absl::Status CheckName(const char* what, const std::string& name, std::span<const T> all) {
  std::vector<std::string_view> known;
  for (const T& each : all) known.push_back(each.name);
  if (std::find(known.begin(), known.end(), name) != known.end()) return absl::OkStatus();
  return InvalidArgument("unknown pass `{}` {}; the passes are {}", name, what,
                         fmt::join(known, ", "));
}

absl::Status CheckNames(const PassOptions& options) {
  StatusCollector problems;
  for (const std::string& name : options.disabled)
    problems.Add(CheckName("to skip", name, AllPassSwitches()));
  if (!options.stop_after.empty())
    problems.Add(CheckName("to stop after", options.stop_after, AllPasses()));
  return problems.Finish();
}

// Adds the switch of a pass, unless it is there.
void AddSwitch(std::string_view pass, std::vector<std::string_view>& names) {
  const std::string_view name = FindPass(pass)->disabled_by;
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

// Codegen's passes up to `last`, which runs whatever its condition says; "" is all of them.
absl::StatusOr<Graph> RunUpTo(std::string_view last, Graph graph, const PassOptions& options,
                              const StepContext& context) {
  for (const CodegenPass& pass : kCodegenPasses) {
    if (!pass.runs(options) && pass.name != last) continue;
    QUENCH_ASSIGN_OR_RETURN(graph,
                            RunPass(*FindPass(pass.name), std::move(graph), options, context));
    if (pass.name == last) break;
  }
  return graph;
}

bool IsPartition(const Node& node) { return node.op == "q.partition"; }

}  // namespace

absl::StatusOr<Graph> InlinePartitions(Graph graph) {
  if (PartitionsOf(graph).empty()) return graph;
  return InlineGroups(std::move(graph), IsPartition);
}

std::vector<const Node*> PartitionsOf(const Graph& graph) {
  std::vector<const Node*> partitions;
  ForEachGraph(graph, [&](const Graph& each) {
    for (const Node& node : each.nodes) {
      if (IsPartition(node)) partitions.push_back(&node);
    }
  });
  return partitions;
}

absl::StatusOr<Graph> StandAlone(const Node& partition) {
  const GraphPtr body = partition.Body("body");
  if (!IsPartition(partition) || body == nullptr)
    return InvalidArgument("node `{}` is not a partition", partition.name);
  return ops::WithFreshSymbols(*body);
}

absl::StatusOr<Graph> RunPipeline(Graph graph, const PassOptions& options,
                                  const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(CheckNames(options));
  if (graph.stage == Stage::kImported) {
    return InvalidArgument("the module is at stage `imported`; passes take `canonical`");
  }
  QUENCH_ASSIGN_OR_RETURN(graph, InlinePartitions(std::move(graph)));
  int64_t done = 0;
  for (const std::string_view name : kPipeline) {
    context.Report(
        {"passes", std::string(name), done++, static_cast<int64_t>(std::size(kPipeline))});
    QUENCH_ASSIGN_OR_RETURN(graph, RunPass(*FindPass(name), std::move(graph), options, context));
    if (options.stop_after == name) return graph;
  }
  const bool goes_on =
      std::any_of(std::begin(kCodegenPasses), std::end(kCodegenPasses),
                  [&](const CodegenPass& pass) { return pass.name == options.stop_after; });
  return goes_on ? RunUpTo(options.stop_after, std::move(graph), options, context)
                 : std::move(graph);
}

std::vector<std::string_view> PipelineSwitches() {
  std::vector<std::string_view> names;
  for (const std::string_view name : kPipeline) AddSwitch(name, names);
  return names;
}

std::vector<std::string_view> CodegenSwitches(const PassOptions& options) {
  std::vector<std::string_view> names;
  for (const CodegenPass& pass : kCodegenPasses) {
    if (pass.runs(options)) AddSwitch(pass.name, names);
  }
  return names;
}

absl::StatusOr<Graph> RunCodegenPasses(Graph graph, const PassOptions& options,
                                       const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(graph, InlinePartitions(std::move(graph)));
  return RunUpTo("", std::move(graph), options, context);
}

}  // namespace quench::passes
