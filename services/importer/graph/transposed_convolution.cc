#include "services/importer/graph/transposed_convolution.h"

#include <algorithm>

#include "common/base/status.h"

namespace quench::importer {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 40;  // of an axis

// Elements that the kernel spans on each spatial axis.
absl::StatusOr<std::vector<int64_t>> Spans(const Converter& c,
                                           const SizedTransposedConvolution& op) {
  const std::vector<Dim>& dims = c.type(op.weights).dims;
  std::vector<int64_t> spans;
  for (size_t i = 0; i < op.strides.size(); ++i) {
    if (i + 2 >= dims.size() || !dims[i + 2].is_static())
      return c.Unsupported("the size of its kernel is known only at run time");
    spans.push_back((dims[i + 2].value() - 1) * op.dilations[i] + 1);
  }
  return spans;
}

// Sizes of the spatial axes, if shapes give them.
absl::StatusOr<std::optional<std::vector<Dim>>> KnownSizes(const Converter& c,
                                                           const SizedTransposedConvolution& op) {
  const std::optional<std::vector<Dim>> all = c.elements(op.sizes);
  // A loop's later runs may have other shapes, but never other constants.
  if (!all || (!c.types_are_final() && c.constant(op.sizes) == nullptr)) return std::nullopt;
  const size_t spatial = op.strides.size();
  const size_t wanted = op.first == 0 ? spatial : spatial + 2;
  if (all->size() != wanted)
    return c.Error(
        fmt::format("the shape of its result has {} entries, expected {}", all->size(), wanted));
  const auto from = all->begin() + op.first;
  std::vector<Dim> sizes(from, from + static_cast<int64_t>(spatial));
  for (const Dim size : sizes) {
    if (size.is_static() && (size.value() < 0 || size.value() > kMaxSize))
      return c.Error(fmt::format("its result would have the size {}", size.value()));
  }
  return sizes;
}

// Pads and output_padding where they are the same in every run.
std::optional<Attributes> KnownPads(Converter& c, const SizedTransposedConvolution& op,
                                    const std::vector<int64_t>& spans,
                                    const std::vector<Dim>& sizes) {
  SymbolTable& s = c.symbols();
  std::vector<int64_t> pads, ends, extra;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t stride = op.strides[i];
    Dim begin = op.begins ? Dim((*op.begins)[i]) : Dim(0);
    if (!op.begins) {
      const Dim reached =
          s.Add(s.Mul(s.Sub(s.CeilDiv(sizes[i], stride), 1), stride), Dim(spans[i]));
      begin = s.FloorDiv(s.Max(s.Sub(reached, sizes[i]), 0), 2);
    }
    const Dim in = c.type(op.images).dims[i + 2];
    const Dim full = s.Add(s.Mul(s.Sub(in, 1), stride), spans[i]);
    const Dim surplus = s.Sub(s.Sub(full, begin), sizes[i]);
    if (!begin.is_static() || !surplus.is_static()) return std::nullopt;
    pads.push_back(begin.value());
    ends.push_back(std::max<int64_t>(surplus.value(), 0));
    extra.push_back(std::max<int64_t>(-surplus.value(), 0));
  }
  pads.insert(pads.end(), ends.begin(), ends.end());
  return Attributes{{"pads", pads}, {"output_padding", extra}};
}

// The whole result, of which a run cuts off or to which it adds what its sizes say.
ValueId CutAtRunTime(Converter& c, const SizedTransposedConvolution& op,
                     const std::vector<int64_t>& spans, Attributes attributes) {
  const auto spatial = static_cast<int64_t>(op.strides.size());
  const ValueId strides = c.Ints(op.strides), reach = c.Ints(spans), one = c.Ints({1});
  ValueId sizes = op.sizes;
  if (c.type(sizes).dtype != DataType::kI64)
    sizes = c.Emit("Cast", {sizes}, {{"to", static_cast<int64_t>(DataType::kI64)}});
  sizes = c.Emit("Slice", {sizes, c.Ints({op.first}), c.Ints({op.first + spatial})});
  // Elements that the kernel reaches from so many positions.
  const auto reached = [&](ValueId positions) {
    return c.Emit("Add", {c.Emit("Mul", {c.Emit("Sub", {positions, one}), strides}), reach});
  };
  ValueId begin;
  if (op.begins) {
    begin = c.Ints(*op.begins);
  } else {
    std::vector<int64_t> rounding = op.strides;
    for (int64_t& stride : rounding) --stride;
    const ValueId positions = c.Emit("Div", {c.Emit("Add", {sizes, c.Ints(rounding)}), strides});
    const ValueId surplus = c.Emit("Sub", {reached(positions), sizes});
    begin = c.Emit("Div", {c.Emit("Max", {surplus, c.Ints({0})}), c.Ints({2})});
  }
  const ValueId result = c.Emit("ConvTranspose", {op.images, op.weights}, std::move(attributes));
  const ValueId full = c.Emit("Shape", {result}, {{"start", int64_t{2}}});
  const ValueId end = c.Emit("Sub", {c.Emit("Add", {sizes, begin}), full});
  const ValueId pads = c.Emit("Concat", {c.Emit("Neg", {begin}), end}, {{"axis", int64_t{0}}});
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < spatial; ++i) axes.push_back(i + 2);
  const ValueId cut = c.Emit("Pad", {result, pads, kNone, c.Ints(axes)});
  if (op.bias == kNone) return cut;
  for (int64_t& axis : axes) --axis;
  return c.Emit("Add", {cut, c.Emit("Unsqueeze", {op.bias, c.Ints(axes)})});
}

}  // namespace

absl::StatusOr<ValueId> EmitTransposedConvolution(Converter& c,
                                                  const SizedTransposedConvolution& op) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> spans, Spans(c, op));
  QUENCH_ASSIGN_OR_RETURN(const std::optional<std::vector<Dim>> sizes, KnownSizes(c, op));
  Attributes attributes = {{"strides", op.strides}, {"dilations", op.dilations}};
  std::optional<Attributes> pads;
  if (sizes && c.types_are_final()) pads = KnownPads(c, op, spans, *sizes);
  if (!pads) return CutAtRunTime(c, op, spans, std::move(attributes));
  attributes.merge(*pads);
  std::vector<ValueId> inputs = {op.images, op.weights};
  if (op.bias != kNone) inputs.push_back(op.bias);
  return c.Emit("ConvTranspose", std::move(inputs), std::move(attributes));
}

}  // namespace quench::importer
