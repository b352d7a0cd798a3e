// What did a change cost? Two builds on the same samples, output by output and layer by layer.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/runner/samples.h"

namespace quench::analyser {

// Comparison of one value, over all elements of all samples. a: the reference's, b: the other's.
struct ValueComparison {
  std::string value;
  int64_t elements = 0;
  double sqnr_db = 0;    // 10 log10(sum a^2 / sum (a - b)^2); infinite if they are equal
  double cosine = 1;     // sum ab / sqrt(sum a^2 * sum b^2); 1 if both are zero, 0 if one is
  double max_error = 0;  // max |a - b|
  double mean_error = 0;
  double error = 0;  // max |a - b| / max |a|
  // Integers at either end of their type, of the value's quantized form, that do not stand for zero;
  // absent if it has none.
  std::optional<double> saturation;
};

// Accuracy of the classes: the last axis of the first output.
struct Accuracy {
  int64_t rows = 0;
  double agreement = 0;  // rows in which both give the same class
  // With labels.
  std::optional<double> reference_top1, other_top1, reference_top5, other_top5;
};

struct CompareReport {
  int64_t samples = 0;
  std::vector<ValueComparison> outputs;
  std::vector<ValueComparison> layers;  // values of both, in order of execution
  // Where layers were left out, how many there were; 0: all are there.
  int64_t all_layers = 0;
  // The first of `layers`, else of `outputs`, whose `error` is above the tolerance, or NaN; empty: none is.
  std::string first_divergence;
  double tolerance = 0;
  // Values inside that only one of the two has under that name and type.
  std::vector<std::string> reference_only, other_only;
  std::optional<Accuracy> accuracy;  // absent where the first output has no axis of classes
};

struct CompareOptions {
  bool layers = false;               // both libraries are tap builds
  std::vector<int64_t> labels = {};  // a class for each row of the first output; empty: none
  int threads = 1;
  // Relative to the largest value, for `first_divergence`; absent: 1e-3, or 0.1 where the other's layers
  // are quantized, all of which are noisier than that.
  std::optional<double> tolerance = std::nullopt;
};

// Leaves the `count` layers of the largest `error`, the largest first; NaN is larger than any.
void KeepWorst(int64_t count, CompareReport& report);

// Runs both on every sample. INVALID_ARGUMENT when they have other inputs or outputs, or there are
// not as many labels as rows; a sample that does not run is named.
absl::StatusOr<CompareReport> Compare(const std::filesystem::path& reference,
                                      const std::filesystem::path& other, const Samples& samples,
                                      const CompareOptions& options,
                                      const StepContext& context = {});

// The same against what `expected` has: outputs for each sample, as OpenSamples reads them.
absl::StatusOr<CompareReport> CompareWithFiles(const Samples& expected,
                                               const std::filesystem::path& other,
                                               const Samples& samples,
                                               const CompareOptions& options,
                                               const StepContext& context = {});

std::string ToTable(const CompareReport& report);
std::string ToJson(const CompareReport& report);

}  // namespace quench::analyser
