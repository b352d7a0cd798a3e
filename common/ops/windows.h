// Sliding windows over the spatial dims (2, 3, ...) of N x C x D1 x D2 ..., shared by convolutions
// and pooling: attributes kernel_shape, strides, dilations, pads, auto_pad, ceil_mode; output
// sizes; index ranges.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/ops/helpers.h"

namespace quench::ops {

enum class AutoPad { kNotSet, kValid, kSameUpper, kSameLower };

struct Windows {
  std::vector<int64_t> kernel;     // per spatial dim, all > 0
  std::vector<int64_t> strides;    // > 0
  std::vector<int64_t> dilations;  // > 0
  std::vector<int64_t> pads;       // begins, then ends; >= 0; all 0 unless auto_pad is kNotSet
  AutoPad auto_pad = AutoPad::kNotSet;
  bool ceil_mode = false;

  int rank() const { return static_cast<int>(kernel.size()); }
  // Extent of the dilated kernel.
  int64_t span(int d) const {
    const auto i = static_cast<size_t>(d);
    return (kernel[i] - 1) * dilations[i] + 1;
  }
};

// Attributes that ReadWindows reads, for OpDef::attributes. `kernel_shape` is required for pooling.
std::vector<AttributeSpec> WindowAttributes(bool pooling, std::vector<AttributeSpec> more = {});

// Reads the attributes for `rank` spatial dims; `kernel` is what a weight implies (empty:
// kernel_shape decides).
absl::StatusOr<Windows> ReadWindows(const OpContext& op, int rank,
                                    std::vector<int64_t> kernel = {});
// The same after `infer` has accepted the node.
Windows KnownWindows(const OpContext& op, int rank, std::vector<int64_t> kernel = {});

// Output sizes by ONNX's formulas. A pooling window that begins in the end padding is dropped
// (ceil_mode).
absl::StatusOr<std::vector<Dim>> WindowOutputs(const InferContext& op, std::span<const Dim> spatial,
                                               const Windows& windows);

// Where the windows of one spatial dim lie.
class WindowAxis {
 public:
  // Dim `d` of the spatial dims; input size `in`, output size `out`. Emits nothing.
  WindowAxis(LowerContext& op, const Windows& windows, int d, Dim in, Dim out);

  // First and one past the last kernel index whose input index is in range, for output index `o`.
  std::pair<E, E> Range(E o) const;
  // Input index that kernel index k of output index o reads.
  E Input(E o, E k) const;
  // Number of kernel positions of the window that are not beyond the padded input: the divisor of
  // an average that counts padding.
  E CountPadded(E o) const;
  E begin_pad() const { return begin_pad_; }

 private:
  E Start(E o) const;
  loops::Builder* b_;
  int64_t kernel_;
  int64_t stride_;
  int64_t dilation_;
  bool inside_;  // no window leaves the input
  bool ceil_mode_;
  E in_;
  E begin_pad_;
  E end_pad_;
};

}  // namespace quench::ops
