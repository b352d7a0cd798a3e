// Adaptive rounding: rounds each weight up or down such that the output of its layer changes least
// on the inputs that it sees.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "common/runner/samples.h"
#include "services/quantizer/options.h"
#include "services/quantizer/rounding.h"

namespace quench::quantizer {

struct RoundingOptions {
  int threads = 1;
  bool random = false;  // the samples are: noted in the rounding
};

// For layer y = W x with integer weights W + D, minimises over the two neighbours of each weight
//   sum over rows d of D: d^T E[x x^T] d
// (Nagel et al. 2020, "Up or Down? Adaptive Rounding for Post-Training Quantization",
// arXiv 2004.10568, equations 13 to 15). There the choice is relaxed and found by gradient descent;
// here weights move one by one, each time the one that gains most, until none gains. This minimum
// is exact, never worse than the nearest integers, and the same for any `threads`. E[x x^T] is
// taken from at most 8,192 places of the samples; rows longer than 2,048 are cut into equal parts
// that are treated as independent.
//
// `tap_library` is a tap build of `graph`, as for Calibrate; `options` are those that Quantize will
// be given. Layers: Conv, Gemm and MatMul with constant kernels, unless options exclude them.
// Memory: 512 MiB of moments at a time (parts of rows are shorter if a layer would need more), for
// which samples are read again; and 128 MiB of inputs of layers. Errors are those of
// CheckedForQuantization, and INVALID_ARGUMENT: NaN or infinity in an input, with the sample's
// name; FAILED_PRECONDITION: the library is of another graph, or no layer has such a kernel.
absl::StatusOr<Rounding> AdaptRounding(const Graph& graph, const std::filesystem::path& tap_library,
                                       const Samples& samples, const QuantizeOptions& options,
                                       const RoundingOptions& how, const StepContext& context = {});

}  // namespace quench::quantizer
