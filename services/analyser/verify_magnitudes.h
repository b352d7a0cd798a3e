// Inputs that lead a model's values to where their type ends.
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
// promise to keep out of f16 (squares, powers, exponentials and their sums) limit nothing.
std::vector<MagnitudeLimits> LimitsOf(const Graph& model, const Graph& rewritten);

// Inputs times a power of two, the least with which a value comes near the limit, while all stay
// below it and the model finite.
struct ScaledInputs {
  std::vector<Tensor> inputs, expected;  // what the model makes of them
  int exponent = 0;
  std::string value;  // that comes nearest
  double magnitude = 0, limit = 0;
};

class MagnitudeCheck {
 public:
  // All must outlive this. The model is evaluated by the interpreter.
  MagnitudeCheck(const Graph& model, const MagnitudeLimits& limits, const VerifyOptions& options)
      : model_(model), limits_(limits), options_(options) {}

  // From these inputs. FAILED_PRECONDITION, with the reason, where there is nothing to scale.
  absl::StatusOr<ScaledInputs> Scale(const std::vector<Tensor>& inputs,
                                     const StepContext& context) const;
  // The library beside the model: no farther off than the tolerance, or than rounding of the inputs
  // to f16 moves the model, several times over; and finite where the model is.
  absl::Status Compare(const ScaledInputs& sample, Artifact& artifact,
                       const std::map<std::string, ValueError>& tolerances, MagnitudeReport& report,
                       const StepContext& context) const;
  // The first value of the library's twin with taps that is not finite where the model's is.
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
