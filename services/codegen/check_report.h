// The report of a compilation about its own check.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/ir/graph.h"

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

struct CheckReport {
  enum class Extent {
    kNone,    // `reason` says why
    kWhole,   // all of the model
    kGroups,  // some of its groups
  };
  Extent extent = Extent::kNone;
  std::string reason;
  std::string variant;  // the variant that ran, if there are several
  // Counts of groups of nodes, between values that the model and the code both have, and of kinds of kernels.
  int groups = 0, all_groups = 0;
  int kernels = 0, all_kernels = 0;
  std::vector<std::string> nodes;  // of the source model, whose results end the groups that ran
  double largest_error = 0;        // relative, of floats
  int undecided = 0;               // groups that differ in few elements, decided by rounding
  double seconds = 0;              // of CPU
};

// "whole, against the interpreter: largest error 2e-6 (0.3 s)"
std::string CheckText(const CheckReport& report);

}  // namespace quench::codegen
