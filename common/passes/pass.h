// Graph passes: free functions from graph to graph, listed in passes.def, run through one wrapper.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"

namespace quench::passes {

struct PassOptions {
  int64_t batch = 0;  // set_batch_size: 0 leaves the batch as it is
  // store_float16: what weights and activations are stored as: f16 or bf16; f32 leaves them.
  DataType store_as = DataType::kF32;
  // store_float16: f32, f16 or bf16 for single nodes, by their origin or, without one, their name; the
  // others get `store_as`. For callers in this process: requests do not have it.
  std::map<std::string, DataType> node_types;
  // scale_batch_norms: values may be stored in 16 bits later, by options that this run does not have.
  bool narrows_later = false;
  // store_float16: the largest |x| that values had on samples, by name; what comes near the end of
  // f16's range stays f32.
  std::map<std::string, double> magnitudes;
  std::set<std::string> disabled;  // passes not to run: names of switches
  std::string stop_after;          // the pipeline ends after this pass; "" runs all
  // Codegen's passes: what 8-bit activations become, i8 or u8; kUndefined leaves them.
  DataType activation_bytes = DataType::kUndefined;
  int opt_level = 3;  // codegen's passes: what the code is built at, 0 to 3
  // Codegen's passes: every value of the model stays a value, in float where that is what it is.
  bool keep_values = false;
  // Codegen's passes: all of each value is computed, for tools that look inside a run, though nothing reads it.
  bool whole_values = false;
  // Called after each pass with the graph it gave (dumps, tests). May be empty.
  std::function<void(std::string_view pass, const Graph&)> on_pass;
  bool verify = true;  // verify the graph after each pass
};

struct PassInfo {
  std::string_view name;  // snake_case, as in --stop-after NAME
  std::string_view doc;   // one line
  absl::StatusOr<Graph> (*run)(Graph, const PassOptions&, const StepContext&);
  std::string_view disabled_by;  // the switch: its group, or itself
};

// A name for `disabled` and --no-NAME: a pass, or a group of passes that only make sense together.
struct PassSwitch {
  std::string_view name;
  std::string_view doc;  // one line
};

std::span<const PassInfo> AllPasses();
const PassInfo* FindPass(std::string_view name);
std::span<const PassSwitch> AllPassSwitches();
const PassSwitch* FindPassSwitch(std::string_view name);

// Everything around a pass: cancellation, disabling, progress, verification, error context
// ("pass `fold_constants`: ..."), the on_pass hook.
absl::StatusOr<Graph> RunPass(const PassInfo& pass, Graph graph, const PassOptions& options,
                              const StepContext& context);

// The graph without partitions for other backends: what they hold is done here like everything else.
absl::StatusOr<Graph> InlinePartitions(Graph graph);
// Its partitions, in the order of their nodes, those in bodies of control flow included.
std::vector<const Node*> PartitionsOf(const Graph& graph);
// A partition's computation as a separate module; sizes that are not fixed become symbols of its inputs.
// INVALID_ARGUMENT: the node is no partition.
absl::StatusOr<Graph> StandAlone(const Node& partition);

// Cuts each fusion group that is not `taken` behind its longest prefix that is, or behind its first
// node; the rest becomes a group of its own if that is taken, and is cut in the same way if not.
// Bodies included. The graph that `taken` is asked with holds the values that the group names.
absl::StatusOr<Graph> CutGroups(Graph graph,
                                const std::function<bool(const Graph&, const Node&)>& taken);

// The standard pipeline from a canonical graph to one ready for codegen: the list in pipeline.cc,
// with the reason for each place. An unknown name in `disabled` or `stop_after` is an error that
// lists the known ones. It ends before the passes of codegen, unless `stop_after` names one of those.
absl::StatusOr<Graph> RunPipeline(Graph graph, const PassOptions& options,
                                  const StepContext& context);

// The switches of the passes that RunPipeline runs without `stop_after`, each once, and of those
// that RunCodegenPasses runs with such options.
std::vector<std::string_view> PipelineSwitches();
std::vector<std::string_view> CodegenSwitches(const PassOptions& options = {});

// The passes that codegen runs on every graph that it compiles: the second list in pipeline.cc. Run
// them to know what a library computes. `stop_after` is ignored.
absl::StatusOr<Graph> RunCodegenPasses(Graph graph, const PassOptions& options,
                                       const StepContext& context);

}  // namespace quench::passes
