// Adaptive rounding: which of its two neighbours each weight becomes, so that what a layer computes
// changes least on the inputs that it sees.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "common/runner/samples.h"
#include "services/quantizer/quantize.h"

namespace quench::quantizer {

// Of one constant, for one way of taking scales from it.
// What is told where a rounding of random samples is used.
inline constexpr char kRandomRounding[] =
    "rounding was adapted to random inputs: what layers see of real data is something else";

struct AdaptedKernel {
  std::string constant;             // its name
  int axis = -1;                    // as WeightScheme.axis
  std::string node;                 // the first that reads it
  std::string otherwise;            // a bit for each element, lowest first: not to the nearest
  int64_t elements = 0, moved = 0;  // bits, and those that are set
  // Of the layer's output, activations in float: power of the signal over that of what rounding the
  // weights adds, in dB, nearest and adapted. Infinite where weights are integers already.
  double nearest_db = 0, adapted_db = 0;
};

struct Rounding {
  bool random = false;      // the samples were: what layers see of real data is something else
  std::string fingerprint;  // of the float module
  std::string scheme;       // SchemeWords of the options
  int64_t samples = 0;
  std::vector<AdaptedKernel> kernels;
};

// For layer y = W x with integer weights W + D, minimises over the two neighbours of each weight
//   sum over rows d of D: d^T E[x x^T] d
// (Nagel et al. 2020, "Up or Down? Adaptive Rounding for Post-Training Quantization",
// arXiv 2004.10568, equations 13 to 15). There the choice is relaxed and found by gradient descent;
// here weights move one by one, each time that which gains most, until none gains: exact in what it
// minimises, never worse than the nearest integers, and the same whatever `threads` is. E[x x^T] is
// taken from at most 8,192 places of the samples; rows longer than 2,048 are cut into equal parts
// that are taken as independent.
//
// `tap_library` is a tap build of `graph`, as for Calibrate; `options` are those that Quantize will
// be given. Layers: Conv, Gemm and MatMul with constant kernels that options leave. Memory: 512 MiB
// of moments at a time (parts of rows are shorter where a layer would have more), for which samples are
// read again; and 128 MiB of what layers read. Errors are those of CheckedForQuantization, and
// INVALID_ARGUMENT: NaN or infinity in an input, with the sample's name; FAILED_PRECONDITION: the
// library is of another graph, or no layer has such a kernel.
struct RoundingOptions {
  int threads = 1;
  bool random = false;  // the samples are: noted in the rounding
};
absl::StatusOr<Rounding> AdaptRounding(const Graph& graph, const std::filesystem::path& tap_library,
                                       const Samples& samples, const QuantizeOptions& options,
                                       const RoundingOptions& how, const StepContext& context = {});

// FAILED_PRECONDITION unless `rounding` is of this module and of such options.
absl::Status CheckRounding(const Rounding& rounding, const Graph& graph,
                           const std::string& fingerprint, const QuantizeOptions& options);
// AdaptedKernel.otherwise of the constant; null where rounding is to the nearest.
const std::string* OtherwiseOf(const QuantizeOptions& options, const std::string& constant,
                               int axis);

// The layers whose noise is lowered most, `rows` of them, and a line for all.
std::string ToTable(const Rounding& rounding, size_t rows = 10);

}  // namespace quench::quantizer
