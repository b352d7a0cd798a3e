#include "common/ops/quantize_shape.h"

namespace quench::ops {
namespace {

int64_t BlockSize(const Node& node) { return node.Int("block_size", 0); }

absl::Status RequireBlocks(const InferContext& op, int i) {
  const std::vector<Dim>& x = op.input(0).dims;
  const int rank = op.input(0).rank();
  QUENCH_RETURN_IF_ERROR(RequireRank(op, i, rank, rank));
  QUENCH_ASSIGN_OR_RETURN(const int axis, op.Axis(op.node().Int("axis", 1), rank));
  for (int d = 0; d < rank; ++d) {
    const Dim dim = x[static_cast<size_t>(d)];
    const Dim wanted = d == axis ? op.symbols().CeilDiv(dim, BlockSize(op.node())) : dim;
    QUENCH_RETURN_IF_ERROR(
        RequireEqual(op, op.input(i).dims[static_cast<size_t>(d)], wanted,
                     fmt::format("dim {} of input {} and the blocks of x", d, i)));
  }
  return absl::OkStatus();
}

absl::Status RequirePlain(const InferContext& op, int i) {
  QUENCH_RETURN_IF_ERROR(RequireRank(op, i, 0, 1));
  if (op.input(i).rank() == 0) return absl::OkStatus();
  QUENCH_RETURN_IF_ERROR(RequireRank(op, 0, 1));
  if (op.input(i).dims[0].is(1)) return absl::OkStatus();
  QUENCH_ASSIGN_OR_RETURN(const int axis, op.Axis(op.node().Int("axis", 1), op.input(0).rank()));
  return RequireEqual(op, op.input(i).dims[0], op.input(0).dims[static_cast<size_t>(axis)],
                      fmt::format("size of input {} and dim {} of x", i, axis));
}

}  // namespace

bool IsBlocked(const Node& node) { return BlockSize(node) > 0; }

absl::Status RequireScales(const InferContext& op) {
  if (BlockSize(op.node()) < 0) {
    return op.Error(fmt::format("block_size is {}, it must not be negative", BlockSize(op.node())));
  }
  QUENCH_RETURN_IF_ERROR(RequireType(op, 1, kScaleTypes));
  for (const int i : {1, 2}) {
    if (!op.has_input(i)) continue;
    QUENCH_RETURN_IF_ERROR(IsBlocked(op.node()) ? RequireBlocks(op, i) : RequirePlain(op, i));
  }
  return absl::OkStatus();
}

std::vector<int> ScaleAxes(const OpContext& op, int operand) {
  const int rank = op.input(0).rank();
  std::vector<int> axes;
  if (operand == 0) {
    for (int i = 0; i < rank; ++i) axes.push_back(i);
  } else if (op.input(operand).rank() == 1) {
    // A single element fits any axis, also where `axis` itself is out of range.
    const bool single = op.input(operand).dims[0].is(1);
    axes.push_back(single ? 0 : NormalAxis(op.node().Int("axis", 1), rank));
  }
  return axes;
}

absl::Status LowerBlocked(LowerContext& op,
                          const std::function<absl::StatusOr<E>(std::span<const E>)>& element) {
  loops::Builder& b = op.b();
  const auto axis = static_cast<size_t>(NormalAxis(op.node().Int("axis", 1), op.input(0).rank()));
  absl::Status status;
  b.ParallelForAll(op.Extents(op.output(0).dims), [&](std::span<const E> index) {
    std::vector<E> block(index.begin(), index.end());
    block[axis] = block[axis] / b.I(BlockSize(op.node()));
    const E zero = op.has_input(2) ? op.in(2).At(block) : E();
    const absl::StatusOr<E> value =
        element(std::vector<E>{op.in(0).At(index), op.in(1).At(block), zero});
    status = value.status();
    if (status.ok()) b.Store(op.out(0), index, *value);
  });
  return status;
}

absl::StatusOr<DataType> OutputType(const OpContext& op) {
  const int64_t type = op.node().Int("output_dtype", 0);
  if (type < 0 || type >= kDataTypeCount) {
    return op.Error(fmt::format("output_dtype is {}, not an element type", type));
  }
  return static_cast<DataType>(type);
}

}  // namespace quench::ops
