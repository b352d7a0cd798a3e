// Sparse constants of TensorFlow Lite.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <span>

#include "common/ir/tensor.h"
#include "services/importer/graph/weights.h"
#include "services/importer/tflite/schema_generated.h"

namespace quench::importer {

// The dense form of a sparse tensor, whose stored elements are in `values`: a tree of levels, one for
// each dim in the order of traversal, two for blocked dims, each dense or compressed (segments and
// indices, as in CSR). At most 256 MiB. INVALID_ARGUMENT for inconsistent levels.
absl::StatusOr<Tensor> MakeDense(const tflite::SparsityParameters& sparsity,
                                 const TensorHeader& header, std::span<const std::byte> values);

}  // namespace quench::importer
