// The cost of a change in accuracy: two builds on the same samples, by output and by layer.
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
  // Share of the value's quantized integers that are at either end of their type and do not stand for
  // zero; absent if the value is not quantized.
  std::optional<double> saturation;
};

// Accuracy of a classifier, whose classes are the last axis of the first output.
struct Accuracy {
  int64_t rows = 0;
  double agreement = 0;  // share of rows in which both give the same class
  // Present if there are labels.
  std::optional<double> reference_top1, other_top1, reference_top5, other_top5;
};

struct CompareReport {
  int64_t samples = 0;
  std::vector<ValueComparison> outputs;
  std::vector<ValueComparison> layers;  // values of both, in order of execution
  // The number of layers before KeepWorst left some out; 0: `layers` has all.
  int64_t all_layers = 0;
  // The first of `layers`, else of `outputs`, whose `error` is NaN or above the tolerance; empty if there is none.
  std::string first_divergence;
  double tolerance = 0;
  // Inner values that only one of the two has under that name and type.
  std::vector<std::string> reference_only, other_only;
  std::optional<Accuracy> accuracy;  // absent if the first output has no axis of classes
};

struct CompareOptions {
  bool layers = false;               // both libraries are tap builds
  std::vector<int64_t> labels = {};  // a class for each row of the first output; empty: none
  int threads = 1;
  // Where the other library runs (OpenOptions::device), and the reference, too, if it has code for it.
  std::string device = {};
  // For `first_divergence`, relative to the largest value; absent: 1e-3, or 0.1 if the other build's
  // layers are quantized, because all of these differ by more than 1e-3.
  std::optional<double> tolerance = std::nullopt;
};

// Keeps the `count` layers with the largest `error`, largest first; NaN counts as the largest.
void KeepWorst(int64_t count, CompareReport& report);

// Runs both on every sample. INVALID_ARGUMENT if their inputs or outputs differ, or if the number of
// labels is not that of rows; the error of a sample that fails names it.
absl::StatusOr<CompareReport> Compare(const std::filesystem::path& reference,
                                      const std::filesystem::path& other, const Samples& samples,
                                      const CompareOptions& options,
                                      const StepContext& context = {});

// The same, with the outputs in `expected`, for each sample, as the reference; OpenSamples reads them.
absl::StatusOr<CompareReport> CompareWithFiles(const Samples& expected,
                                               const std::filesystem::path& other,
                                               const Samples& samples,
                                               const CompareOptions& options,
                                               const StepContext& context = {});

std::string ToTable(const CompareReport& report);
std::string ToJson(const CompareReport& report);

}  // namespace quench::analyser
