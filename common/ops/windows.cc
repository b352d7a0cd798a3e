#include "common/ops/windows.h"

#include <algorithm>

namespace quench::ops {
namespace {

// Larger values cannot be meant, and their products would overflow.
constexpr int64_t kMaxValue = int64_t{1} << 31;

absl::StatusOr<std::vector<int64_t>> ReadList(const OpContext& op, const std::string& name,
                                              int count, int64_t fallback, int64_t min) {
  std::vector<int64_t> values = op.node().Ints(name);
  if (values.empty()) values.assign(static_cast<size_t>(count), fallback);
  if (static_cast<int>(values.size()) != count) {
    return op.Error(fmt::format("{} has {} values, an input of this rank needs {}", name,
                                values.size(), count));
  }
  for (const int64_t value : values) {
    if (value >= min && value <= kMaxValue) continue;
    return op.Error(fmt::format("{} has {}, it takes {} to {}", name, value, min, kMaxValue));
  }
  return values;
}

absl::StatusOr<AutoPad> ReadAutoPad(const OpContext& op) {
  const std::string mode = op.node().String("auto_pad", "NOTSET");
  if (mode == "NOTSET") return AutoPad::kNotSet;
  if (mode == "VALID") return AutoPad::kValid;
  if (mode == "SAME_UPPER") return AutoPad::kSameUpper;
  if (mode == "SAME_LOWER") return AutoPad::kSameLower;
  return op.Error(
      fmt::format("auto_pad is `{}`, it takes NOTSET, VALID, SAME_UPPER or SAME_LOWER", mode));
}

}  // namespace

std::vector<AttributeSpec> WindowAttributes(bool pooling, std::vector<AttributeSpec> more) {
  std::vector<AttributeSpec> specs = {{"auto_pad", AttributeSpec::kString},
                                      {"dilations", AttributeSpec::kInts},
                                      {"kernel_shape", AttributeSpec::kInts, pooling},
                                      {"pads", AttributeSpec::kInts},
                                      {"strides", AttributeSpec::kInts}};
  specs.insert(specs.end(), more.begin(), more.end());
  return specs;
}

absl::StatusOr<Windows> ReadWindows(const OpContext& op, int rank, std::vector<int64_t> kernel) {
  Windows windows;
  if (kernel.empty() || op.node().Find("kernel_shape") != nullptr) {
    QUENCH_ASSIGN_OR_RETURN(windows.kernel, ReadList(op, "kernel_shape", rank, 1, 1));
    if (!kernel.empty() && kernel != windows.kernel) {
      return op.Error(fmt::format("kernel_shape is {{{}}}, the weight has {{{}}}",
                                  fmt::join(windows.kernel, ", "), fmt::join(kernel, ", ")));
    }
  } else {
    windows.kernel = std::move(kernel);
  }
  for (const int64_t size : windows.kernel) {
    if (size < 1 || size > kMaxValue) return op.Error(fmt::format("kernel has a size of {}", size));
  }
  QUENCH_ASSIGN_OR_RETURN(windows.strides, ReadList(op, "strides", rank, 1, 1));
  QUENCH_ASSIGN_OR_RETURN(windows.dilations, ReadList(op, "dilations", rank, 1, 1));
  QUENCH_ASSIGN_OR_RETURN(windows.pads, ReadList(op, "pads", 2 * rank, 0, 0));
  QUENCH_ASSIGN_OR_RETURN(windows.auto_pad, ReadAutoPad(op));
  if (windows.auto_pad != AutoPad::kNotSet) {
    std::fill(windows.pads.begin(), windows.pads.end(), 0);  // ONNX: auto_pad replaces them
  }
  windows.ceil_mode = op.node().Int("ceil_mode", 0) != 0;
  return windows;
}

Windows KnownWindows(const OpContext& op, int rank, std::vector<int64_t> kernel) {
  absl::StatusOr<Windows> windows = ReadWindows(op, rank, std::move(kernel));
  QUENCH_CHECK(windows.ok());
  return *std::move(windows);
}

absl::StatusOr<std::vector<Dim>> WindowOutputs(const InferContext& op, std::span<const Dim> spatial,
                                               const Windows& windows) {
  SymbolTable& s = op.symbols();
  std::vector<Dim> outputs;
  for (int d = 0; d < windows.rank(); ++d) {
    const auto i = static_cast<size_t>(d);
    const Dim in = spatial[i];
    const int64_t stride = windows.strides[i];
    if (windows.auto_pad == AutoPad::kSameUpper || windows.auto_pad == AutoPad::kSameLower) {
      outputs.push_back(s.CeilDiv(in, stride));
      continue;
    }
    const int64_t begin = windows.pads[i];
    const int64_t end = windows.pads[i + static_cast<size_t>(windows.rank())];
    const Dim room = s.Add(in, begin + end - windows.span(d));
    if (room.is_static() && room.value() < 0) {
      return op.Error(
          fmt::format("a window of {} does not fit an input of {} with padding {} and {}",
                      windows.span(d), in.value(), begin, end));
    }
    Dim out = s.Add(windows.ceil_mode ? s.CeilDiv(room, stride) : s.FloorDiv(room, stride), 1);
    if (windows.ceil_mode) out = s.Min(out, s.CeilDiv(s.Add(in, begin), stride));
    outputs.push_back(out);
  }
  return outputs;
}

WindowAxis::WindowAxis(LowerContext& op, const Windows& windows, int d, Dim in, Dim out)
    : b_(&op.b()),
      kernel_(windows.kernel[static_cast<size_t>(d)]),
      stride_(windows.strides[static_cast<size_t>(d)]),
      dilation_(windows.dilations[static_cast<size_t>(d)]),
      ceil_mode_(windows.ceil_mode),
      in_(op.Extent(in)) {
  const int64_t begin = windows.pads[static_cast<size_t>(d)];
  const int64_t end = windows.pads[static_cast<size_t>(d + windows.rank())];
  begin_pad_ = b_->I(begin);
  end_pad_ = b_->I(end);
  // Without padding, and with the output counted by rounding down, every window lies inside.
  inside_ = begin == 0 && end == 0 && !windows.ceil_mode;
  if (windows.auto_pad == AutoPad::kSameUpper || windows.auto_pad == AutoPad::kSameLower) {
    inside_ = false;
    const int64_t span = windows.span(d);
    const bool upper = windows.auto_pad == AutoPad::kSameUpper;
    if (in.is_static() && out.is_static()) {
      const int64_t total = std::max<int64_t>((out.value() - 1) * stride_ + span - in.value(), 0);
      inside_ = total == 0;
      begin_pad_ = b_->I(upper ? total / 2 : total - total / 2);
      end_pad_ = b_->I(upper ? total - total / 2 : total / 2);
    } else {
      const E needed = (op.Extent(out) - 1) * stride_ + span - in_;
      const E total = b_->Let(Max(needed, b_->I(0)), "pad");
      const E half = total / b_->I(2);
      begin_pad_ = b_->Let(upper ? half : total - half, "pad");
      end_pad_ = total - begin_pad_;
    }
  }
}

E WindowAxis::Start(E o) const {
  const E scaled = stride_ == 1 ? o : o * stride_;
  const loops::Expr& pad = b_->expr(begin_pad_.id());
  return pad.kind == loops::ExprKind::kInt && pad.i == 0 ? scaled : scaled - begin_pad_;
}

std::pair<E, E> WindowAxis::Range(E o) const {
  const E zero = b_->I(0);
  const E all = b_->I(kernel_);
  if (inside_) return {zero, all};
  const E start = b_->Let(Start(o), "start");
  if (kernel_ == 1) {
    // One position, in range or not.
    const E in_range = Cast(start >= zero && start < in_, DataType::kI64);
    return {zero, b_->Let(in_range, "hi")};
  }
  const E before = -start;
  const E after = in_ - start;
  const E step = b_->I(dilation_);
  const E low = dilation_ == 1 ? before : CeilDiv(before, step);
  const E high = dilation_ == 1 ? after : CeilDiv(after, step);
  return {b_->Let(Max(low, zero), "lo"), b_->Let(Min(high, all), "hi")};
}

E WindowAxis::Input(E o, E k) const {
  const E offset = dilation_ == 1 ? k : k * dilation_;
  return kernel_ == 1 && inside_ ? Start(o) : Start(o) + offset;
}

E WindowAxis::CountPadded(E o) const {
  if (!ceil_mode_) return b_->I(kernel_);
  const E room = in_ + end_pad_ - Start(o);
  return Min(CeilDiv(room, b_->I(dilation_)), b_->I(kernel_));
}

}  // namespace quench::ops
