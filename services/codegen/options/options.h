// Options of a compilation.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "common/passes/pass.h"
#include "services/codegen/targets/host_cpu.h"

namespace quench::codegen {

// kAuto: as much as fits into a second of CPU time, or into 30 % of the time of compiling,
// whichever is more. kFull: everything.
enum class CheckMode { kNo, kAuto, kFull };

// The facts for a bug report: the mismatch, the graph and the inputs.
struct CheckEvidence {
  std::string text;
  std::string target;                    // in the form of --target
  const Graph& graph;                    // before any pass
  std::map<std::string, Tensor> inputs;  // by name
};

struct CheckOptions {
  CheckMode mode = CheckMode::kNo;
  // The graph before any pass, which the library should compute. Null: the graph that is compiled.
  const Graph* source = nullptr;
  // Called before a mismatch is returned as the error. May be empty.
  std::function<void(const CheckEvidence&)> on_mismatch;
};

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

}  // namespace quench::codegen
