#include <algorithm>

#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

void InferContents(InferContext& c) {
  const auto condition = c.ints(0);
  const auto then = c.elements(1);
  const auto otherwise = c.elements(2);
  if (!condition || !then || !otherwise || c.outputs()[0].rank() > 1) return;
  const size_t sizes[] = {condition->size(), then->size(), otherwise->size()};
  const bool empty = std::ranges::find(sizes, size_t{0}) != std::end(sizes);  // 1 becomes 0, too
  const size_t count = empty ? 0 : *std::ranges::max_element(sizes);
  auto at = [](const auto& values, size_t i) { return values.size() == 1 ? values[0] : values[i]; };
  std::vector<Dim> result;
  for (size_t i = 0; i < count; ++i) {
    result.push_back(at(*condition, i) != 0 ? at(*then, i) : at(*otherwise, i));
  }
  c.SetElements(0, std::move(result));
}

absl::Status InferWhere(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireType(c, 0, kBoolType));
  QUENCH_RETURN_IF_ERROR(RequireType(c, 1, kAllTypes));
  QUENCH_RETURN_IF_ERROR(RequireSameType(c, {1, 2}));
  QUENCH_ASSIGN_OR_RETURN(std::vector<Dim> dims, BroadcastInputs(c));
  c.SetOutput(0, c.input(1).dtype, std::move(dims));
  InferContents(c);
  return absl::OkStatus();
}

}  // namespace

const OpDef& WhereOp() {
  static const OpDef op = {
      .name = "Where",
      .summary = "x where the condition holds, else y; all broadcast",
      .kind = OpKind::kPointwise,
      .min_inputs = 3,
      .max_inputs = 3,
      .infer = InferWhere,
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Select(x[0], x[1], x[2]);
      },
  };
  return op;
}

}  // namespace quench::ops
