// Compiles graphs to native libraries.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "common/passes/float16.h"
#include "common/passes/pass.h"
#include "services/codegen/check_report.h"
#include "services/codegen/targets/host_cpu.h"

namespace quench::codegen {

// Values that a build shows while it runs, after each node that computes one: none; every value of
// the model (none becomes integers that the model has in float); or the values of the code that
// runs without taps too, but with 8-bit activations of the type that the model gives them.
enum class Taps { kNone, kModelValues, kRunningCode };

// kByTarget: an archive with `system-lib`, else a shared library.
enum class Emit { kByTarget, kSharedLibrary, kObject, kArchive };

// Choice, in a build at level 4, between the kernels that compete for a node, all in the layouts
// that the predicted costs chose.
struct MeasuredChoice {
  // If >= 0: takes the competitor of this rank by predicted cost, or the first if there are fewer.
  int rank = -1;
  // Otherwise takes the fastest of those that were measured: microseconds by KernelReport::candidate. The
  // first by predicted cost stays if the others are faster only by the machine's noise.
  std::map<std::string, double> microseconds;
};

constexpr double kLeastTuneSeconds = 1, kMostTuneSeconds = 3600;

struct CompileOptions {
  // A name of ListTargets, a target string or JSON (targets/spec.h).
  std::string target = "host";
  // The machine that loads the library, in the form of `target`; "" is the target itself.
  std::string host_target;
  // The CPU that `host` stands for, and the triple for target strings without one; absent: this
  // machine's.
  std::optional<HostCpu> caller;
  // 0 reference nests, 1 scheduled nests, 2 micro-kernels, 3 fusion and layout choice, 4 kernels chosen
  // by measurement: CompileMeasured (measure.h) measures, Compile uses `measured`.
  int opt_level = 3;
  std::optional<MeasuredChoice> measured;
  double tune_seconds = 60;  // approximate time of CompileMeasured; at least kLeastTuneSeconds
  // "", "first" or "last": layout of 4-D+ activations at level 3 is free if ""
  std::string channel_layout;
  // Recorded in the library: names of classes by index, and the preparation of inputs, a JSON text.
  std::vector<std::string> class_names;
  std::string preprocessing;
  std::string uuid;  // "" derives one from the fingerprint and the options (deterministic)
  // Prefix of names in the header, which HeaderPrefix (header.h) makes an identifier. The library does not
  // depend on it.
  std::string header_prefix;
  Emit emit = Emit::kByTarget;
  // Whether 3x3 convolutions may be done by Winograd's minimal filtering: fewer multiplications,
  // rounding errors about ten times as large, and weights that are 1.8 to 7.1 times as large.
  bool winograd = true;
  // Whether products of f16 may be added in f16, a few at a time, if the target can do that.
  bool half_sums = true;
  // Limit for the size of all weights with Winograd's copies, as a multiple of their size without.
  double max_size = 1.35;
  Taps taps = Taps::kNone;  // else a tap build: on_tensor after every value
  CheckOptions check;       // how the library is run and its results checked, before it appears
  // For the passes that codegen runs itself; their opt_level and keep_values follow from the above.
  passes::PassOptions passes;
};

// One kernel call of the compiled model, in execution order, for the compile report.
struct KernelReport {
  std::string node;  // root node's origin name
  std::string op;
  std::string kernel;     // chosen candidate
  std::string runner_up;  // next best, "" if none
  std::string reason;
  double cost = 0;  // predicted, in cost-model units
  // Why it is slower than a reader might expect: integers that make nothing faster, or many
  // multiplications without a micro-kernel. Empty if it is not.
  std::string slow;
  double multiplications = 0;  // at typical sizes
  int64_t arena_bytes = 0;     // of the arena in use while it runs, at most, at typical sizes
  int64_t bytes = 0;  // of inputs, constants and outputs as the model has them, at typical sizes
  std::string candidate = {};  // name of the kernel and plan among this node's competitors
  double performed = 0;        // of `multiplications`; fewer with Winograd's minimal filtering
  std::string dtype = {};      // of its first operand, "" if there is none
};

// Packed weights of a variant; weights shared with an earlier variant count there.
struct VariantWeights {
  std::string variant;
  int64_t bytes = 0;
};

// The values at one place of the arena, at typical sizes. Kernels are those of CompileReport.
struct ArenaBuffer {
  std::vector<std::string> values;  // several if they replace each other in place
  int64_t offset = 0, bytes = 0;    // rounded up to the alignment
  int first = 0, last = 0;          // kernels that use it
};

// How kernels were chosen by measurement.
struct Measurement {
  int builds = 0, rounds = 0;  // builds that ran in turn, and runs of each
  // Run time with the kernels chosen by predicted cost, and with the ones finally kept.
  double predicted_choice_ms = 0, measured_choice_ms = 0;
};

struct CompileReport {
  std::string uuid;
  std::string target;         // resolved: triple, CPU, features
  std::string target_string;  // resolved, in the form that --target takes
  // Features asked for that no generated code uses, with their signs.
  std::vector<std::string> unused_features;
  std::vector<std::string> variants;
  std::vector<KernelReport> kernels;
  int64_t arena_bytes = 0;  // at typical sizes
  int64_t arena_lower_bound = 0;
  std::vector<ArenaBuffer> arena;  // by offset
  // The library's size by part.
  int64_t weight_bytes = 0;  // packed, of all variants
  std::vector<VariantWeights> variant_weights;
  int64_t code_bytes = 0, rest_bytes = 0;
  std::vector<passes::KeptFloat32> kept_float32;  // with passes.store_as
  double seconds = 0;
  std::optional<Measurement> measurement;  // at level 4
  std::optional<CheckReport> check;        // if one was requested
};

// Compiles a canonical or quantized graph into `library` (model.so, model.o or model.a) and
// `header`. Each file appears complete or not at all.
absl::StatusOr<CompileReport> Compile(const Graph& graph, const CompileOptions& options,
                                      const std::filesystem::path& library,
                                      const std::filesystem::path& header,
                                      const StepContext& context = {});

// Stages of a compilation before there is code, from a canonical or quantized graph.
enum class PlanStage {
  kProgram,  // kernels chosen and planned, steps over laid-out values
  kMemory,   // and places for them
};
// The text of each variant's plan (program_text.h).
absl::StatusOr<std::string> PlanText(const Graph& graph, const CompileOptions& options,
                                     PlanStage stage, const StepContext& context = {});
// The graph after codegen's own passes, for whose nodes kernels are chosen.
absl::StatusOr<Graph> GroupGraph(const Graph& graph, const CompileOptions& options,
                                 const StepContext& context = {});

// The form of output that `options` ask for: an archive with `system-lib`. INVALID_ARGUMENT if that
// and `emit` contradict each other, or the target does not resolve.
absl::StatusOr<Emit> WhatToEmit(const CompileOptions& options);

struct TargetInfo {
  std::string name;  // "host", "x86-64", "aarch64", "raspberry-pi/5", ...
  std::string kind;  // "x86", "arm", "android"
  std::string triple;
  std::vector<std::string> variants;  // each with its CPU and features
  std::vector<std::string> strings;   // a target string for each variant
  std::string description;
};
// `kind` as in TargetInfo, or "all", "cuda"; INVALID_ARGUMENT for others.
absl::StatusOr<std::vector<TargetInfo>> ListTargets(const std::string& kind = "all");

}  // namespace quench::codegen
