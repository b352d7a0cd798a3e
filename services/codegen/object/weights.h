// Fills the weight section: raw constants straight from their mapping, packed ones one at a time.
#pragma once

#include <absl/status/statusor.h>

#include <vector>

#include "common/base/context.h"
#include "services/codegen/object/weight_section.h"
#include "services/codegen/plan/built_program.h"

namespace quench::codegen {

// Appends every entry, in order, and returns the offset of each.
absl::StatusOr<std::vector<uint64_t>> WriteWeights(const WeightTable& table, WeightsWriter& writer,
                                                   const StepContext& context);

// The bytes of a row-major tensor in another layout; padding lanes are 0.
// Elements of whole bytes.
absl::StatusOr<std::vector<std::byte>> Relayout(const Tensor& tensor, const Layout& layout);

}  // namespace quench::codegen
