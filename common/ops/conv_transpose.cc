#include <algorithm>

#include "common/ops/windows.h"

namespace quench::ops {
namespace {

// ONNX's padding rules. `begin` is what is cut off the start of each spatial dim of the full
// result.
struct ConvTransposePlan {
  Windows windows;
  std::vector<Dim> begin;
  std::vector<Dim> out;
};

absl::StatusOr<std::vector<int64_t>> Kernel(const OpContext& c) {
  std::vector<int64_t> kernel;
  for (size_t i = 2; i < c.input(1).dims.size(); ++i) {
    if (!c.input(1).dims[i].is_static()) {
      return c.UnsupportedError("the kernel's size is known only at run time");
    }
    kernel.push_back(c.input(1).dims[i].value());
  }
  return kernel;
}

absl::StatusOr<std::vector<int64_t>> Extra(const OpContext& c, const std::string& name,
                                           size_t count) {
  std::vector<int64_t> values = c.node().Ints(name);
  if (!values.empty() && values.size() != count) {
    return c.Error(fmt::format("{} has {} values, an input of this rank needs {}", name,
                               values.size(), count));
  }
  for (const int64_t value : values) {
    if (value < 0 || value > (int64_t{1} << 31)) {
      return c.Error(fmt::format("{} has {}, it must be 0 or more and below 2^31", name, value));
    }
  }
  return values;
}

absl::StatusOr<ConvTransposePlan> PlanConvTranspose(const OpContext& c) {
  const int rank = c.input(0).rank() - 2;
  const auto count = static_cast<size_t>(rank);
  SymbolTable& s = c.symbols();
  ConvTransposePlan plan;
  QUENCH_ASSIGN_OR_RETURN(std::vector<int64_t> kernel, Kernel(c));
  QUENCH_ASSIGN_OR_RETURN(plan.windows, ReadWindows(c, rank, std::move(kernel)));
  QUENCH_ASSIGN_OR_RETURN(std::vector<int64_t> extra, Extra(c, "output_padding", count));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> wanted, Extra(c, "output_shape", count));
  extra.resize(count, 0);
  const AutoPad mode = plan.windows.auto_pad;
  const bool same = mode == AutoPad::kSameUpper || mode == AutoPad::kSameLower;
  for (size_t i = 0; i < count; ++i) {
    const Dim in = c.input(0).dims[i + 2];
    const int64_t stride = plan.windows.strides[i];
    // Size before anything is cut off.
    const Dim full =
        s.Add(s.Mul(s.Sub(in, 1), stride), extra[i] + plan.windows.span(static_cast<int>(i)));
    if (wanted.empty() && !same) {
      plan.begin.emplace_back(plan.windows.pads[i]);
      plan.out.push_back(s.Sub(full, plan.windows.pads[i] + plan.windows.pads[i + count]));
    } else {
      plan.out.push_back(wanted.empty() ? s.Mul(in, stride) : Dim(wanted[i]));
      const Dim total = s.Max(s.Sub(full, plan.out.back()), 0);
      const Dim half = s.FloorDiv(total, 2);
      plan.begin.push_back(mode == AutoPad::kSameUpper ? half : s.Sub(total, half));
    }
    if (plan.out.back().is_static() && plan.out.back().value() < 0) {
      return c.Error(fmt::format("output size {} would be {}", i, plan.out.back().value()));
    }
  }
  return plan;
}

absl::Status InferConvTranspose(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireType(c, 0, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireSameType(c));
  QUENCH_RETURN_IF_ERROR(RequireRank(c, 0, 3));
  QUENCH_RETURN_IF_ERROR(RequireRank(c, 1, c.input(0).rank(), c.input(0).rank()));
  QUENCH_RETURN_IF_ERROR(RequireRank(c, 2, 1, 1));
  const int64_t group = c.node().Int("group", 1);
  const Dim channels = c.input(1).dims[0];
  if (group < 1 || (channels.is_static() && channels.value() % group != 0)) {
    return c.Error(fmt::format("{} input channels do not divide by group {}",
                               c.symbols().ToString(channels), group));
  }
  QUENCH_RETURN_IF_ERROR(
      RequireEqual(c, channels, c.input(0).dims[1], "weight channels and input channels"));
  QUENCH_ASSIGN_OR_RETURN(const ConvTransposePlan plan, PlanConvTranspose(c));
  std::vector<Dim> dims = {c.input(0).dims[0], c.symbols().Mul(c.input(1).dims[1], group)};
  if (c.has_input(2)) {
    QUENCH_RETURN_IF_ERROR(
        RequireEqual(c, c.input(2).dims[0], dims[1], "sizes of the bias and output channels"));
  }
  dims.insert(dims.end(), plan.out.begin(), plan.out.end());
  c.SetOutput(0, c.input(0).dtype, std::move(dims));
  return absl::OkStatus();
}

// The terms of one output index o along one dim: pairs (input index i, kernel index k) with
// i * stride + k * dilation = o + begin. Where stride or dilation is 1 they are counted directly;
// else every k is tried, and `valid` tells which count.
struct Terms {
  E count;
  std::function<E(E)> input;
  std::function<E(E)> kernel;
  std::function<E(E)> valid;  // may be empty: all
};

Terms TermsOf(loops::Builder& b, const Windows& windows, size_t d, E begin, E in, E o) {
  const int64_t stride = windows.strides[d];
  const int64_t dilation = windows.dilations[d];
  const E size = b.I(windows.kernel[d]);
  const E zero = b.I(0);
  const E place = b.Let(o + begin, "place");
  Terms terms;
  if (stride == 1) {
    const E step = b.I(dilation);
    const E low = b.Let(Max(FloorDiv(place - in, step) + 1, zero), "lo");
    terms.count = Min(size, FloorDiv(place, step) + 1) - low;
    terms.kernel = [=](E t) { return low + t; };
    terms.input = [=](E t) { return place - (low + t) * step; };
  } else if (dilation == 1) {
    const E step = b.I(stride);
    const E first = b.Let(place / step, "first");  // input index for the smallest kernel index
    const E phase = b.Let(place % step, "phase");  // that kernel index
    const E low = b.Let(Max(first - in + 1, zero), "lo");
    terms.count = Min(CeilDiv(size - phase, step), first + 1) - low;
    terms.kernel = [=](E t) { return phase + (low + t) * step; };
    terms.input = [=](E t) { return first - (low + t); };
  } else {
    terms.count = size;
    terms.kernel = [=](E t) { return t; };
    terms.input = [=](E t) {
      return Max(Min((place - t * dilation) / zero.builder()->I(stride), in - 1), zero);
    };
    terms.valid = [=](E t) {
      loops::Builder& builder = *zero.builder();
      const E rest = place - t * dilation;
      const E whole = FloorMod(rest, builder.I(stride)) == zero;
      return whole && rest >= zero && FloorDiv(rest, builder.I(stride)) < in;
    };
  }
  return terms;
}

absl::Status LowerConvTranspose(LowerContext& c) {
  loops::Builder& b = c.b();
  QUENCH_ASSIGN_OR_RETURN(const ConvTransposePlan plan, PlanConvTranspose(c));
  const size_t rank = plan.out.size();
  const int64_t group = c.node().Int("group", 1);
  const Dim group_in = c.symbols().FloorDiv(c.input(1).dims[0], group);
  const DataType type = loops::ComputeType(c.output(0).dtype);
  b.ParallelForAll(c.Extents(c.output(0).dims), [&](std::span<const E> index) {
    const E group_out = c.Extent(c.input(1).dims[1]);
    const E channel = group == 1 ? index[1] : index[1] % group_out;
    const E first = group == 1 ? b.I(0) : b.Let(index[1] / group_out * c.Extent(group_in), "first");
    std::vector<Terms> terms;
    std::vector<E> extents = {c.Extent(group_in)};
    for (size_t d = 0; d < rank; ++d) {
      terms.push_back(TermsOf(b, plan.windows, d, c.Extent(plan.begin[d]),
                              c.Extent(c.input(0).dims[d + 2]), index[d + 2]));
      extents.push_back(terms.back().count);
    }
    E value = b.ReduceAll(BinaryOp::kAdd, b.F(0, type), extents, [&](std::span<const E> t) {
      const E from = group == 1 ? t[0] : first + t[0];
      std::vector<E> x = {index[0], from};
      std::vector<E> w = {from, channel};
      E valid;
      for (size_t d = 0; d < rank; ++d) {
        x.push_back(terms[d].input(t[d + 1]));
        w.push_back(terms[d].kernel(t[d + 1]));
        if (!terms[d].valid) continue;
        const E own = terms[d].valid(t[d + 1]);
        valid = valid.valid() ? valid && own : own;
      }
      const E product = c.in(0).At(x) * c.in(1).At(w);
      return valid.valid() ? Select(valid, product, b.F(0, type)) : product;
    });
    if (c.has_input(2)) value = value + c.in(2).At({index[1]});
    b.Store(c.out(0), index, value);
  });
  return absl::OkStatus();
}

// Every input element meets every kernel element of every output channel of its group.
Dim ConvTransposeMacs(const OpContext& c) {
  SymbolTable& symbols = c.symbols();
  return symbols.Mul(symbols.Product(c.input(0).dims),
                     symbols.Product(std::span(c.input(1).dims).subspan(1)));
}

}  // namespace

const OpDef& ConvTransposeOp() {
  static const OpDef op = {
      .name = "ConvTranspose",
      .summary = "transposed convolution over N x C x spatial dims",
      .min_inputs = 2,
      .max_inputs = 3,
      .attributes = WindowAttributes(/*pooling=*/false, {{"group", AttributeSpec::kInt},
                                                         {"output_padding", AttributeSpec::kInts},
                                                         {"output_shape", AttributeSpec::kInts}}),
      .quant = QuantRole::kCompute,
      .work = WorkKind::kConvolution,
      .bias = 2,
      .infer = InferConvTranspose,
      .macs = ConvTransposeMacs,
      .lower = LowerConvTranspose,
  };
  return op;
}

}  // namespace quench::ops
