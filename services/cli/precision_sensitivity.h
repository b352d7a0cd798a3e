// The accuracy that a model loses with one layer in a type and the others in f32.
#pragma once

#include <absl/status/statusor.h>

#include <span>

#include "services/cli/precision_graph.h"
#include "services/quantizer/select.h"

namespace quench::cli {

// A layer is as sensitive as the most sensitive of its products.
Sensitivities SensitivityOfIntegers(std::span<const PrecisionLayer> layers,
                                    const quantizer::Selection& selection);

struct HalvesJob {
  const MixedSource& from;
  std::span<const PrecisionLayer> layers;
  const Assignment& types;
  Precision floats;  // for layers that are integers now: HalfOf
  const Samples& samples;
  const quantizer::SelectOptions& select;
  std::filesystem::path folder;  // that the build lies in a folder of
};
// Layers that have a 16-bit type or would have one instead of integers, and other operators that do, measured on
// a build with switches.
absl::StatusOr<Sensitivities> SensitivityOfHalves(const HalvesJob& job, const StepContext& context);

}  // namespace quench::cli
