// Options and results of Verify.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "common/passes/pass.h"
#include "common/passes/tolerance.h"
#include "common/runner/inputs.h"
#include "common/runner/runner.h"

namespace quench::analyser {

// Compiles a graph into `library`. Supplied by the program that composes the services: the analyser
// itself calls no service.
using BuildFunction = std::function<absl::Status(
    const Graph& graph, const std::filesystem::path& library, const StepContext& context)>;

// Largest number of multiply-accumulates for the interpreter, which does about 1e9 of them a
// second; above it, a reference build stands in for it.
inline constexpr int64_t kInterpreterMacs = 20'000'000'000;

struct VerifyOptions {
  int samples = 3;
  std::optional<double> tolerance;  // for floats, in place of DefaultTolerance
  std::string oracle;               // "interpreter", "reference", "": chosen by MACs
  bool per_layer = false;
  uint64_t seed = 1;
  int threads = 1;
  std::string device;                    // of the library: OpenOptions::device
  ArtifactKey key;                       // for an encrypted library
  std::map<std::string, int64_t> sizes;  // of symbolic dims, by name; others by ChooseSizes
  passes::PassOptions passes;            // with which the library was compiled
  // Ranges of inputs on samples, by name: random floats are drawn from them. Empty: drawn from N(0, 1),
  // with one more sample as large as the library's narrow types allow.
  std::map<std::string, InputRange> ranges;
  // Both builds have taps. This one builds the canonical graph like the library under test, all passes
  // included: for the comparison of layers, and of groups of integers.
  BuildFunction build_twin;
  // Builds a graph without passes, every layer on its reference nest: for the reference oracle.
  BuildFunction build_reference;
};

using passes::DefaultTolerance;
using passes::ValueError;

struct LayersReport {
  bool compared = false;           // if asked for, or if an output is wrong
  std::string device;              // that ran them, the twin's: Artifact::device
  std::vector<ValueError> values;  // in execution order
  // Values of the library for which the oracle has none of that name, type and dims.
  std::vector<std::string> without_counterpart;
  std::string first, worst;  // layers out of tolerance
};

struct KernelsReport {
  bool passed = false;
  std::string oracle;  // "interpreter" or "reference"
  std::vector<ValueError> outputs;
  LayersReport layers;
};

// A value whose integers differ from the model's.
struct GroupFailure {
  std::string node, value;          // node: its name in the source model
  int64_t wrong = 0, elements = 0;  // over all samples
  // The element with the largest error: its row-major index, the library's integer, and the model's
  // result in quantization steps, before rounding.
  int64_t index = 0, actual = 0;
  double expected = 0;
};

// An output compared with that of the original model before any pass, in float.
struct OutputReport {
  ValueError value;    // quantized models: computed from the library's own integers
  double sqnr_db = 0;  // end to end; infinite if they are equal
};

// If the model quantizes values: every quantized value that the library has is fed to the model,
// whose Q/DQ form computes the next ones from it, in float, in the interpreter. An integer may be
// one step off only if the number that is rounded lies within 1e-3 of a tie. In other models,
// outputs are compared with those of the model.
struct RewritesReport {
  bool checked = false;  // if not, `reason` says why
  bool passed = false;
  std::string reason;
  bool quantized = false;
  int64_t groups = 0, elements = 0;  // compared quantized values; over all samples
  int64_t ties = 0;                  // elements one step off at a tie
  std::vector<GroupFailure> failures;
  // Quantized values of the model that the library does not have, because it computes them within the
  // groups of others.
  std::vector<std::string> without_counterpart;
  std::vector<OutputReport> outputs;
};

// Correctness of values near the end of a type's range: f16's, or that of quantized values. Inputs have
// the ranges in `ranges`, or are the first sample's times a power of two: the smallest that brings some
// value to a tenth of 65504 (f16), or to nine tenths of the range of its integers. The model itself
// stays finite, and its values that are held in f16 stay below half of 65504. Squares, powers,
// exponentials and sums are ignored there, because the passes keep them out of f16.
struct MagnitudeReport {
  DataType type = DataType::kUndefined;
  bool checked = false;  // if not, `reason` says why
  bool passed = false;
  std::string reason;
  int exponent = 0;    // inputs are multiplied by 2^exponent
  bool given = false;  // inputs have the ranges in `ranges`
  // The value that comes nearest to its limit, and its largest |x| in the model.
  std::string value;
  double magnitude = 0, limit = 0;
  // f16: the library against the model before any pass. An error is allowed up to the tolerance, or up
  // to 16 times the effect of rounding the inputs to f16, but at most 2 times the largest element. With
  // `given`, and for integers, the checks of kernels and rewrites use these inputs, or include them.
  std::vector<ValueError> outputs;
  std::string first;  // value of the library that is not finite although the model's is
};

struct VerifyReport {
  bool passed = false;                   // kernels, and rewrites and magnitudes if checked
  std::map<std::string, int64_t> sizes;  // of symbolic dims, in the samples
  std::string device;                    // that ran the library: Artifact::device
  KernelsReport kernels;
  RewritesReport rewrites;
  std::vector<MagnitudeReport> magnitudes;  // one for each narrow type in the library
};

}  // namespace quench::analyser
