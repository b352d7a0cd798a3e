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
    "store_float16",            // weights are final by now
    "common_subexpressions",    // last of the rewrites: equal nodes are equal now
    "dead_code",
};

// Conditions of codegen's passes.
bool Always(const PassOptions&) { return true; }
bool KeepsValues(const PassOptions& options) { return options.keep_values; }
bool Rewrites(const PassOptions& options) { return !options.keep_values; }
bool Fuses(const PassOptions& options) { return options.opt_level >= 3; }

struct CodegenPass {
  std::string_view name;
  bool (*runs)(const PassOptions&);
};

// What codegen does to the result. Integers replace floats at every level: results are the same.
constexpr CodegenPass kCodegenPasses[] = {
    {"fold_dequantized", KeepsValues},  // else a part of integer_arithmetic
    {"recurrent_products", Rewrites},   // its products become integers like others
    {"integer_arithmetic", Rewrites},
    {"pointwise_tables", Rewrites},  // what follows an integer product stays in its group
    {"widen_integers", Always},      // integer_arithmetic has chosen who reads 4 bits as they are
    {"fuse_groups", Fuses},          // last: groups hide their nodes from all passes
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
  const bool goes_on =
      std::any_of(std::begin(kCodegenPasses), std::end(kCodegenPasses),
                  [&](const CodegenPass& pass) { return pass.name == options.stop_after; });
  return goes_on ? RunUpTo(options.stop_after, std::move(graph), options, context)
                 : std::move(graph);
}

std::vector<std::string_view> PipelinePasses() {
  std::vector<std::string_view> names;
  for (const std::string_view name : kPipeline) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

std::vector<std::string_view> CodegenPasses(const PassOptions& options) {
  std::vector<std::string_view> names;
  for (const CodegenPass& pass : kCodegenPasses) {
    if (pass.runs(options)) names.push_back(pass.name);
  }
  return names;
}

absl::StatusOr<Graph> RunCodegenPasses(Graph graph, const PassOptions& options,
                                       const StepContext& context) {
  return RunUpTo("", std::move(graph), options, context);
}

}  // namespace quench::passes
