#include "common/ops/work.h"

#include "common/ops/windows.h"

namespace quench::ops {
namespace {

// The weight of a convolution whose windows slide over input 0: Conv, ConvInteger, QLinearConv.
std::optional<int> SlidingWeight(const OpDef& op) {
  if (op.name == "QLinearConv") return 3;
  if (op.name == "Conv" || op.name == "ConvInteger") return 1;
  return std::nullopt;
}

std::optional<Windows> WindowsOf(const OpDef& op, const OpContext& context) {
  if (!context.has_input(0) || !context.input(0).ranked) return std::nullopt;
  const int rank = context.input(0).rank() - 2;
  if (rank < 1) return std::nullopt;
  std::vector<int64_t> kernel;
  if (WorkOf(op) == WorkKind::kConvolution) {
    const int at = SlidingWeight(op).value_or(1);
    if (!context.has_input(at) || context.input(at).rank() != rank + 2) return std::nullopt;
    for (const Dim dim : std::span(context.input(at).dims).subspan(2)) {
      if (!dim.is_static()) return std::nullopt;
      kernel.push_back(dim.value());
    }
  } else if (WorkOf(op) != WorkKind::kPooling || context.node().Find("kernel_shape") == nullptr) {
    return std::nullopt;
  }
  absl::StatusOr<Windows> windows = ReadWindows(context, rank, std::move(kernel));
  if (!windows.ok()) return std::nullopt;
  return *std::move(windows);
}

// Padding before and after axis `d`; `in` and `out` are its sizes.
std::pair<int64_t, int64_t> PaddingOf(const Windows& windows, int d, int64_t in, int64_t out) {
  const auto i = static_cast<size_t>(d);
  if (windows.auto_pad != AutoPad::kSameUpper && windows.auto_pad != AutoPad::kSameLower)
    return {windows.pads[i], windows.pads[i + static_cast<size_t>(windows.rank())]};
  const int64_t all = std::max<int64_t>((out - 1) * windows.strides[i] + windows.span(d) - in, 0);
  const int64_t less = all / 2;
  if (windows.auto_pad == AutoPad::kSameUpper) return {less, all - less};
  return {all - less, less};
}

int64_t FloorOf(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

// Pairs of an output index and a kernel index that read an element of the input, not of padding.
int64_t PairsInside(const Windows& windows, int d, int64_t in, int64_t out) {
  const auto i = static_cast<size_t>(d);
  const int64_t stride = windows.strides[i], begin = PaddingOf(windows, d, in, out).first;
  int64_t pairs = 0;
  for (int64_t k = 0; k < windows.kernel[i]; ++k) {
    const int64_t shift = begin - k * windows.dilations[i];  // input index: o * stride - shift
    const int64_t first = std::max<int64_t>(FloorOf(shift + stride - 1, stride), 0);
    const int64_t last = std::min(FloorOf(in - 1 + shift, stride), out - 1);
    pairs += std::max<int64_t>(last - first + 1, 0);
  }
  return pairs;
}

std::optional<int64_t> ProductOfFactors(std::span<const int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, std::max<int64_t>(factor, 0), &product))
      return std::nullopt;
  }
  return product;
}

}  // namespace

WorkKind WorkOf(const OpDef& op) {
  if (op.work != WorkKind::kNone) return op.work;
  if (op.macs != nullptr) return WorkKind::kProduct;
  return op.kind == OpKind::kPointwise ? WorkKind::kElementwise : WorkKind::kNone;
}

std::string_view WorkKindName(WorkKind kind) {
  switch (kind) {
    case WorkKind::kNone:
      return "";
    case WorkKind::kConvolution:
      return "convolution";
    case WorkKind::kProduct:
      return "product";
    case WorkKind::kRecurrent:
      return "recurrent";
    case WorkKind::kElementwise:
      return "elementwise";
    case WorkKind::kNormalisation:
      return "normalisation";
    case WorkKind::kPooling:
      return "pooling";
    case WorkKind::kReduction:
      return "reduction";
  }
  return "";
}

Dim Operations(const OpDef& op, const OpContext& context) {
  const auto elements_of = [&](const Type& type) -> Dim {
    return type.kind == ValueKind::kTensor && type.ranked ? context.symbols().Product(type.dims)
                                                          : Dim(0);
  };
  switch (WorkOf(op)) {
    case WorkKind::kElementwise:
      return context.has_output(0) ? elements_of(context.output(0)) : Dim(0);
    case WorkKind::kPooling:
    case WorkKind::kReduction:
      return context.has_input(0) ? elements_of(context.input(0)) : Dim(0);
    case WorkKind::kNormalisation:
      return context.has_input(0) ? context.symbols().Mul(elements_of(context.input(0)), 2)
                                  : Dim(0);
    default:
      return 0;
  }
}

Dim BiasAdditions(const OpDef& op, const OpContext& context) {
  if (op.bias < 0 || !context.has_input(op.bias) || !context.has_output(0)) return 0;
  const Type& type = context.output(0);
  return type.ranked ? context.symbols().Product(type.dims) : Dim(0);
}

std::optional<int64_t> MacsInsideInput(const OpDef& op, const OpContext& context,
                                       const DimValue& value) {
  const std::optional<int> weight = SlidingWeight(op);
  if (!weight || !context.has_output(0)) return std::nullopt;
  const std::optional<Windows> windows = WindowsOf(op, context);
  if (!windows) return std::nullopt;
  const std::vector<Dim>&in = context.input(0).dims, &out = context.output(0).dims;
  std::vector<int64_t> factors = {value(out[0]), value(out[1]),
                                  value(context.input(*weight).dims[1])};
  for (int d = 0; d < windows->rank(); ++d) {
    const auto i = static_cast<size_t>(d + 2);
    factors.push_back(PairsInside(*windows, d, value(in[i]), value(out[i])));
  }
  return ProductOfFactors(factors);
}

std::optional<int64_t> UnevenlyPaddedElements(const OpDef& op, const OpContext& context,
                                              const DimValue& value) {
  if (WorkOf(op) != WorkKind::kPooling || !context.has_output(0)) return std::nullopt;
  const std::optional<Windows> windows = WindowsOf(op, context);
  if (!windows) return std::nullopt;
  const std::vector<Dim>&in = context.input(0).dims, &out = context.output(0).dims;
  std::vector<int64_t> factors = {value(in[0]), value(in[1])};
  bool uneven = false;
  for (int d = 0; d < windows->rank(); ++d) {
    const auto i = static_cast<size_t>(d + 2);
    const auto [begin, end] = PaddingOf(*windows, d, value(in[i]), value(out[i]));
    uneven = uneven || begin != end;
    factors.push_back(value(in[i]) + begin + end);
  }
  return uneven ? ProductOfFactors(factors) : std::nullopt;
}

std::string KernelText(const OpDef& op, const OpContext& context) {
  const std::optional<Windows> windows = WindowsOf(op, context);
  return windows ? fmt::format("{}", fmt::join(windows->kernel, "x")) : "";
}

}  // namespace quench::ops
