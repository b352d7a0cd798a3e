// Weights as integers while activations stay in float: for models that wait for memory, as language
// models do. Applies to matrix products, recurrent layers and embedding tables, also in bodies of
// If, Loop and Scan.
#pragma once

#include <string>

#include "services/quantizer/options.h"
#include "services/quantizer/report.h"

namespace quench::quantizer {

// Reason for a Conv, ConvTranspose, MatMul, Gemm, Gather or recurrent layer; empty if its weights become integers.
std::string WhyWeightsStayFloat(const Graph& graph, const Node& node);

// `graph` is at stage `canonical`. DequantizeLinear stands behind each constant that became
// integers, in the same graph or body; codegen reads those where it multiplies (q.weight_only_matmul).
absl::StatusOr<QuantizedModule> QuantizeWeightsOnly(Graph graph, const QuantizeOptions& options,
                                                    const StepContext& context);

}  // namespace quench::quantizer
