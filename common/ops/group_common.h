// Code shared by q.fused and q.partition: they mean what their body means.
#pragma once

#include "common/ops/op.h"

namespace quench::ops {

// The body has been inferred from the node's inputs (bodies.h).
absl::Status InferGroup(InferContext& c);
// The sum over the body's nodes.
Dim GroupMacs(const OpContext& c);

}  // namespace quench::ops
