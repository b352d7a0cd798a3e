// The least time of a layer: that of its operations, or that of the bytes it moves.
#pragma once

#include "services/analyser/analyser.h"

namespace quench::analyser {

// INVALID_ARGUMENT unless both are above 0 and finite.
absl::Status CheckCeilings(const Ceilings& ceilings);

// Bytes that a layer of `op` moves. A layer that only gives bytes other dims moves none, and one
// that only moves values (Gather, Slice) reads no more than it writes.
int64_t MovedBytes(const std::string& op, const LayerReport& layer);

// Operations per byte; 0 if no byte is moved.
double Intensity(int64_t flops, int64_t moved_bytes);

// Sets the times and bounds of all layers, and their sum.
void AddPredictions(const Ceilings& ceilings, ModelReport& report);

// A table of the layers by their time, with the ceilings.
std::string RooflineTable(const ModelReport& report);

}  // namespace quench::analyser
