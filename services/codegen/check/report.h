// The report of a compilation about its own check.
#pragma once

#include <string>
#include <vector>

namespace quench::codegen {

struct CheckReport {
  enum class Extent {
    kNone,    // `reason` says why
    kWhole,   // all of the model
    kGroups,  // some of its groups
  };
  Extent extent = Extent::kNone;
  std::string reason;
  std::string
      variant;  // the one that ran, if there are several: "x86-64-v4", or "cuda-sm_80 and x86-64-v4"
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
