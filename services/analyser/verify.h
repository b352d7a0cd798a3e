// Does a library compute what its model says? Two answers: `kernels`, whether the code computes the
// graph that the passes made, and `rewrites`, whether that graph computes what the model does.
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

// Compiles a graph into `library`. Given by whoever composes the services: the analyser itself dials
// nobody.
using BuildFunction = std::function<absl::Status(
    const Graph& graph, const std::filesystem::path& library, const StepContext& context)>;

// Largest number of multiply-accumulates for the interpreter, which does about 1e9 of them a
// second; above it, a reference build stands in for it.
inline constexpr int64_t kInterpreterMacs = 20'000'000'000;

struct VerifyOptions {
  int samples = 3;
  std::optional<double> tolerance;  // of floats, in place of DefaultTolerance
  std::string oracle;               // "interpreter", "reference", "" picks by MACs
  bool per_layer = false;
  uint64_t seed = 1;
  int threads = 1;
  ArtifactKey key;                       // of the library, where it is encrypted
  std::map<std::string, int64_t> sizes;  // of symbolic dims, by name; others as ChooseSizes says
  passes::PassOptions passes;            // those that the library was compiled with
  // Ranges of inputs on samples, by name: random floats get the same. Empty: from N(0, 1), and one
  // more sample as large as the library's narrow types allow.
  std::map<std::string, InputRange> ranges;
  // Both with taps that show the values of the code that runs. The canonical graph as the library
  // under test was built, all passes included: for layers, and for groups of integers.
  BuildFunction build_twin;
  // A graph as it is, every layer on its reference nest: for the reference oracle.
  BuildFunction build_reference;
};

using passes::DefaultTolerance;
using passes::ValueError;

struct LayersReport {
  bool compared = false;           // asked for, or an output is wrong
  std::vector<ValueError> values;  // in execution order
  // Values of the library without a value of that name, type and dims on the other side.
  std::vector<std::string> without_counterpart;
  std::string first, worst;  // out of tolerance
};

struct KernelsReport {
  bool passed = false;
  std::string oracle;  // "interpreter" or "reference"
  std::vector<ValueError> outputs;
  LayersReport layers;
};

// A value that is quantized otherwise than the model says.
struct GroupFailure {
  std::string node, value;          // node: of the source model
  int64_t wrong = 0, elements = 0;  // over all samples
  // The element that is farthest off: its row-major index, what the library has, and what the model
  // computes, in steps, before that is rounded.
  int64_t index = 0, actual = 0;
  double expected = 0;
};

// An output beside that of the model as it was before any pass, in float.
struct OutputReport {
  ValueError value;    // of quantized models: computed from the library's own integers
  double sqnr_db = 0;  // end to end; infinite if they are equal
};

// If the model quantizes values: every quantized value that the library has is fed to the model,
// whose Q/DQ form computes the next ones from it, in float, in the interpreter. An integer may be
// one step off only if the number that is rounded lies within 1e-3 of a tie. In other models,
// outputs are compared with those of the model.
struct RewritesReport {
  bool checked = false;  // else `reason` says why not
  bool passed = false;
  std::string reason;
  bool quantized = false;
  int64_t groups = 0, elements = 0;  // quantized values that were compared; over all samples
  int64_t ties = 0;                  // elements one step off at a tie
  std::vector<GroupFailure> failures;
  // Quantized values of the model that the library does not have: they are computed within the
  // groups of others.
  std::vector<std::string> without_counterpart;
  std::vector<OutputReport> outputs;
};

// Correctness of values near the end of a type's range, f16 or that of quantized values. Inputs are
// as wide as `ranges` says, or those of the first sample times a power of two: the smallest that
// brings some value to a tenth of 65504 (f16), or to nine tenths of the range of its integers. The
// model itself stays finite, and its values that f16 holds below half of 65504. Squares, powers,
// exponentials and sums are ignored there, because the passes keep them out of f16.
struct MagnitudeReport {
  DataType type = DataType::kUndefined;
  bool checked = false;  // else `reason` says why not
  bool passed = false;
  std::string reason;
  int exponent = 0;    // inputs times 2^exponent
  bool given = false;  // as wide as `ranges` says
  // The value that comes nearest to its limit: the largest |x| that the model has there.
  std::string value;
  double magnitude = 0, limit = 0;
  // f16: the library beside the model before any pass, and no farther off than its tolerance, or than
  // 16 roundings of the inputs to f16 move the model, but by 2 of the largest element at most; with
  // `given`, and for integers, the samples of kernels and rewrites are these, or this is one of them.
  std::vector<ValueError> outputs;
  std::string first;  // value of the library that is not finite where the model's is
};

struct VerifyReport {
  bool passed = false;  // kernels, and rewrites and magnitudes where they were checked
  std::map<std::string, int64_t> sizes;  // of symbolic dims, in the samples
  KernelsReport kernels;
  RewritesReport rewrites;
  std::vector<MagnitudeReport> magnitudes;  // one for each narrow type; none without such
};

// Compares an artifact with its model on random inputs that the model can take. A mismatch is a report with passed = false,
// not an error. Memory: one sample's quantized values; with layers, one sample's values.
absl::StatusOr<VerifyReport> Verify(const Graph& canonical, const std::filesystem::path& artifact,
                                    const VerifyOptions& asked, const StepContext& context = {});

std::string ToTable(const VerifyReport& report, int samples);
std::string ToJson(const VerifyReport& report, int samples);

}  // namespace quench::analyser
