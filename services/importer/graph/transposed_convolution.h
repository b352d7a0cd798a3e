// Transposed convolutions whose sizes are an input, as TensorFlow and TensorFlow Lite have them.
#pragma once

#include <optional>
#include <vector>

#include "services/importer/graph/converter.h"

namespace quench::importer {

// Values are in ONNX's order: images [batch, channels, spatial..], weights [in, out, spatial..].
struct SizedTransposedConvolution {
  ValueId images = kNone;
  ValueId weights = kNone;
  ValueId bias = kNone;   // [out], or none
  ValueId sizes = kNone;  // of the result: integers, of all its axes or of the spatial ones alone
  int first = 1;          // of `sizes` that is a spatial axis'; 0 if there are no others
  std::vector<int64_t> strides;
  std::vector<int64_t> dilations;
  // Elements cut off before each spatial axis; by default as much as "SAME" cuts off, which depends
  // on the sizes.
  std::optional<std::vector<int64_t>> begins;
};

// The result, of exactly the spatial sizes that `sizes` says: what the kernel does not reach is the
// bias alone. Sizes that follow from the shapes of the model make one ConvTranspose; those that only a
// run knows cut them out of the largest one.
absl::StatusOr<ValueId> EmitTransposedConvolution(Converter& c,
                                                  const SizedTransposedConvolution& op);

}  // namespace quench::importer
