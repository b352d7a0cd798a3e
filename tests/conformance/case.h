// One of ONNX's node cases: a model of one operator with inputs and expected outputs.
#pragma once

#include <filesystem>

#include "tests/conformance/manifest.h"

namespace quench::conformance {

struct CaseOptions {
  bool compile = true;
  std::filesystem::path scratch;  // for weights and libraries
  // Floating-point elements that differ by at most this part of their output's largest magnitude
  // are close too: sums that cancel are judged by what was summed.
  double of_largest = 0;
};

// Runs the case in `folder` (model.onnx, test_data_set_N/{input,output}_M.pb) through import,
// interpreter and, when asked, through native code at optimisation levels 0 and 3. Upstream's
// tolerance: rtol 1e-3, atol 1e-7.
CaseResult RunCase(const std::filesystem::path& folder, const CaseOptions& options);

}  // namespace quench::conformance
