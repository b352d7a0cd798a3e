// Transposed convolutions whose output sizes are an input, as in TensorFlow and TensorFlow Lite.
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
  ValueId sizes = kNone;  // of the result: integers, for all axes or the spatial ones alone
  int first = 1;          // the first spatial axis in `sizes`; 0 if it has no others
  std::vector<int64_t> strides;
  std::vector<int64_t> dilations;
  // Elements cut off at the beginning of each spatial axis; absent: as many as "SAME" cuts off, which
  // depends on the sizes.
  std::optional<std::vector<int64_t>> begins;
};

// The result, with exactly the spatial sizes in `sizes`: elements that the kernel does not reach are the
// bias alone. For sizes that follow from the model's shapes, emits one ConvTranspose; for sizes known
// only at run time, the largest one, from which the result is cut out.
absl::StatusOr<ValueId> EmitTransposedConvolution(Converter& c,
                                                  const SizedTransposedConvolution& op);

}  // namespace quench::importer
