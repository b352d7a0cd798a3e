// From a node to loops: pointwise and view operators are lowered here, nests by their operator.
#include <algorithm>

#include "common/base/status.h"
#include "common/ops/helpers.h"
#include "common/ops/op.h"
#include "common/ops/pointwise.h"
#include "common/ops/quantize_shape.h"

namespace quench::ops {
namespace {

// Element types that loops load and store.
constexpr DataTypes kLoopTypes = kNumericTypes | kBoolType | kFloat8Types;

absl::Status CheckLowerable(const OpContext& op) {
  auto check = [&](const Type& type, const std::string& what) -> absl::Status {
    if (type.kind != ValueKind::kTensor || !type.ranked) {
      return op.UnsupportedError(what + " has a rank that only a run can tell");
    }
    if (!Contains(kLoopTypes, type.dtype)) {
      return op.UnsupportedError(
          fmt::format("{} is {}, loops have no such element", what, DataTypeName(type.dtype)));
    }
    return absl::OkStatus();
  };
  for (int i = 0; i < op.num_inputs(); ++i) {
    if (op.has_input(i)) QUENCH_RETURN_IF_ERROR(check(op.input(i), fmt::format("input {}", i)));
  }
  for (int i = 0; i < op.num_outputs(); ++i) {
    if (op.has_output(i)) QUENCH_RETURN_IF_ERROR(check(op.output(i), fmt::format("output {}", i)));
  }
  return absl::OkStatus();
}

// The element an operator gives, in the compute type of output 0.
absl::StatusOr<E> Element(const OpDef& def, const OpContext& op, loops::Builder& builder,
                          std::span<const E> operands) {
  QUENCH_ASSIGN_OR_RETURN(const E value, def.scalar(op, builder, operands));
  const DataType type = loops::ComputeType(op.output(0).dtype);
  return value.type() == type ? value : Cast(value, type);
}

absl::Status LowerPointwise(const OpDef& def, LowerContext& op) {
  std::vector<BroadcastLoad> loads;
  for (int i = 0; i < op.num_inputs(); ++i) {
    loads.push_back(op.has_input(i) ? BroadcastLoad(op, i, OperandAxes(op, i)) : BroadcastLoad());
  }
  absl::Status status;
  op.b().ParallelForAll(op.Extents(op.output(0).dims), [&](std::span<const E> index) {
    std::vector<E> operands;
    for (const BroadcastLoad& load : loads) operands.push_back(load.valid() ? load.At(index) : E());
    absl::StatusOr<E> value = Element(def, op, op.b(), operands);
    status = value.status();
    if (status.ok()) op.b().Store(op.out(0), index, *value);
  });
  return status;
}

// Output is the input's elements in row-major order: equal leading and trailing dims keep their
// index, the dims between are renumbered.
absl::Status LowerView(LowerContext& op) {
  const std::vector<Dim>& from = op.input(0).dims;
  const std::vector<Dim>& to = op.output(0).dims;
  const size_t shorter = std::min(from.size(), to.size());
  size_t head = 0;
  while (head < shorter && from[head] == to[head]) ++head;
  size_t tail = 0;
  while (tail < shorter - head && from[from.size() - 1 - tail] == to[to.size() - 1 - tail]) ++tail;

  loops::Builder& b = op.b();
  const std::vector<E> in_dims = op.Extents(from);
  const std::vector<E> out_dims = op.Extents(to);
  b.ParallelForAll(out_dims, [&](std::span<const E> index) {
    std::vector<E> source(from.size());
    for (size_t i = 0; i < head; ++i) source[i] = index[i];
    for (size_t i = 0; i < tail; ++i) source[from.size() - 1 - i] = index[to.size() - 1 - i];
    E flat = b.I(0);
    for (size_t i = head; i < to.size() - tail; ++i) {
      if (!to[i].is(1)) flat = i == head ? index[i] : flat * out_dims[i] + index[i];
    }
    for (size_t i = from.size() - tail; i-- > head;) {
      if (from[i].is(1)) {
        source[i] = b.I(0);
        continue;
      }
      source[i] = i == head ? flat : flat % in_dims[i];
      if (i > head) flat = flat / in_dims[i];
    }
    b.Store(op.out(0), index, op.in(0).At(source));
  });
  return absl::OkStatus();
}

// Whether the node itself computes a size of one of its outputs.
bool HasRuntimeSizes(const OpContext& op) {
  bool depends = false;
  for (int i = 0; i < op.num_outputs(); ++i) {
    if (!op.has_output(i)) continue;
    for (const Dim dim : op.output(i).dims) depends = depends || op.symbols().DependsOnRuntime(dim);
  }
  bool own = false;
  for (int id = 0; depends && id < op.symbols().size(); ++id) {
    const auto* size = std::get_if<RuntimeSize>(&op.symbols().at(id).definition);
    own = own || (size != nullptr && size->node == op.node().name);
  }
  return own;
}

}  // namespace

std::vector<int> OperandAxes(const OpContext& op, int operand) {
  const OpDef* def = FindOp(op.node().op);
  if (def != nullptr && def->operand_axes != nullptr) return def->operand_axes(op, operand);
  const int rank = op.input(operand).rank();
  std::vector<int> axes;
  for (int i = 0; i < rank; ++i) axes.push_back(op.output(0).rank() - rank + i);
  return axes;
}

absl::StatusOr<loops::Function> LowerNode(const OpContext& op) {
  const OpDef* def = FindOp(op.node().op);
  if (def == nullptr || (def->lower == nullptr && def->kind == OpKind::kControl)) {
    return op.UnsupportedError("control operators have no loops of their own");
  }
  QUENCH_RETURN_IF_ERROR(CheckLowerable(op));
  loops::Builder builder(op.node().op);
  LowerContext context(op, builder);
  if (IsPointwise(op.node())) {
    QUENCH_RETURN_IF_ERROR(LowerPointwise(*def, context));
  } else if (def->kind == OpKind::kView) {
    QUENCH_RETURN_IF_ERROR(LowerView(context));
  } else {
    QUENCH_RETURN_IF_ERROR(def->lower(context));
  }
  return builder.Finish();
}

absl::StatusOr<std::optional<loops::Function>> LowerSizes(const OpContext& op) {
  const OpDef* def = FindOp(op.node().op);
  if (def == nullptr || def->lower_sizes == nullptr) return std::nullopt;
  if (!HasRuntimeSizes(op)) return std::nullopt;
  QUENCH_RETURN_IF_ERROR(CheckLowerable(op));
  loops::Builder builder(op.node().op + ".sizes");
  LowerContext context(op, builder, /*sizes=*/true);
  QUENCH_RETURN_IF_ERROR(def->lower_sizes(context));
  return builder.Finish();
}

absl::StatusOr<loops::ScalarFunction> ScalarOf(const OpContext& op) {
  const OpDef* def = FindOp(op.node().op);
  if (!IsPointwise(op.node())) {
    return op.UnsupportedError("the node is not pointwise");
  }
  QUENCH_RETURN_IF_ERROR(CheckLowerable(op));
  loops::Builder builder(op.node().op);
  std::vector<E> operands;
  std::vector<DataType> types;
  for (int i = 0; i < op.num_inputs(); ++i) {
    if (!op.has_input(i)) {
      operands.emplace_back();
      continue;
    }
    const DataType type = loops::ComputeType(op.input(i).dtype);
    operands.push_back(builder.Param(static_cast<int>(types.size()), type));
    types.push_back(type);
  }
  QUENCH_ASSIGN_OR_RETURN(const E value, Element(*def, op, builder, operands));
  return builder.FinishScalar(value, std::move(types));
}

}  // namespace quench::ops
