#include "common/ops/pointwise.h"

#include "common/ops/op.h"
#include "common/ops/quantize_shape.h"

namespace quench::ops {

bool IsPointwise(const Node& node) {
  const OpDef* def = FindOp(node.op);
  if (def == nullptr || def->kind != OpKind::kPointwise) return false;
  return def->lower == nullptr || !IsBlocked(node);
}

}  // namespace quench::ops
