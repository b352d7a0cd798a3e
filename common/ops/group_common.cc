#include "common/ops/group_common.h"

#include "common/ops/helpers.h"

namespace quench::ops {

absl::Status InferGroup(InferContext& c) {
  const GraphPtr body = c.node().Body("body");
  if (static_cast<int>(body->outputs.size()) != c.num_outputs()) {
    return c.Error(
        fmt::format("has {} outputs, its body {}", c.num_outputs(), body->outputs.size()));
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    const Value& value = body->value(body->outputs[static_cast<size_t>(i)]);
    c.SetOutput(i, value.type);
    if (value.elements) c.SetElements(i, *value.elements);
  }
  return absl::OkStatus();
}

Dim GroupMacs(const OpContext& c) {
  const GraphPtr body = c.node().Body("body");
  Dim sum = 0;
  for (const Node& node : body->nodes) {
    const OpDef* op = FindOp(node.op);
    if (op == nullptr || op->macs == nullptr) continue;
    sum = c.symbols().Add(sum, op->macs(ContextOf(*body, node)));
  }
  return sum;
}

}  // namespace quench::ops
