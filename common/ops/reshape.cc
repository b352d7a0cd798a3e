#include <limits>

#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

// ONNX Reshape: -1 once takes what is left, 0 copies the input's dim unless `allowzero`.
absl::Status Infer(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireType(c, 1, TypeSet({DataType::kI64})));
  QUENCH_RETURN_IF_ERROR(RequireRank(c, 1, 1, 1));
  const std::optional<std::vector<Dim>> shape = c.elements(1);
  if (!shape) return c.UnsupportedError("the shape is known only at run time");
  const std::vector<Dim>& from = c.input(0).dims;
  const bool allow_zero = c.node().Int("allowzero", 0) != 0;
  SymbolTable& symbols = c.symbols();

  std::vector<Dim> dims;
  int open = -1;
  for (size_t i = 0; i < shape->size(); ++i) {
    Dim dim = (*shape)[i];
    if (dim.is(0) && !allow_zero) {
      if (i >= from.size()) {
        return c.Error(fmt::format("shape copies dim {} of an input of rank {}", i, from.size()));
      }
      dim = from[i];
    } else if (dim.is(-1)) {
      if (open >= 0) return c.Error("shape has -1 twice");
      open = static_cast<int>(i);
      dim = 1;
    } else if (dim.is_static() && dim.value() < 0) {
      return c.Error(fmt::format("shape has {}, only -1 is special", dim.value()));
    }
    dims.push_back(dim);
  }

  const Dim have = symbols.Product(from);
  const Dim rest = symbols.Product(dims);
  if (open >= 0) {
    if (rest.is(0)) return c.Error("shape has both 0 and -1, the -1 could be anything");
    if (have.is_static() && rest.is_static() && have.value() % rest.value() != 0) {
      return c.Error(fmt::format("{} elements do not divide by {}", have.value(), rest.value()));
    }
    dims[static_cast<size_t>(open)] = symbols.FloorDiv(have, rest);
  } else if (have.is_static() && rest.is_static() && have != rest) {
    return c.Error(fmt::format("shape {} has {} elements, the input has {}", ToString(c, dims),
                               rest.value(), have.value()));
  }
  c.SetOutput(0, c.input(0).dtype, std::move(dims));
  if (const auto elements = c.elements(0); elements && shape->size() <= 1)
    c.SetElements(0, *elements);
  return absl::OkStatus();
}

}  // namespace

const OpDef& ReshapeOp() {
  static const OpDef op = {
      .name = "Reshape",
      .summary = "the same elements with other dims",
      .kind = OpKind::kView,
      .min_inputs = 2,
      .max_inputs = 2,
      .attributes = {{"allowzero", AttributeSpec::kInt}},
      .quant = QuantRole::kPassThrough,
      .infer = Infer,
  };
  return op;
}

}  // namespace quench::ops
