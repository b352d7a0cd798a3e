// Stored weights of a node: how its constants become them.
#pragma once

#include <optional>

#include "services/codegen/forms/stored_weights.h"
#include "services/codegen/kernels/epilogue.h"

namespace quench::codegen {

// How a q.weight_only_matmul's weights are stored; nothing for other forms of them. All that it reads
// is constant.
std::optional<StoredWeights> ReadStoredWeights(const KernelRequest& request, const Group& group);

// Appends the packs of scales and, where there are any, zero points; declares them packed.
void AddScales(const KernelRequest& request, const Group& group, const StoredWeights& stored,
               int lanes, int vectors, Candidate& candidate);

}  // namespace quench::codegen
