// Whether a node computes each element by itself.
#pragma once

#include "common/ir/graph.h"

namespace quench::ops {

// Whether ScalarOf and OperandAxes describe the node: its operator is kPointwise, and it is not a
// quantisation in blocks, which reads its scales at indices of their own.
bool IsPointwise(const Node& node);

}  // namespace quench::ops
