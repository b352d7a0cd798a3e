// Sizes that a model leaves open, and what something random or counted takes for them.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <span>
#include <string>

#include "common/runner/runner.h"

namespace quench {

// A size for each symbolic dim of the inputs: the one in `given`, and for a batch without one the least. Results depend
// on all others, so that INVALID_ARGUMENT asks for those that are left, with the options to add. A batch is the first
// axis of inputs with others behind it, unless another dim is called so. Names in `given` that no input has are refused.
absl::StatusOr<std::map<std::string, int64_t>> ChooseSizes(
    std::span<const ArtifactTensor> inputs, const std::map<std::string, int64_t>& given);

// Samples that a run takes at once: the first axis of all inputs, which have others behind it, and of all outputs; 0
// where they do not share one. `sizes` has those of symbolic dims.
int64_t BatchOf(std::span<const ArtifactTensor> inputs, std::span<const ArtifactTensor> outputs,
                const std::map<std::string, int64_t>& sizes);

// "batch=1, height=224", or "" where all sizes are fixed.
std::string SizesText(const std::map<std::string, int64_t>& sizes);

}  // namespace quench
