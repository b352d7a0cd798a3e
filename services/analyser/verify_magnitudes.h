// Inputs that bring a model's values near the ends of their types.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "services/analyser/verify_parts.h"

namespace quench::analyser {

// Limits of the values of one type: f16 up to 65504, integers up to what their scales imply.
struct MagnitudeLimits {
  DataType type = DataType::kUndefined;
  std::map<std::string, double> largest;  // |x|, by the value's name in the model
};

// Limits of the values that the library holds in f16, and of those that the model quantizes. Values that the passes
// promise to keep out of f16 (squares, powers, exponentials and their sums) have no limit.
std::vector<MagnitudeLimits> LimitsOf(const Graph& model, const Graph& rewritten);

// Inputs times the smallest power of two that brings a value near its limit, while all values stay
// below their limits and the model stays finite.
struct ScaledInputs {
  std::vector<Tensor> inputs, expected;  // expected: the model's outputs for `inputs`
  int exponent = 0;
  std::string value;  // the one nearest to its limit
  double magnitude = 0, limit = 0;
};

class MagnitudeCheck {
 public:
  // All must outlive this object. The interpreter evaluates the model.
  MagnitudeCheck(const Graph& model, const MagnitudeLimits& limits, const VerifyOptions& options)
      : model_(model), limits_(limits), options_(options) {}

  // Scales `inputs`. FAILED_PRECONDITION, with the reason, if there is nothing to scale.
  absl::StatusOr<ScaledInputs> Scale(const std::vector<Tensor>& inputs,
                                     const StepContext& context) const;
  // Compares the library with the model: its error is within the tolerance, or within several times
  // the effect of rounding the inputs to f16 on the model; and it is finite wherever the model is.
  absl::Status Compare(const ScaledInputs& sample, Artifact& artifact,
                       const std::map<std::string, ValueError>& tolerances, MagnitudeReport& report,
                       const StepContext& context) const;
  // The first value of the library's tap build that is not finite although the model's is.
  absl::StatusOr<std::string> FirstNotFinite(const ScaledInputs& sample, Artifact& twin,
                                             const StepContext& context) const;

 private:
  struct Reach;
  absl::StatusOr<Reach> Measure(const std::vector<Tensor>& inputs,
                                const StepContext& context) const;

  const Graph& model_;
  const MagnitudeLimits& limits_;
  const VerifyOptions& options_;
};

}  // namespace quench::analyser
