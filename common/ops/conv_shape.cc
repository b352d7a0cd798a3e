#include "common/ops/conv_shape.h"

namespace quench::ops {
namespace {

// Kernel sizes of a weight; not all static: nullopt.
std::optional<std::vector<int64_t>> KernelOf(const Type& weight) {
  std::vector<int64_t> kernel;
  for (size_t i = 2; i < weight.dims.size(); ++i) {
    if (!weight.dims[i].is_static()) return std::nullopt;
    kernel.push_back(weight.dims[i].value());
  }
  return kernel;
}

}  // namespace

std::vector<AttributeSpec> ConvAttributes() {
  return WindowAttributes(/*pooling=*/false, {{"group", AttributeSpec::kInt}});
}

absl::StatusOr<std::vector<Dim>> ConvDims(InferContext& op, int x, int w) {
  QUENCH_RETURN_IF_ERROR(RequireRank(op, x, 3));
  const Type& input = op.input(x);
  const Type& weight = op.input(w);
  QUENCH_RETURN_IF_ERROR(RequireRank(op, w, input.rank(), input.rank()));
  const std::optional<std::vector<int64_t>> kernel = KernelOf(weight);
  if (!kernel) return op.UnsupportedError("the kernel's size is known only at run time");
  const int64_t group = op.node().Int("group", 1);
  if (group < 1) return op.Error(fmt::format("group is {}, it must be at least 1", group));
  QUENCH_RETURN_IF_ERROR(RequireEqual(op, op.symbols().Mul(weight.dims[1], group), input.dims[1],
                                      "weight channels x group and input channels"));
  if (weight.dims[0].is_static() && weight.dims[0].value() % group != 0) {
    return op.Error(
        fmt::format("{} output channels do not divide by group {}", weight.dims[0].value(), group));
  }
  QUENCH_ASSIGN_OR_RETURN(const Windows windows, ReadWindows(op, input.rank() - 2, *kernel));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Dim> spatial,
                          WindowOutputs(op, std::span(input.dims).subspan(2), windows));
  std::vector<Dim> dims = {input.dims[0], weight.dims[0]};
  dims.insert(dims.end(), spatial.begin(), spatial.end());
  return dims;
}

Dim ConvMacs(const OpContext& op, int w) {
  SymbolTable& symbols = op.symbols();
  const std::span<const Dim> weight = op.input(w).dims;
  return symbols.Mul(symbols.Product(op.output(0).dims), symbols.Product(weight.subspan(1)));
}

void LowerConv(LowerContext& op, int x, int w,
               const std::function<void(LowerContext&, const ConvTerms&)>& element) {
  const Type& input = op.input(x);
  const Type& weight = op.input(w);
  const std::vector<Dim>& out = op.output(0).dims;
  const int rank = input.rank() - 2;
  const Windows windows = KnownWindows(op, rank, *KernelOf(weight));
  std::vector<WindowAxis> axes;
  for (int d = 0; d < rank; ++d) {
    const auto i = static_cast<size_t>(d + 2);
    axes.emplace_back(op, windows, d, input.dims[i], out[i]);
  }
  loops::Builder& b = op.b();
  const int64_t group = op.node().Int("group", 1);
  const Dim group_in = weight.dims[1];
  const Dim group_out = op.symbols().FloorDiv(weight.dims[0], group);

  b.ParallelForAll(op.Extents(out), [&](std::span<const E> index) {
    // First input channel of the output channel's group.
    E channel = b.I(0);
    if (group > 1) {
      const E which = group_out.is(1) ? index[1] : index[1] / op.Extent(group_out);
      channel = b.Let(group_in.is(1) ? which : which * op.Extent(group_in), "channel");
    }
    std::vector<E> extents = {op.Extent(group_in)};
    std::vector<E> first;
    for (int d = 0; d < rank; ++d) {
      const auto [low, high] =
          axes[static_cast<size_t>(d)].Range(index[static_cast<size_t>(d + 2)]);
      first.push_back(low);
      extents.push_back(b.expr(low.id()).kind == loops::ExprKind::kInt ? high : high - low);
    }
    auto kernel_index = [&](std::span<const E> term, size_t d) {
      return b.expr(first[d].id()).kind == loops::ExprKind::kInt ? term[d + 1]
                                                                 : first[d] + term[d + 1];
    };
    ConvTerms terms;
    terms.index = index;
    terms.extents = extents;
    terms.x = [&](std::span<const E> term) {
      std::vector<E> at = {index[0], group > 1 ? channel + term[0] : term[0]};
      for (size_t d = 0; d < static_cast<size_t>(rank); ++d) {
        at.push_back(axes[d].Input(index[d + 2], kernel_index(term, d)));
      }
      return op.in(x).At(at);
    };
    terms.w = [&](std::span<const E> term) {
      std::vector<E> at = {index[1], term[0]};
      for (size_t d = 0; d < static_cast<size_t>(rank); ++d) at.push_back(kernel_index(term, d));
      return op.in(w).At(at);
    };
    element(op, terms);
  });
}

}  // namespace quench::ops
