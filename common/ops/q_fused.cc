#include "common/ops/group_common.h"
#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& QFusedOp() {
  static const OpDef op = {
      .name = "q.fused",
      .summary = "a fusion group: means what its body means",
      .kind = OpKind::kControl,
      .min_inputs = 0,
      .max_inputs = -1,
      .max_outputs = -1,
      .attributes = {{"body", AttributeSpec::kGraph, true}},
      .infer = InferGroup,
      .macs = GroupMacs,
  };
  return op;
}

}  // namespace quench::ops
