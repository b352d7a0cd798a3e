#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/status.h"
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
    "transposed_convolutions",  // kernels are final by now, and what follows may be moved along
    "common_subexpressions",    // last of the rewrites: equal nodes are equal now
    "dead_code",
};

constexpr std::string_view kOwnOfCodegen[] = {
    "recurrent_products",  // before it: what it makes are products like others
    "integer_arithmetic",
    "pointwise_tables",  // after it: what follows an integer product stays there
    "fuse_groups",
};

absl::Status CheckNames(const PassOptions& options) {
  std::vector<std::string_view> known;
  for (const PassInfo& pass : AllPasses()) known.push_back(pass.name);
  std::vector<std::string> asked(options.disabled.begin(), options.disabled.end());
  if (!options.stop_after.empty()) asked.push_back(options.stop_after);
  for (const std::string& name : asked) {
    if (FindPass(name) == nullptr) {
      return InvalidArgument("unknown pass `{}`; the passes are {}", name, fmt::join(known, ", "));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Graph> RunPipeline(Graph graph, const PassOptions& options,
                                  const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(CheckNames(options));
  if (graph.stage == Stage::kImported) {
    return InvalidArgument("the module is at stage `imported`; passes take `canonical`");
  }
  int64_t done = 0;
  for (const std::string_view name : kPipeline) {
    context.Report(
        {"passes", std::string(name), done++, static_cast<int64_t>(std::size(kPipeline))});
    QUENCH_ASSIGN_OR_RETURN(graph, RunPass(*FindPass(name), std::move(graph), options, context));
    if (options.stop_after == name) return graph;
  }
  // Codegen runs these itself, the last at --opt-level 3; asked for by name, they show what codegen
  // will see.
  const auto own =
      std::find(std::begin(kOwnOfCodegen), std::end(kOwnOfCodegen), options.stop_after);
  if (own == std::end(kOwnOfCodegen)) return graph;
  for (const auto* name = std::begin(kOwnOfCodegen); name <= own; ++name) {
    QUENCH_ASSIGN_OR_RETURN(graph, RunPass(*FindPass(*name), std::move(graph), options, context));
  }
  return graph;
}

}  // namespace quench::passes
