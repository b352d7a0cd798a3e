// A module whose layers have types of their own, ready for codegen.
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <span>

#include "services/cli/precision_choice.h"
#include "services/cli/quantization.h"

namespace quench::cli {

struct MixedModel {
  Graph source;  // what a library of it should compute: in f32, and quantized where layers are int8
  Graph graph;
  passes::PassOptions passes;  // that codegen is to know of: `store_as` is the narrowest type
  std::optional<Quantization> quantization;
};

// The parts that all modules of one model share.
struct MixedSource {
  const Graph& module;                      // f32, after its passes
  const quantizer::Statistics* statistics;  // null: no integers
  quantizer::QuantizeOptions how;           // of integers
  passes::PassOptions passes;               // with the magnitudes that samples had
};

// Every layer and every other operator in `type`, as far as it can be.
absl::StatusOr<MixedModel> UniformModel(const MixedSource& from, Precision type,
                                        const StepContext& context);
absl::StatusOr<MixedModel> MixModel(const MixedSource& from, std::span<const PrecisionLayer> layers,
                                    const Assignment& types, const StepContext& context);

}  // namespace quench::cli
