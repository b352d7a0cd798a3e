#include <limits>

#include "common/ops/helpers.h"
#include "common/ops/nest.h"

namespace quench::ops {
namespace {

// The shape comes from data: its length gives the rank, a run the sizes.
absl::Status InferRuntime(InferContext& c) {
  QUENCH_ASSIGN_OR_RETURN(const int rank, RankFromLength(c, 1));
  std::vector<Dim> dims;
  for (int i = 0; i < rank; ++i) dims.push_back(c.RuntimeDim(i, std::nullopt));
  c.SetOutput(0, c.input(0).dtype, std::move(dims));
  return absl::OkStatus();
}

// The rules of InferReshape, on numbers.
absl::Status LowerSizesOfReshape(LowerContext& c) {
  loops::Builder& b = c.b();
  const bool allow_zero = c.node().Int("allowzero", 0) != 0;
  const std::vector<E> from = c.Extents(c.input(0).dims);
  const E zero = b.I(0);
  const E one = b.I(1);
  E have = one;
  for (const E dim : from) have = have * dim;
  std::vector<E> wanted;
  E rest = one;
  E open = zero;  // how many -1 there are
  for (int64_t i = 0; i < c.input(1).dims[0].value(); ++i) {
    E dim = c.in(1).At({b.I(i)});
    b.Check(dim >= b.I(-1), c.node().name + ": the shape has a negative size other than -1");
    if (!allow_zero) {
      const bool copies = static_cast<size_t>(i) < from.size();
      if (!copies)
        b.Check(dim != zero, c.node().name + ": the shape copies a dim that is not there");
      if (copies) dim = Select(dim == zero, from[static_cast<size_t>(i)], dim);
    }
    wanted.push_back(b.Let(dim, "dim"));
    const E inferred = wanted.back() == b.I(-1);
    open = open + Cast(inferred, DataType::kI64);
    rest = rest * Select(inferred, one, wanted.back());
  }
  have = b.Let(have, "have");
  rest = b.Let(rest, "rest");
  open = b.Let(open, "open");
  b.Check(open <= one, c.node().name + ": the shape has -1 twice");
  const E fits = Select(open == one, rest != zero && have % rest == zero, rest == have);
  b.Check(fits, c.node().name + ": the shape does not fit the number of elements");
  for (size_t i = 0; i < wanted.size(); ++i) {
    SetRuntimeDim(c, c.output(0).dims[i], Select(wanted[i] == b.I(-1), have / rest, wanted[i]));
  }
  return absl::OkStatus();
}

// ONNX Reshape: -1 once takes what is left, 0 copies the input's dim unless `allowzero`.
absl::Status InferReshape(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireType(c, 1, TypeSet({DataType::kI64})));
  QUENCH_RETURN_IF_ERROR(RequireRank(c, 1, 1, 1));
  const std::optional<std::vector<Dim>> shape = c.elements(1);
  if (!shape) return InferRuntime(c);
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
      .infer = InferReshape,
      .lower_sizes = LowerSizesOfReshape,
  };
  return op;
}

}  // namespace quench::ops
