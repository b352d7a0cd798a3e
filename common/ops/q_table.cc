#include "common/base/status.h"
#include "common/ops/helpers.h"
#include "common/ops/integer.h"

namespace quench::ops {
namespace {

constexpr int64_t kEntries = 256;

absl::Status InferQTable(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireByte(c, {0, 1}));
  QUENCH_RETURN_IF_ERROR(RequireRank(c, 1, 1, 1));
  if (!c.input(1).dims[0].is(kEntries)) {
    return c.Error(fmt::format("the table has shape {}, a byte needs {} entries",
                               ToString(c, c.input(1).dims), kEntries));
  }
  c.SetOutput(0, c.input(1).dtype, c.input(0).dims);
  return absl::OkStatus();
}

absl::Status LowerQTable(LowerContext& c) {
  loops::Builder& b = c.b();
  b.ParallelForAll(c.Extents(c.output(0).dims), [&](std::span<const E> index) {
    const E bits = Cast(c.in(0).At(index), DataType::kU8);
    b.Store(c.out(0), index, c.in(1).At({Cast(bits, DataType::kI64)}));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& QTableOp() {
  static const OpDef op = {
      .name = "q.table",
      .summary = "a function of bytes: the entry of a table of 256 at the bits of each element",
      .min_inputs = 2,
      .max_inputs = 2,
      .infer = InferQTable,
      .lower = LowerQTable,
  };
  return op;
}

}  // namespace quench::ops
