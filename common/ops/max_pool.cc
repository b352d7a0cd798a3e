#include "common/ops/pool_shape.h"

namespace quench::ops {
namespace {

absl::Status InferMaxPool(InferContext& c) {
  const int64_t order = c.node().Int("storage_order", 0);
  if (order != 0 && order != 1) {
    return c.Error(fmt::format("storage_order is {}, it takes 0 or 1", order));
  }
  QUENCH_RETURN_IF_ERROR(InferPool(c, kFloatTypes | TypeSet({DataType::kI8, DataType::kU8})));
  c.SetOutput(1, DataType::kI64, c.outputs()[0].dims);
  return absl::OkStatus();
}

// Position of an input element in the whole tensor; storage_order 1 counts the spatial dims
// column-major.
E Position(LowerContext& c, std::span<const E> at) {
  const std::vector<E> dims = c.Extents(c.input(0).dims);
  E position = at[0] * dims[1] + at[1];
  const bool column_major = c.node().Int("storage_order", 0) == 1;
  for (size_t i = 2; i < at.size(); ++i) {
    const size_t d = column_major ? at.size() + 1 - i : i;
    position = position * dims[d] + at[d];
  }
  return position;
}

// Serial loops over the terms, outermost dim first.
void ForEachTerm(loops::Builder& b, std::span<const E> extents, std::vector<E>& term,
                 const std::function<void()>& body) {
  if (term.size() == extents.size()) return body();
  b.For(extents[term.size()], [&](E i) {
    term.push_back(i);
    ForEachTerm(b, extents, term, body);
    term.pop_back();
  });
}

// The first of equal elements wins.
void StoreWithIndex(LowerContext& c, const PoolWindow& window) {
  loops::Builder& b = c.b();
  const DataType type = loops::ComputeType(c.input(0).dtype);
  const auto best = b.Local(LowestOf(b, type), "best");
  const auto where = b.Local(b.I(-1), "where");
  std::vector<E> term;
  ForEachTerm(b, window.extents, term, [&] {
    const std::vector<E> at = window.at(term);
    const E value = b.Let(c.in(0).At(at), "x");
    b.If(value > best.Get() || where.Get() < b.I(0), [&] {
      best.Set(value);
      where.Set(Position(c, at));
    });
  });
  if (c.has_output(0)) b.Store(c.out(0), window.index, best.Get());
  b.Store(c.out(1), window.index, where.Get());
}

absl::Status LowerMaxPool(LowerContext& c) {
  LowerPool(c, [](LowerContext& op, const PoolWindow& window) {
    if (op.has_output(1)) return StoreWithIndex(op, window);
    const DataType type = loops::ComputeType(op.input(0).dtype);
    op.b().Store(
        op.out(0), window.index,
        op.b().ReduceAll(BinaryOp::kMax, LowestOf(op.b(), type), window.extents,
                         [&](std::span<const E> term) { return op.in(0).At(window.at(term)); }));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& MaxPoolOp() {
  static const OpDef op = {
      .name = "MaxPool",
      .summary = "greatest element of each window, and where it was",
      .max_outputs = 2,
      .attributes = WindowAttributes(/*pooling=*/true, {{"ceil_mode", AttributeSpec::kInt},
                                                        {"storage_order", AttributeSpec::kInt}}),
      .quant = QuantRole::kPassThrough,
      .work = WorkKind::kPooling,
      .infer = InferMaxPool,
      .lower = LowerMaxPool,
  };
  return op;
}

}  // namespace quench::ops
