// Post-training quantization: a module in, the same module out with QuantizeLinear and
// DequantizeLinear around everything that integers will compute.
#pragma once

#include <absl/status/statusor.h>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "services/quantizer/options.h"
#include "services/quantizer/report.h"
#include "services/quantizer/statistics.h"

namespace quench::quantizer {

// `graph` is at stage `canonical`, after the passes; `statistics` (null: none) are those of this
// very graph. FAILED_PRECONDITION: already quantized, statistics or rounding of another module or other
// options, or some statistics are missing that RangeSource::kStatic needs (all named).
absl::StatusOr<QuantizedModule> Quantize(const Graph& graph, const Statistics* statistics,
                                         const QuantizeOptions& options,
                                         const StepContext& context = {});

}  // namespace quench::quantizer
