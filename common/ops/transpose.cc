#include <numeric>

#include "common/base/status.h"
#include "common/ops/catalogue.h"
#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::StatusOr<std::vector<int>> Permutation(const OpContext& ctx) {
  const int rank = ctx.input(0).rank();
  if (ctx.node().Find("perm") == nullptr) {
    std::vector<int> reversed(static_cast<size_t>(rank));
    std::iota(reversed.rbegin(), reversed.rend(), 0);
    return reversed;
  }
  const std::vector<int64_t> perm = ctx.node().Ints("perm");
  if (static_cast<int>(perm.size()) != rank) {
    return ctx.Error(fmt::format("perm has {} entries, the rank is {}", perm.size(), rank));
  }
  return NormalAxes(ctx, perm, rank);
}

absl::Status InferTranspose(InferContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int> perm, Permutation(ctx));
  std::vector<Dim> dims;
  for (int axis : perm) dims.push_back(ctx.input(0).dims[static_cast<size_t>(axis)]);
  ctx.SetOutput(0, ctx.input(0).dtype, std::move(dims));
  if (const auto elements = ctx.elements(0))
    ctx.SetElements(0, *elements);  // rank <= 1: nothing moves
  return absl::OkStatus();
}

absl::Status LowerTranspose(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int> perm, Permutation(ctx));
  const B y = ctx.out(0);
  ctx.b().ParallelForAll(DimsOf(y), [&](std::span<const E> i) {
    std::vector<E> source(i.size());
    for (size_t axis = 0; axis < i.size(); ++axis)
      source[static_cast<size_t>(perm[axis])] = i[axis];
    ctx.b().Store(y, i, ctx.in(0).At(source));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& TransposeOp() {
  static const OpDef op = {.name = "Transpose",
                           .summary = "permutes the axes",
                           .attributes = {{"perm", AttributeSpec::kInts}},
                           .quant = QuantRole::kPassThrough,
                           .infer = InferTranspose,
                           .lower = LowerTranspose};
  return op;
}

}  // namespace quench::ops
