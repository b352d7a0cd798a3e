// Code shared by ScatterElements and ScatterND.
#pragma once

#include <optional>

#include "common/ops/nest.h"

namespace quench::ops {

// The attribute `reduction`: nullopt for `none`.
absl::StatusOr<std::optional<BinaryOp>> ScatterReduction(const OpContext& ctx);
// Stores `update` at `at`, or its combination with what is there.
void ScatterStore(Builder& b, B target, std::span<const E> at, std::optional<BinaryOp> reduction,
                  E update);

}  // namespace quench::ops
