#include "common/ops/heads.h"

namespace quench::ops {

absl::StatusOr<HeadDims> HeadDimsOf(const OpContext& ctx, int i, int64_t heads) {
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, i, 3, 4));
  const std::vector<Dim>& dims = ctx.input(i).dims;
  if (dims.size() == 4) {
    if (heads > 0)
      QUENCH_RETURN_IF_ERROR(
          RequireEqual(ctx, dims[1], heads, fmt::format("heads of input {} and the attribute", i)));
    return HeadDims{dims[0], dims[1], dims[2], dims[3]};
  }
  if (heads < 1)
    return ctx.Error(fmt::format("input {} has rank 3, which needs the number of heads", i));
  if (dims[2].is_static() && dims[2].value() % heads != 0) {
    return ctx.Error(fmt::format("{} heads do not divide the hidden size {} of input {}", heads,
                                 dims[2].value(), i));
  }
  return HeadDims{dims[0], heads, dims[1], ctx.symbols().FloorDiv(dims[2], heads)};
}

std::vector<E> HeadIndex(int rank, E n, E h, E s, E k, E size) {
  return rank == 4 ? std::vector<E>{n, h, s, k} : std::vector<E>{n, s, h * size + k};
}

}  // namespace quench::ops
