// The report of a compilation about its own check.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/ir/graph.h"

namespace quench::codegen {

// kAuto: as much as a second of CPU, or 30 % of what compiling took, whichever is more,
// can do. kFull: everything.
enum class CheckMode { kNo, kAuto, kFull };

// For a bug report: what was found, on which graph and inputs.
struct CheckEvidence {
  std::string text;
  std::string target;                    // as --target takes it
  const Graph& graph;                    // before any pass
  std::map<std::string, Tensor> inputs;  // by name
};

struct CheckOptions {
  CheckMode mode = CheckMode::kNo;
  // The graph as it was before any pass: what the library should compute. Null: the graph that is compiled.
  const Graph* source = nullptr;
  // Called before a mismatch becomes the error. May be empty.
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
  std::string variant;  // whose code ran, where there are several
  // Groups of nodes, between values that the model and the code both have; and of the kinds of kernels.
  int groups = 0, all_groups = 0;
  int kernels = 0, all_kernels = 0;
  std::vector<std::string> nodes;  // of the source model, at whose results the groups that ran end
  double largest_error = 0;        // relative, of floats
  int undecided = 0;   // groups whose results rounding decides, and which differ in few elements
  double seconds = 0;  // of CPU
};

// "whole, against the interpreter: largest error 2e-6 (0.3 s)"
std::string CheckText(const CheckReport& report);

}  // namespace quench::codegen
