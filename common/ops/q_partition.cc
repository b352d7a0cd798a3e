#include "common/ops/group_common.h"
#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& QPartitionOp() {
  static const OpDef op = {
      .name = "q.partition",
      .summary = "a part for another backend: means what its body means",
      .kind = OpKind::kControl,
      .min_inputs = 0,
      .max_inputs = -1,
      .max_outputs = -1,
      .attributes = {{"body", AttributeSpec::kGraph, true},
                     {"backend", AttributeSpec::kString, true}},
      .infer = InferGroup,
      .macs = GroupMacs,
  };
  return op;
}

}  // namespace quench::ops
