// Options of a compilation.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
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

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
constexpr size_t kMostPrefix = 255;  // bytes of CompileOptions::header_prefix

// Members of options that users have, and what derived UUIDs depend on, are rows of options.def.
struct CompileOptions {
  // A name of ListTargets, a target string or JSON (targets/spec.h). UUIDs depend on the CPUs that it
  // stands for.
  std::string target = "host";
  // The machine that loads the library, in the form of `target`; "" is the target itself.
  std::string host_target;
  // The CPU that `host` stands for, and the triple for target strings without one; absent: this
  // machine's.
  std::optional<HostCpu> caller;
  std::string uuid;  // "" derives one from the fingerprint and the options (deterministic)
  // For `check`: the graph before any pass, which the library should compute. Null: the graph that is compiled.
  const Graph* check_source = nullptr;
  // Called before a mismatch is returned as the error. May be empty.
  std::function<void(const CheckEvidence&)> on_mismatch;

#define QUENCH_SWITCH(member, ...) bool member = true;
#define QUENCH_CONSENT(member, ...) bool member = false;
#define QUENCH_NUMBER(type, member, default, ...) type member = default;
#define QUENCH_CHOICE(type, member, default, ...) type member = default;
#define QUENCH_TEXT(member, ...) std::string member;
#define QUENCH_JSON(member, ...) std::string member;
#define QUENCH_NAMES(member, ...) std::vector<std::string> member;
#define QUENCH_OWN(type, member, default) type member = default;
#include "services/codegen/options/options.def"
};

}  // namespace quench::codegen
